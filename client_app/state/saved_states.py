"""Saves a client's state between rounds: one safetensors file for each round, on the client's own disk.

    <root>/<run>/<client id>/round-NNNNNN.safetensors

A client saves its state before the server has accepted its reply. Therefore the next message contains the last
round in which the server accepted a reply of this client, and the client loads exactly the state of that round.
So a rejected reply has no effect on later rounds. The client deletes only states that no checkpoint of the run
needs.

The root is `state` of the node's node-config, else FEDSTRIDE_STATE, else `fedstride/state` below XDG_STATE_HOME or
~/.local/state. If a message has no run id (from another server than ours), only the newest state is kept, in
Flower's `Context.state`. A node loses it when it restarts.

No pickle is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from logging import WARNING
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from flwr.app import ConfigRecord, Context, RecordDict
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedstride.arrays.dtypes import kind_fault
from fedstride.arrays.named import to_record, views
from fedstride.errors import ConfigError, DataError
from fedstride.files import atomic
from fedstride.flower.logs import log
from fedstride.messages import wire
from fedstride.messages.records import array_records, config_records
from fedstride.plain_numbers import is_whole
from fedstride.settings import Plain

from ..training.method import State
from .state_folder import folder_of_run, make_private, refuse_links

FORMAT = "1"  # increase it when the meaning of a file changes

ARRAYS, PLAIN, IN_MEMORY = "state.arrays", "state.plain", "state.held"  # records of Context.state
ROUND = "round"  # key in IN_MEMORY: the round of the state in the other two records
MAX_ROUND = 10**9
VERSION = re.compile(r"\.?round-([0-9]+)[-.].*")  # names of states and, with a dot, of incomplete temporary files

States = Mapping[str, State]
"""The states of all methods of one client, by label (labels contain no slash)."""


class LoadedStates(NamedTuple):
    """The loaded states. `lost`: the state that the server named is missing or damaged, so `states` is empty."""

    states: States
    lost: bool


class Store(Protocol):
    """Loads and saves the states of one client in one round."""

    def load(self) -> LoadedStates:
        """The states at the beginning of the round."""
        ...

    def save(self, states: States) -> bool:
        """Save the states at the end of the round. False if they could be kept in memory only."""
        ...


def store(config: Mapping[str, Any], context: Context, client_id: int) -> Store:
    """The store of this client for the round of a message.

    Raises ConfigError for an invalid run id or round, or if the node's config has an invalid state folder.
    """
    folder = folder_of_run(config, context.node_config)
    if folder is None:
        return InContext(context.state)
    server_round = _round(config, wire.SERVER_ROUND, least=1, most=MAX_ROUND)
    accepted = _round(config, wire.ACCEPTED, most=server_round - 1)
    oldest = _round(config, wire.OLDEST, most=accepted)
    return OnDisk(folder / str(client_id), server_round, accepted, oldest, context.state)


def _round(config: Mapping[str, Any], key: str, *, least: int = 0, most: int) -> int:
    value = config.get(key, 0)
    if not is_whole(value) or not least <= value <= most:
        raise ConfigError(f"{key} = {value!r} is not allowed: it must be a whole number from {least} to {most}")
    return value


# ---------------------------------------------------------------- on disk


@dataclass(frozen=True)
class OnDisk:
    """The states of one client of one run, on disk.

    `accepted`: the round whose state is loaded, 0 for none. `oldest`: states of earlier rounds are deleted.
    """

    folder: Path
    server_round: int
    accepted: int
    oldest: int
    memory: RecordDict = field(default_factory=RecordDict)  # `Context.state`, used if the disk cannot be written

    def load(self) -> LoadedStates:
        """The state of the round that the server named. Raises DataError if the file exists but cannot be read."""
        if not self.accepted:
            return LoadedStates({}, lost=False)
        in_memory = config_records(self.memory).get(IN_MEMORY)
        if in_memory is not None and in_memory[ROUND] == self.accepted:
            return InContext(self.memory).load()
        path = self._path(self.accepted)
        try:
            return LoadedStates(_read(path), lost=False)
        except (FileNotFoundError, SafetensorError, ValueError, KeyError, TypeError, AttributeError):
            return LoadedStates({}, lost=True)
        except OSError as error:
            raise DataError(
                f"the client's state {path} cannot be read ({error.strerror}); make it readable for this user, or "
                "delete it to start with an empty state"
            ) from error

    def save(self, states: States) -> bool:
        """Write the state of this round atomically. False if the disk cannot be written.

        The state is then kept in memory; it is lost only if the client's process ends before the disk can be
        written again. A client that has saved a state before also writes an empty state: otherwise the next round
        would report it as lost.
        """
        if not any(states.values()) and not os.path.isdir(self.folder):  # unlike Path.is_dir, it never raises
            return True
        try:
            refuse_links(self.folder.parent, self.folder)
            make_private(self.folder)
            atomic.write(self._path(self.server_round), _packed(states), mode=0o600, durable=True)
        except OSError as error:
            log(
                WARNING,
                "the client's state %s cannot be written (%s) and is kept in memory; free disk space, or set "
                "another folder (state in the node-config, or FEDSTRIDE_STATE)",
                self._path(self.server_round),
                error.strerror,
            )
            InContext(self.memory).save(states)
            self.memory[IN_MEMORY] = ConfigRecord({ROUND: self.server_round})
            return False
        self.memory.pop(IN_MEMORY, None)  # only now, because an earlier state may exist in memory only
        self._delete_old_states()
        return True

    def _delete_old_states(self) -> None:
        """Delete the states of rounds before `oldest`."""
        # Errors are ignored: the new state is already saved, and old files do no harm.
        with contextlib.suppress(OSError):
            for old in list(self.folder.iterdir()):
                version = VERSION.fullmatch(old.name)
                if version and int(version[1]) < self.oldest and not old.is_dir():
                    old.unlink(missing_ok=True)

    def _path(self, server_round: int) -> Path:
        return self.folder / f"round-{server_round:06d}.safetensors"


def _packed(states: States) -> bytes:
    arrays, plain = _flat(states)
    text = json.dumps(plain, sort_keys=True)
    metadata = {"format": FORMAT, "plain": text, "sha256": _digest(arrays, text)}
    return bytes(save(arrays, metadata))


def _read(path: Path) -> dict[str, State]:
    """The states in a file. Raises ValueError if its digest is wrong or it has another format.

    Raises other errors of `safe_open` and of JSON if the file is missing or damaged.
    """
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  `file` is not a mapping
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
    """The newest states in Flower's `Context.state`, for messages of servers that send no run id."""

    records: RecordDict

    def load(self) -> LoadedStates:
        """The newest states."""
        arrays = array_records(self.records).get(ARRAYS)
        plain = config_records(self.records).get(PLAIN)
        return LoadedStates(_nested({} if arrays is None else views(arrays), plain or {}), lost=False)

    def save(self, states: States) -> bool:
        """Replace the newest states. Always True."""
        arrays, plain = _flat(states)
        for key, record in ((ARRAYS, to_record(arrays)), (PLAIN, ConfigRecord(dict(plain)))):
            if record:
                self.records[key] = record
            else:
                self.records.pop(key, None)
        return True


# ---------------------------------------------------------------- flat and nested


def _flat(states: States) -> tuple[dict[str, np.ndarray], dict[str, Plain]]:
    """Arrays and plain values of all states, as `label/name`. Raises ConfigError for values of other types."""
    values = {f"{label}/{name}": value for label, state in states.items() for name, value in state.items()}
    for key, value in values.items():
        is_array = isinstance(value, np.ndarray) and kind_fault(value.dtype) is None
        if not is_array and not isinstance(value, (bool, int, float, str)):
            kind = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
            raise ConfigError(
                f"the state value {key} has type {kind}, but must be an array of numbers, a number, text or a bool"
            )
    # safetensors needs contiguous arrays; np.ascontiguousarray would change the shape () to (1,).
    arrays = {key: np.asarray(value, order="C") for key, value in values.items() if isinstance(value, np.ndarray)}
    return arrays, {key: value for key, value in values.items() if not isinstance(value, np.ndarray)}


def _nested(arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any]) -> dict[str, State]:
    """The states that `_flat` converted."""
    states: dict[str, dict[str, np.ndarray | Plain]] = {}
    for key, value in [*arrays.items(), *plain.items()]:
        label, _, name = key.partition("/")
        states.setdefault(label, {})[name] = value
    return dict(states)
