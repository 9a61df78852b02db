"""What a client keeps from round to round: a safetensors file for each of its rounds, on its own disk.

    <root>/<run>/<client id>/round-NNNNNN.safetensors

The client writes before the server has judged its reply. So the server names, in its next message, the round
whose reply it accepted last: exactly that version is loaded, and only versions older than any checkpoint can
name are dropped. A rejected reply leaves no trace.

The root is `state` of the node's own config, else FEDSTRIDE_STATE, else `fedstride/state` below
XDG_STATE_HOME or ~/.local/state. Where a message names no run (another server than ours), the newest state
is kept in Flower's `Context.state`, which a node loses when it starts anew.

Knows files, records and versions; does not know what the states mean. No pickle anywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from logging import WARNING
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from flwr.app import ConfigRecord, Context, RecordDict
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedstride import wire
from fedstride.arrays import to_record, views
from fedstride.errors import ConfigError, DataError
from fedstride.flower import log
from fedstride.settings import Plain

from .method import State

FORMAT = "1"  # raise it when the meaning of a file changes

ARRAYS, PLAIN, HELD = "state.arrays", "state.plain", "state.held"  # records of Context.state
ROUND = "round"  # in HELD: which version the other two are
MAX_ROUND = 10**9
RUN_ID = re.compile(r"[0-9a-f]{16}")  # it becomes a folder
VERSION = re.compile(r"\.?round-([0-9]+)[-.].*")  # with a dot before it, what a killed writer left

States = Mapping[str, State]
"""The states of all methods of one client, by label (without a slash)."""


class Kept(NamedTuple):
    """What was found: the states, and whether a version was named that is missing or damaged."""

    states: States
    lost: bool


class Store(Protocol):
    """Where one client keeps its states."""

    def load(self) -> Kept:
        """The states to begin the round with."""
        ...

    def save(self, states: States) -> bool:
        """Keep the states that the round ends with, if any; False where memory alone could take them."""
        ...


def store(config: Mapping[str, Any], context: Context, client_id: int) -> Store:
    """The store of this client for a message's round.

    Raises ConfigError for a run or rounds that cannot be, or a folder that the node names wrongly.
    """
    if wire.RUN not in config:
        return InContext(context.state)
    run = config[wire.RUN]
    if not isinstance(run, str) or not RUN_ID.fullmatch(run):
        raise ConfigError(f"{wire.RUN} = {run!r} is not allowed: it must be 16 hexadecimal digits")
    server_round = _round(config, wire.SERVER_ROUND, least=1, most=MAX_ROUND)
    accepted = _round(config, wire.ACCEPTED, most=server_round - 1)
    oldest = _round(config, wire.OLDEST, most=accepted)
    return OnDisk(root(context.node_config) / run / str(client_id), server_round, accepted, oldest, context.state)


def root(node_config: Mapping[str, Any]) -> Path:
    """The folder below which this node keeps its clients' states.

    Raises ConfigError for no path, and where none is named and the node's user has no home.
    """
    chosen = node_config.get("state")
    if chosen is not None and (not isinstance(chosen, str) or not chosen):
        raise ConfigError(
            f"node-config state = {chosen!r} is not allowed: it must name a folder; "
            "start the node with --node-config 'state=\"/path\"'"
        )
    base = os.environ.get("XDG_STATE_HOME")
    try:
        if chosen := chosen or os.environ.get("FEDSTRIDE_STATE"):
            return Path(chosen).expanduser()
        return (Path(base) if base else Path.home() / ".local" / "state") / "fedstride" / "state"
    except RuntimeError as error:  # a numeric user, as in a container
        raise ConfigError(
            f"no folder for what clients keep ({error}): name one, state in the node's config or FEDSTRIDE_STATE"
        ) from error


def _round(config: Mapping[str, Any], key: str, *, least: int = 0, most: int) -> int:
    value = config.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(f"{key} = {value!r} is not allowed: it must be a whole number from {least} to {most}")
    return value


# ---------------------------------------------------------------- on disk


@dataclass(frozen=True)
class OnDisk:
    """The versions of one client of one run.

    `accepted`: the round whose version is loaded, 0 for none; `oldest`: versions of smaller rounds are dropped.
    """

    folder: Path
    server_round: int
    accepted: int
    oldest: int
    memory: RecordDict = field(default_factory=RecordDict)  # `Context.state`: takes a version that no disk will

    def load(self) -> Kept:
        """The version that the server named. Raises DataError where it is there and may not be read."""
        if not self.accepted:
            return Kept({}, lost=False)
        held = self.memory.config_records.get(HELD)
        if held is not None and held[ROUND] == self.accepted:
            return InContext(self.memory).load()
        path = self._path(self.accepted)
        try:
            return Kept(_read(path), lost=False)
        except (FileNotFoundError, SafetensorError, ValueError, KeyError, TypeError, AttributeError):
            return Kept({}, lost=True)
        except OSError as error:
            raise DataError(f"the client's state {path} cannot be read ({error.strerror})") from error

    def save(self, states: States) -> bool:
        """Write this round's version, whole or not at all; False where the disk does not take it.

        It is then held in memory, so that a disk that is full for a while costs nothing but to a client that
        dies meanwhile. Who has kept something before writes an empty version too: else it would be missed in
        the next round.
        """
        if not any(states.values()) and not os.path.isdir(self.folder):  # never raises
            return True
        try:
            _make_private(self.folder)
            _write(self._path(self.server_round), _packed(states))
        except OSError as error:
            log(
                WARNING,
                "the client's state %s cannot be written (%s) and is held in memory: free disk space, or name "
                "another folder (state in the node's config, or FEDSTRIDE_STATE)",
                self._path(self.server_round),
                error.strerror,
            )
            InContext(self.memory).save(states)
            self.memory[HELD] = ConfigRecord({ROUND: self.server_round})
            return False
        self.memory.pop(HELD, None)  # not before: a round that fails must not cost what memory alone has
        self._tidy()
        return True

    def _tidy(self) -> None:
        """Drop what nobody can name any more."""
        # The version is written: what cannot be tidied is no fault of the round.
        with contextlib.suppress(OSError):
            for old in list(self.folder.iterdir()):
                version = VERSION.fullmatch(old.name)
                if version and int(version[1]) < self.oldest and not old.is_dir():
                    old.unlink(missing_ok=True)

    def _path(self, server_round: int) -> Path:
        return self.folder / f"round-{server_round:06d}.safetensors"


def _make_private(folder: Path) -> None:
    """The folder and those above it, the new ones for their owner alone."""
    if not folder.is_dir():
        _make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _write(path: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.stem}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
        _sync(path.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _packed(states: States) -> bytes:
    arrays, plain = _flat(states)
    text = json.dumps(plain, sort_keys=True)
    metadata = {"format": FORMAT, "plain": text, "sha256": _digest(arrays, text)}
    return bytes(save(arrays, metadata))


def _read(path: Path) -> dict[str, State]:
    """The states in a file. Raises ValueError where it is damaged, of another format, or no such file."""
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
    if metadata["format"] != FORMAT or metadata["sha256"] != _digest(arrays, metadata["plain"]):
        raise ValueError(f"{path} is damaged")
    return _nested(arrays, json.loads(metadata["plain"]))


def _digest(arrays: Mapping[str, np.ndarray], plain: str) -> str:
    digest = hashlib.sha256(plain.encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


# ---------------------------------------------------------------- in Flower's context


@dataclass(frozen=True)
class InContext:
    """The newest states only: what another server than ours can keep."""

    records: RecordDict

    def load(self) -> Kept:
        """The newest states."""
        arrays = self.records.array_records.get(ARRAYS)
        plain = self.records.config_records.get(PLAIN)
        return Kept(_nested({} if arrays is None else views(arrays), plain or {}), lost=False)

    def save(self, states: States) -> bool:
        """Put these in their place."""
        arrays, plain = _flat(states)
        for key, record in ((ARRAYS, to_record(arrays)), (PLAIN, ConfigRecord(dict(plain)))):
            if record:
                self.records[key] = record
            else:
                self.records.pop(key, None)
        return True


# ---------------------------------------------------------------- flat and nested


def _flat(states: States) -> tuple[dict[str, np.ndarray], dict[str, Plain]]:
    """Arrays and plain values of all states, as `label/name`. Raises ConfigError for what is neither."""
    values = {f"{label}/{name}": value for label, state in states.items() for name, value in state.items()}
    for key, value in values.items():
        is_array = isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
        if not is_array and not isinstance(value, (bool, int, float, str)):
            kind = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
            raise ConfigError(
                f"{key} is of type {kind}: a method can keep arrays of numbers and plain values alone"
            )
    # Contiguous for safetensors; np.ascontiguousarray would give an array without dimensions one.
    arrays = {key: np.asarray(value, order="C") for key, value in values.items() if isinstance(value, np.ndarray)}
    return arrays, {key: value for key, value in values.items() if not isinstance(value, np.ndarray)}


def _nested(arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any]) -> dict[str, State]:
    """The states that `_flat` took apart."""
    states: dict[str, dict[str, np.ndarray | Plain]] = {}
    for key, value in [*arrays.items(), *plain.items()]:
        label, _, name = key.partition("/")
        states.setdefault(label, {})[name] = value
    return dict(states)
