"""What a node asks of its SuperLink: the contract of a connection, and its errors.

`fleet.py` fulfils it for Flower 1.39 (`over_grpc.py`) and for 1.40 and later (`over_http.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ...errors import printable

ANSWER_BYTES = 12 * 2**20
"""Of an answer, at most: a part of an array has 5 MiB, and an app at most 10 MB."""

MOST_TEXT = 1000  # characters of an error

SILENCE_SECONDS = 30.0
"""The longest wait for an answer. A connection that is silent so long is made again."""


class LinkError(Exception):
    """A request had no good answer. The text is one line, also if it contains text from the SuperLink."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(" ".join(text.split()))[:MOST_TEXT])


class UnreachableError(LinkError):
    """No answer, or an error that may be over when the SuperLink is asked again."""


class FailingError(UnreachableError):
    """The SuperLink answers with an error of its own, as while its database is locked."""


class KeyRefusedError(LinkError):
    """The SuperLink does not know this node's key, or does not accept its signature."""


class RunGoneError(LinkError):
    """The run has ended, so the SuperLink does not answer for it."""


class NotThereYetError(LinkError):
    """A part of a message that is announced, and has not arrived at the SuperLink."""


class TooLargeError(LinkError):
    """An answer is larger than allowed, or a request is larger than the SuperLink allows."""


class AnswerError(LinkError):
    """An answer that a SuperLink does not give, or that this node does not understand."""


@dataclass(frozen=True)
class SuperLinkAddress:
    """Where the SuperLink is, and how it is known."""

    address: str  # HOST:PORT
    insecure: bool = False  # in plain text
    root_certificates: bytes | None = None  # PEM; None: those of the system
    proxy: str | None = None  # URL; None: no proxy, whatever the environment says
    most_bytes: int = ANSWER_BYTES  # of an answer


class MessageHead(NamedTuple):
    """What a message says about itself."""

    id: str
    run: int
    source: int  # node id of the sender; 1 is the SuperLink
    target: int
    group: str  # the round
    kind: str  # train, evaluate, query
    created: float  # seconds since 1970
    ttl: float  # seconds after which no reply is accepted
    source_task: int | None
    target_task: int | None


class Arrived(NamedTuple):
    """A message for this node, without its content."""

    head: MessageHead
    objects: tuple[str, ...]  # ids of all its objects, each once


class AnnouncedRun(NamedTuple):
    """What the SuperLink says about a run. Nothing of it is verified."""

    id: int
    series: int
    app_hash: str
    overrides: Mapping[str, bool | int | float | str]


class Bundle(NamedTuple):
    """An app as the SuperLink hands it over."""

    content: bytes
    signatures: Mapping[str, str]  # of Flower's app store, by the id of the key


class Missing(NamedTuple):
    """The answer to an announced reply."""

    missing: frozenset[str]  # ids of the objects that the SuperLink does not have
    session: str


class Link(Protocol):
    """A connection to a SuperLink, as one registered node. Every method raises LinkError."""

    node_id: int

    def receive(self) -> Arrived | None:
        """The next message for this node; None if there is none now. Each is given out once."""
        ...

    def run(self, run: int) -> AnnouncedRun:
        """The description of a run."""
        ...

    def bundle(self, app_hash: str, run: int) -> Bundle:
        """The app with this SHA-256."""
        ...

    def content(self, run: int, object_id: str) -> bytes:
        """The content of an object. Raises NotThereYetError if it is announced and not there."""
        ...

    def confirm(self, run: int, message: str) -> None:
        """The message is here, so the SuperLink may delete its objects."""
        ...

    def send(self, reply: bytes, tree: Mapping[str, tuple[str, ...]], seconds: float) -> Missing:
        """Announce a reply. `reply`: the message object. `tree`: the ids of each object's children, by id.

        `seconds`: how long the app took.
        """
        ...

    def put(self, run: int, session: str, object_id: str, content: bytes) -> None:
        """Hand over an object of an announced reply."""
        ...

    def close(self) -> None:
        """Tell the SuperLink that this node leaves, if it can be reached, and end the connection."""
        ...
