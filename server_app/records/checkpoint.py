"""Checkpoints: everything that is needed to resume a run, written atomically.

A checkpoint is a folder `checkpoint/round-NNNNNN` with `model.safetensors`, `strategy.safetensors`, `state.json`
and `SHA256SUMS`, the digests of the other three (`sha256sum -c SHA256SUMS` checks them, too). A checkpoint is
written to a temporary folder, synced and renamed. The newest two checkpoints are kept. Next to them is a copy of
`metrics.jsonl`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import deserialize
from safetensors.numpy import save

from fedstride.arrays.dtypes import dtype_named
from fedstride.arrays.named import Arrays
from fedstride.errors import CheckpointError
from fedstride.files import atomic, bounded_reading
from fedstride.tasks.spec import Statistics

from ..before_training.initial_model import DTYPES
from ..exchange.client_ids import Owner
from .run_folder import free

FORMAT = 5
KEPT = 2
FOLDER = "checkpoint"
FILES = ("model.safetensors", "strategy.safetensors", "state.json")
SUMS = "SHA256SUMS"
NAME = re.compile(r"round-([0-9]{6,})")
UNUSED = "unused-"
"""Prefix of the name of a checkpoint that could not be used, or that is newer than the one that was resumed."""


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after a round. A resumed run has the same bits as an uninterrupted one."""

    server_round: int
    model: Arrays  # the global model after the round
    strategy: Mapping[str, Any]  # the strategy's state_dict: arrays, numbers, strings
    accepted: Mapping[int, int]  # the last round whose reply was accepted, by client id
    run: str  # the run's id, under which clients keep their states
    config: str  # digest of the run's configuration
    row: Mapping[str, Any]  # the metrics of the round, in JSON's types
    records: Mapping[str, str]  # digest of the last line of metrics.jsonl and clients.jsonl, by file name
    owners: Mapping[int, Owner] = field(default_factory=dict)  # the node that each client id belongs to
    data: str = ""  # digest of the task's examples at the server
    statistics: Statistics = field(default_factory=dict)  # of the clients' examples, if the run computed them


