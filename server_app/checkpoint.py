"""Checkpoints: all that a run needs to go on, whole or not at all.

Knows files, digests and renames; does not know what the state means. A checkpoint is a folder
`checkpoint/round-NNNNNN` with `model.safetensors`, `strategy.safetensors` and `state.json`, which holds
the digests of the other two. It is written beside, synced, and renamed; the newest two stay.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedstride.arrays import Arrays
from fedstride.errors import CheckpointError

FORMAT = 2
KEPT = 2
FOLDER = "checkpoint"


@dataclass(frozen=True)
class Checkpoint:
    """A run after a round: enough to go on with the bits of an unbroken run."""

    server_round: int
    model: Arrays  # the model that stands
    strategy: Mapping[str, Any]  # the strategy's state_dict: arrays, numbers, strings
    accepted: Mapping[int, int]  # the last round whose reply was accepted, by client id
    run: str  # the run's id, under which clients keep their states
    config: str  # digest of the configuration that it belongs to


def write_checkpoint(run_folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint of the run and drop all but the newest two; its folder.

    Raises OSError where it cannot be written; what was there before stays.
    """
    parent = run_folder / FOLDER
    parent.mkdir(mode=0o700, exist_ok=True)  # with privacy, the state holds the secret of the noise
    folder = parent / f"round-{checkpoint.server_round:06d}"
    temporary = parent / f".{folder.name}.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        _fill(temporary, checkpoint)
        _sync_folder(temporary)
        if folder.exists():  # a resumed run writes this round again
            shutil.rmtree(folder)
        temporary.rename(folder)
        _sync_folder(parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    for old in _folders(run_folder)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def newest_checkpoint(run_folder: Path) -> tuple[Checkpoint, list[str]]:
    """The newest checkpoint that is whole, and a line for each newer one that is not.

    Raises CheckpointError where there is none.
    """
    faults: list[str] = []
    for folder in _folders(run_folder):
        try:
            return read_checkpoint(folder), faults
        except CheckpointError as error:
            faults.append(str(error))
    told = f" ({'; '.join(faults)})" if faults else ""
    raise CheckpointError(
        f"{run_folder} has no usable checkpoint{told}: start the run again, with checkpoint_every of at least 1"
    )


def retained(run_folder: Path) -> list[Checkpoint]:
    """The whole checkpoints that a run has, newest first."""
    found = []
    for folder in _folders(run_folder):
        with contextlib.suppress(CheckpointError):
            found.append(read_checkpoint(folder))
    return found


def read_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint in a folder. Raises CheckpointError where it is torn, foreign or of another format."""
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        if state.get("format") != FORMAT:
            raise CheckpointError(f"{folder} is of format {state.get('format')!r}, this version reads {FORMAT}")
        files = {name: (folder / name).read_bytes() for name in ("model.safetensors", "strategy.safetensors")}
        for name, content in files.items():
            if hashlib.sha256(content).hexdigest() != state["sha256"][name]:
                raise CheckpointError(f"{folder / name} is torn: its digest is not the one in state.json")
        return Checkpoint(
            server_round=int(state["round"]),
            model=_ordered(files["model.safetensors"], state["order"]["model"]),
            strategy=state["strategy"] | _ordered(files["strategy.safetensors"], state["order"]["strategy"]),
            accepted={int(client): int(number) for client, number in state["accepted"].items()},
            run=str(state["run"]),
            config=state["config"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise CheckpointError(f"{folder} is no whole checkpoint: {type(error).__name__}: {error}") from error


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
        # safetensors sorts; sums run in model order, so the order is part of the bits.
        "order": {"model": list(checkpoint.model), "strategy": list(arrays)},
        "strategy": {k: v for k, v in checkpoint.strategy.items() if k not in arrays},
        "accepted": {str(client): number for client, number in checkpoint.accepted.items()},
        "run": checkpoint.run,
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    for name, content in {**files, "state.json": json.dumps(state).encode()}.items():
        with (folder / name).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def _contiguous(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(array, order="C") for name, array in arrays.items()}  # keeps shape ()


def _ordered(content: bytes, order: list[str]) -> Arrays:
    arrays = load(content)
    return {name: arrays[name] for name in order}


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _folders(run_folder: Path) -> list[Path]:
    """Whole checkpoints by name, newest first; what a killed writer left has a name with a dot."""
    return sorted((run_folder / FOLDER).glob("round-[0-9]*"), reverse=True)
