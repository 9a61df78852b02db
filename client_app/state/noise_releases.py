"""What a client that adds noise itself keeps of a run: the secret of the noise, and what it was added to.

    <root>/<run>/<client id>/releases.json

The same round with the same model and the same update has the same noise, also when the server repeats it after a
resume: then nothing new leaves. Anything else has other noise, and is one more release, which is counted. The file
is not one of the states, which begin again where the server has lost a reply.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from logging import WARNING
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, RecordDict

from fedstride.errors import DataError
from fedstride.files import atomic, bounded_reading
from fedstride.flower.logs import log
from fedstride.messages.records import config_records
from fedstride.noise.keystream import Keystream, is_secret, new_secret

from .state_folder import folder_of_run, make_private, refuse_links

FILE = "releases.json"
IN_MEMORY = "releases"
"""Record of `Context.state`, if the message names no run, or the disk cannot be written."""


@dataclass(frozen=True)
class Releases:
    """Those of one client of one run. `path`: None if the message names no run."""

    path: Path | None
    memory: RecordDict

    def stream(self, about: str, server_round: int) -> tuple[Keystream, int]:
        """The stream for the noise of a release, and how many different ones this client has made so far.

        It is kept before anything leaves. Raises DataError if the file exists and cannot be read.
        """
        with _locked(self.path and self.path.parent):
            secret, known = self._kept()
            if about not in known:
                known = [*known, about]
                self._keep(secret, known)
        return Keystream(secret, "update", server_round, about), len(known)

    def _kept(self) -> tuple[str, list[str]]:
        in_memory = config_records(self.memory).get(IN_MEMORY)
        if in_memory is not None:
            content: Any = dict(in_memory)
        elif self.path is None or not self.path.exists():
            return new_secret(), []
        else:
            content = _read(self.path)
        return str(content["secret"]), list(content["known"])

    def _keep(self, secret: str, known: list[str]) -> None:
        content: dict[str, Any] = {"secret": secret, "known": known}
        if self.path is not None:
            try:
                refuse_links(self.path.parent.parent, self.path.parent)
                make_private(self.path.parent)
                atomic.write(self.path, json.dumps(content).encode(), mode=0o600, durable=True)
            except OSError as error:
                log(
                    WARNING,
                    "the secret of the client's noise cannot be written to %s (%s) and is kept in memory",
                    self.path,
                    error.strerror,
                )
            else:
                self.memory.pop(IN_MEMORY, None)
                return
        self.memory[IN_MEMORY] = ConfigRecord(content)


def releases_of(config: Mapping[str, Any], context: Context, client_id: int) -> Releases:
    """Those of this client in the run of a message. Raises ConfigError for an invalid run id or state folder."""
    folder = folder_of_run(config, context.node_config)
    return Releases(None if folder is None else folder / str(client_id) / FILE, context.state)


@contextmanager
def _locked(folder: Path | None) -> Iterator[None]:
    """Other processes of the client wait: of two that read and then wrote, one release would not be counted.

    Where the folder cannot be made, the client's secret is in the memory of its process.
    """
    with ExitStack() as stack:
        if folder is not None:
            with suppress(OSError):
                refuse_links(folder.parent, folder)
                make_private(folder)
                descriptor = os.open(folder, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> dict[str, Any]:
    try:
        content = bounded_reading.from_json(bounded_reading.content(path))
        known = content["known"]
        if (
            is_secret(content["secret"])
            and isinstance(known, list)
            and all(isinstance(release, str) for release in known)
        ):
            return dict(content)
        what = "has another content"
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
    except (ValueError, KeyError, TypeError):
        what = "is damaged"
    raise DataError(
        f"{path} {what}: delete it, and the client begins with a new secret and counts its releases from 1"
    )