def write_checkpoint(run_folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint of the run, delete all but the newest two, and return the folder of the new one.

    Raises OSError if it cannot be written; the existing checkpoints are then unchanged.
    """
    parent = run_folder / FOLDER
    parent.mkdir(mode=0o700, exist_ok=True)  # with privacy, the state contains the secret of the noise
    folder = parent / f"round-{checkpoint.server_round:06d}"
    temporary = parent / f".{folder.name}.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        _fill(temporary, checkpoint)
        atomic.sync(temporary)
        if folder.exists():  # a resumed run writes this round again
            shutil.rmtree(folder)
        temporary.rename(folder)
        atomic.sync(parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    for old in [path for path in _folders(run_folder) if _round_of(path) is not None][KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def newest_checkpoint(
    run_folder: Path, use: Callable[[Checkpoint], None] = lambda checkpoint: None
) -> tuple[Checkpoint, list[str]]:
    """The newest valid checkpoint, and one line for each newer one that is damaged or that `use` refuses.

    `use` puts a checkpoint to use, and raises CheckpointError if that is not possible. Raises CheckpointError if
    there is no valid checkpoint.
    """
    faults: list[str] = []
    try:
        folders = _folders(run_folder)
    except OSError as error:
        raise CheckpointError(
            f"{run_folder / FOLDER} cannot be read ({error.strerror}): make it readable for this user"
        ) from error
    for folder in folders:
        try:
            checkpoint = read_checkpoint(folder)
            use(checkpoint)
            return checkpoint, faults
        except CheckpointError as error:
            faults.append(str(error))
    details = f" ({'; '.join(faults)})" if faults else ""
    raise CheckpointError(
        f"{run_folder} has no valid checkpoint{details}; start the run again, with checkpoint_every of at least 1"
    )


def has_checkpoint(run_folder: Path) -> bool:
    """Whether there is a checkpoint; it is not read."""
    return bool(_folders(run_folder))


def valid_checkpoints(run_folder: Path) -> list[Checkpoint]:
    """The valid checkpoints of a run, newest first."""
    checkpoints = []
    for folder in _folders(run_folder):
        with contextlib.suppress(CheckpointError):
            checkpoints.append(read_checkpoint(folder))
    return checkpoints


def set_aside_newer(run_folder: Path, server_round: int) -> None:
    """Rename the checkpoints that were tried before that of this round, so that they are not tried again.

    They are kept, and do not count as one of the newest two. Raises OSError.
    """
    for folder in _folders(run_folder):
        if _round_of(folder) == server_round:
            return
        folder.rename(free(folder.with_name(UNUSED + folder.name)))


def read_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint in a folder. Raises CheckpointError if it is incomplete, damaged or of another format."""
    if _round_of(folder) is None:
        raise CheckpointError(f"{folder} is not a complete checkpoint: its name is not round-NNNNNN")
    try:
        files = {name: bounded_reading.content(folder / name) for name in FILES}
        _check_sums(folder, files)
        state = bounded_reading.from_json(files["state.json"])
        if state.get("format") != FORMAT:
            raise CheckpointError(f"{folder} has format {state.get('format')!r}, but this version reads {FORMAT}")
        if state["round"] != _round_of(folder):
            raise CheckpointError(f"{folder} is damaged: it is the checkpoint of round {state['round']}")
        return Checkpoint(
            server_round=int(state["round"]),
            model=_ordered(files["model.safetensors"], state["order"]["model"]),
            strategy=state["strategy"] | _ordered(files["strategy.safetensors"], state["order"]["strategy"]),
            accepted={int(client): int(number) for client, number in state["accepted"].items()},
            run=str(state["run"]),
            config=state["config"],
            row=state["row"],
            records=_texts(state["records"]),
            owners={int(client): Owner(*map(str, owner)) for client, owner in state["owners"].items()},
            data=state["data"],
            statistics=state["statistics"],
        )
    except CheckpointError:
        raise
    except Exception as error:  # whatever the reason, the checkpoint before it is tried
        raise CheckpointError(f"{folder} is not a complete checkpoint: {type(error).__name__}: {error}") from error


def _fill(folder: Path, checkpoint: Checkpoint) -> None:
    arrays = {k: v for k, v in checkpoint.strategy.items() if isinstance(v, np.ndarray)}
    files = {
        "model.safetensors": save(_contiguous(checkpoint.model)),
        "strategy.safetensors": save(_contiguous(arrays)),
    }
    state = {
        "format": FORMAT,
        "round": checkpoint.server_round,
        "config": checkpoint.config,
        # safetensors sorts the arrays. Sums are computed in the model's order, so the result depends on the order.
        "order": {"model": list(checkpoint.model), "strategy": list(arrays)},
        "strategy": {k: v for k, v in checkpoint.strategy.items() if k not in arrays},
        "accepted": {str(client): number for client, number in checkpoint.accepted.items()},
        "run": checkpoint.run,
        "row": checkpoint.row,
        "records": checkpoint.records,
        "owners": {str(client): list(owner) for client, owner in checkpoint.owners.items()},
        "data": checkpoint.data,
        "statistics": checkpoint.statistics,
    }
    files["state.json"] = json.dumps(state).encode()
    for name, content in {**files, SUMS: _sums(files)}.items():
        atomic.put(folder / name, content, durable=True)


def _sums(files: Mapping[str, bytes]) -> bytes:
    """The content of `SHA256SUMS`, in the form that the command `sha256sum` writes."""
    return "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items()).encode()


def _check_sums(folder: Path, files: Mapping[str, bytes]) -> None:
    """Raises CheckpointError, naming the file, if a file does not have its digest."""
    sums, expected = bounded_reading.content(folder / SUMS, bounded_reading.SMALL), _sums(files)
    if sums == expected:
        return
    known = sums.split(b"\n")
    damaged = [name for name, line in zip(files, expected.split(b"\n"), strict=False) if line not in known]
    raise CheckpointError(f"{folder / (damaged or [SUMS])[0]} is damaged: its digest differs from that in {SUMS}")


def _contiguous(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    # np.ascontiguousarray would change the shape () to (1,).
    return {name: np.asarray(array, order="C") for name, array in arrays.items()}


def _ordered(content: bytes, order: list[str]) -> Arrays:
    parts = dict(deserialize(content))  # type: ignore[no-untyped-call]
    return {name: _array(parts[name]) for name in order}


def _array(part: Mapping[str, Any]) -> np.ndarray:
    # safetensors' own function for numpy does not read bfloat16.
    return np.frombuffer(part["data"], dtype_named(DTYPES[part["dtype"]])).reshape(part["shape"])


def _folders(run_folder: Path) -> list[Path]:
    """The checkpoints, newest first, and before them what has the name of a checkpoint but no round.

    Temporary folders are not included: their names begin with a dot. Raises OSError if they cannot be listed.
    """
    parent = run_folder / FOLDER
    names = [name for name in (os.listdir(parent) if parent.exists() else []) if name.startswith("round-")]
    folders = [parent / name for name in sorted(names)]
    return sorted(
        folders, key=lambda path: math.inf if (number := _round_of(path)) is None else number, reverse=True
    )


def _texts(digests: Mapping[str, Any]) -> dict[str, str]:
    """The digests by file name. Raises TypeError for other values."""
    if not all(isinstance(digest, str) for digest in digests.values()):
        raise TypeError("the digest of a file of records is no text")
    return dict(digests)


def _round_of(folder: Path) -> int | None:
    """The round in the folder's name; None if it is not the name of a checkpoint."""
    match = NAME.fullmatch(folder.name)
    return int(match[1]) if match else None
