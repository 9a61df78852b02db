"""What leaves a node about an error: its kind, and the setting of the message that it is about.

The text of an error can contain cells, paths and names of columns. It stays in the log and on the terminal of the
node. What is sent is one of the sentences below, and at most a key that the server itself has sent.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from .errors import ChangedDataError, ConfigError, DataError, FedstrideError

DETAILS = "details in the log of the node"


class ErrorKind(StrEnum):
    """The kinds of errors, as the server is told them."""

    SETTING = "a setting of the message cannot be used at this node"
    DATA = "the data of this node cannot be read, or do not fit"
    CHANGED_DATA = "this node's data are not those with which it began the run; allow=[changed_data] goes on"
    FEW_ROWS = "this node has fewer rows for this than min_rows in its policy demands"
    POLICY = "the policy of this node does not allow this"
    UNTRUSTED = "this node does not trust the app"
    MESSAGE = "the message is not one that this node can process"
    LATE = "the time of the message was over"
    STORAGE = "this node cannot write its files"
    LOG = "this node cannot write its log, so it does nothing with its data"
    ENDED = "the app ended without an answer"
    APP = "the app failed at this node"
    NODE = "this node failed"
    UNSIGNED = "the run is not signed, and this node answers signed runs only"
    SIGNATURE = "the run has no signature that this node trusts"
    OTHER_RUN = "the signed run is of another app, of another configuration, or not valid at this time"
    OTHER_NODES = "the run is signed for other nodes"
    NOT_SIGNED = "the message is not one that was signed"
    REPLAY = "the signed run, or the message, came before"
    APPROVAL = "the run waits for an approval at this node"


class Fault(NamedTuple):
    """An error, as the server is told it. `key`: the setting of the message; empty if it is about none."""

    kind: ErrorKind
    key: str = ""

    def __str__(self) -> str:
        about = f": {self.key}" if self.key else ""
        return f"{self.kind}{about}; {DETAILS}"


def fault_of(error: BaseException, keys: Collection[str]) -> Fault:
    """What the server is told about this error. `keys`: those of the message."""
    kinds = (
        (ConfigError, ErrorKind.SETTING),
        (ChangedDataError, ErrorKind.CHANGED_DATA),
        (DataError, ErrorKind.DATA),
    )
    kind = next((kind for of, kind in kinds if isinstance(error, of)), ErrorKind.APP)
    key = error.key if isinstance(error, FedstrideError) else ""
    return Fault(kind, key if key in keys else "")


def parsed(text: str, keys: Collection[str]) -> Fault | None:
    """The fault that this text says, about no setting but one of these; None if it says anything else."""
    for kind in ErrorKind:
        for key in ("", *keys):
            if text == str(Fault(kind, key)):
                return Fault(kind, key)
    return None
