"""Brings `metrics.jsonl` and `clients.jsonl` back to the state of a checkpoint, as far as their lines verify."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedstride.errors import CheckpointError
from fedstride.files import atomic
from fedstride.files.chained_lines import ChainedLine, chained, digest_of

from ..file_names import CLIENTS, CSV, METRICS
from .checkpoint import FOLDER, Checkpoint
from .line_files import find_lines
from .row_values import Row
from .run_folder import free


@dataclass(frozen=True)
class Restored:
    """A file of records as it was when a checkpoint was written; `write` puts it in place."""

    path: Path
    rows: list[Row]
    fault: str | None  # what was damaged, and what happens with it
    copy: Path | None  # the second copy of the file, if it has one
    damaged: bool = False  # whether it is the file that has a fault; else rows were lost before

    def write(self) -> str:
        """Write the file and its copy; the digest of its last line. A damaged file is kept under another name.

        Raises OSError if the folder cannot be written.
        """
        if self.damaged and self.path.exists():
            atomic.write(_kept(self.path), self.path.read_bytes())
        lines = chained(self.rows)
        content = "".join(line + "\n" for line in lines).encode()
        for path in filter(None, (self.path, self.copy)):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            atomic.write(path, content)
        return digest_of(lines[-1]) if lines else ""


def copy_of_metrics(folder: Path) -> Path:
    """The second copy of `metrics.jsonl`, from which a damaged line is restored."""
    return folder / FOLDER / METRICS


def restored_metrics(folder: Path, checkpoint: Checkpoint) -> Restored:
    """The rows of the rounds up to the checkpoint. If both copies of a line are damaged, its round has no row.

    The row of the checkpoint's own round is in the checkpoint, too. Raises CheckpointError if the file cannot be
    read.
    """
    path, copy = folder / METRICS, copy_of_metrics(folder)
    whole, fault = _read(path, checkpoint, copy)
    rows = whole or _rest(_lines(path) | _lines(copy), checkpoint)
    if not rows or rows[-1]["round"] != checkpoint.server_round:
        rows = [*rows, dict(checkpoint.row)]
    lost = sorted(set(range(checkpoint.server_round)) - {row["round"] for row in rows})
    said = [] if fault is None else [fault]
    if lost:
        said.append(f"`best`, `target` and `patience` are decided without round {_ranges(lost)}")
        if fault is not None and (folder / CSV).exists():
            said.append(f"{CSV} is kept as {CSV}.before")
    return Restored(path, rows, "; ".join(said) or None, copy, fault is not None)


def restored_clients(folder: Path, checkpoint: Checkpoint) -> Restored:
    """The rows of clients in the rounds up to the checkpoint, without those whose lines are damaged.

    Nothing in a run depends on them. Raises CheckpointError if the file cannot be read.
    """
    path = folder / CLIENTS
    whole, fault = _read(path, checkpoint, None)
    rows = whole if whole is not None else _rest(_lines(path), checkpoint)
    return Restored(path, rows, fault, None, fault is not None)


def _read(path: Path, checkpoint: Checkpoint, copy: Path | None) -> tuple[list[Row] | None, str | None]:
    """The rows, if all lines up to the checkpoint verify, in the file or in its copy; and what is damaged."""
    try:
        reading = find_lines(path)
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read ({error.strerror}), so the run cannot be resumed; make it readable and "
            "writable, or move it away"
        ) from error
    last = checkpoint.records[path.name]
    rows = _followed({line.digest: line for line in reading.lines}, last)
    if rows is not None:  # damage after the checkpoint is in rounds that are repeated
        return rows, None
    fault = (
        reading.fault or f"{path} is damaged: " + ("its last lines are" if path.exists() else "it is") + " missing"
    )
    rows = None if copy is None else _followed(_lines(path) | _lines(copy), last)
    what = "the run continues without these lines" if rows is None else f"they are restored from {copy}"
    kept = f"; the damaged file is kept as {_kept(path).name}" if path.exists() else ""
    return rows, f"{fault}; {what}{kept}"


def _followed(lines: Mapping[str, ChainedLine], last: str) -> list[Row] | None:
    """The rows from the first one to the line with the digest `last`; None if one of them is missing."""
    rows = []
    while last:
        if last not in lines:
            return None
        rows.append(lines[last].row)
        last = lines[last].previous
    return rows[::-1]


def _rest(lines: Mapping[str, ChainedLine], checkpoint: Checkpoint) -> list[Row]:
    rows = (line.row for line in lines.values() if line.row["round"] <= checkpoint.server_round)
    return sorted(rows, key=lambda row: row["round"])


def _lines(path: Path) -> dict[str, ChainedLine]:
    try:
        return {line.digest: line for line in find_lines(path).lines}
    except OSError:  # an unreadable copy is as good as none
        return {}


def _kept(path: Path) -> Path:
    return free(path.with_name(f"{path.name}.damaged"))


def _ranges(numbers: Sequence[int]) -> str:
    """`3, 5-7` for 3, 5, 6, 7."""
    parts = []
    for _, pairs in itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        group = [number for _, number in pairs]
        parts.append(str(group[0]) if len(group) == 1 else f"{group[0]}-{group[-1]}")
    return ", ".join(parts)
