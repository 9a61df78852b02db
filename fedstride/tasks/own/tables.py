"""A table with one example in each row: numbers and categories, or texts, and what is to be predicted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ...errors import ConfigError, DataError
from ..columns import Column, parsed, width
from ..inputs import Kind
from ..spec import Spec, Target
from ..tokens import tokens
from . import cells, csvs, parquets
from .checks import stored_targets
from .rows import Rows

KINDS = (Kind.TABLE, Kind.TOKENS)
"""The kinds of examples that are rows of a table."""

SUFFIXES = (*csvs.SUFFIXES, *parquets.SUFFIXES)


def read(path: Path, spec: Spec) -> tuple[np.ndarray, np.ndarray]:
    """Stored examples and targets of the rows; other columns than those of the task are ignored.

    Raises DataError, with the file and where possible line and column, for data that do not fit the task, and
    ConfigError if the task does not name its columns.
    """
    columns = _columns(spec)
    inputs = [column.name for column in columns] or list(spec.reading.texts)
    wanted = list(dict.fromkeys([*inputs, *_targets(spec)]))
    reader = parquets.read if path.name.lower().endswith(parquets.SUFFIXES) else csvs.read
    parts = list(_converted(reader(path, wanted), columns, spec))
    if not parts:
        raise DataError(f"{path} contains no examples: it has no rows")
    x, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    if spec.target is Target.CLASS:
        y = y[:, 0].astype(np.int64)
    return x, stored_targets(y, len(x), spec, str(path))


def _columns(spec: Spec) -> list[Column]:
    """The columns of numbers and categories; none for texts."""
    if spec.inputs.kind is Kind.TOKENS:
        return []
    columns = parsed(spec.reading.columns)
    if not columns:
        raise ConfigError("the task does not name the columns of a table, so this node needs an .npz file")
    if (width(columns),) != spec.inputs.shape:
        raise ConfigError(
            f"the task's columns give {width(columns)} numbers, but its examples have {spec.inputs.shape[0]}"
        )
    return columns


def _targets(spec: Spec) -> tuple[str, ...]:
    """The columns of the targets."""
    names = spec.reading.targets
    needed = 1 if spec.target is Target.CLASS else spec.outputs
    if len(names) != needed:
        raise ConfigError(f"the task names {len(names)} columns of targets, but needs {needed}")
    return names


def _converted(
    chunks: Iterator[Rows], columns: list[Column], spec: Spec
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The examples and targets of each chunk of rows."""
    convert = {
        Target.CLASS: cells.class_of(spec.names, spec.outputs),
        Target.LABELS: cells.label,
        Target.VALUES: cells.number,
    }[spec.target]
    missing = spec.reading.missing == "mean"
    for rows in chunks:
        x = cells.inputs(rows, columns, may_be_missing=missing) if columns else _tokens(rows, spec)
        yield x, cells.targets(rows, spec.reading.targets, convert)


def _tokens(rows: Rows, spec: Spec) -> np.ndarray:
    texts = [" ".join(parts) for parts in zip(*(rows.cells[name] for name in spec.reading.texts), strict=True)]
    for position, text in enumerate(texts):
        if not text.strip():
            raise rows.error(position, spec.reading.texts[0], "the text is empty; fill it or delete the row")
    return tokens(texts, spec.inputs.shape[0], spec.inputs.vocabulary)
