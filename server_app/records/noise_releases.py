"""The releases of a run with noise at the server: a file in its folder, written before anything is released.

A round that is repeated after a resume is no new release if all its inputs are the same, because then so is its
noise. With other inputs it is one more, and counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flwr.serverapp.strategy import Strategy

from fedstride.errors import CheckpointError, RunError
from fedstride.files import atomic, bounded_reading
from fedstride.flower.strategy_internals import chain
from strategies.differential_privacy import DifferentialPrivacy

from .checkpoint import FOLDER

FILE = "releases.json"


@dataclass(frozen=True)
class Released:
    """Those in this file: by round, and a digest of all inputs."""

    path: Path

    def __call__(self, server_round: int, about: str) -> int:
        """Take note of a release; how many different ones there are so far.

        Those of later rounds, which the resumed run makes again, count when they are made, unless a round has come
        out otherwise: then these will not be made again. Raises CheckpointError if the file is damaged, and
        RunError if it cannot be written.
        """
        known = self._known()
        if (server_round, about) not in known:
            known.append((server_round, about))
            self._write(known)
        rounds = [number for number, _ in known if number <= server_round]
        return len(known) if len(set(rounds)) < len(rounds) else len(rounds)

    def _write(self, known: list[tuple[int, str]]) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            atomic.write(self.path, json.dumps(known).encode(), mode=0o600, durable=True)
        except OSError as error:
            raise RunError(
                f"{self.path} cannot be written ({error.strerror}), so what the run releases cannot be counted: "
                "free disk space, and resume the run"
            ) from error

    def _known(self) -> list[tuple[int, str]]:
        if not self.path.exists():
            return []
        try:
            releases = bounded_reading.from_json(bounded_reading.content(self.path))
            if not isinstance(releases, list):
                raise TypeError("it is not a list")
            return [(int(number), str(about)) for number, about in releases]
        except (ValueError, TypeError) as error:
            raise CheckpointError(
                f"{self.path} is damaged: without it, what a resumed run has released cannot be counted"
            ) from error


def note_releases(strategy: Strategy, folder: Path) -> None:
    """Let a private strategy keep its releases in the folder of a run."""
    for wrapper in _private(strategy):
        wrapper.released = Released(folder / FOLDER / FILE)


def _private(strategy: Strategy) -> Iterator[DifferentialPrivacy]:
    return (part for part in chain(strategy) if isinstance(part, DifferentialPrivacy))
