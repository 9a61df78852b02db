"""Examples on which an exported model is compared with our own predictions: made for the run's task, or a user's.

An example is in the form that `WholeNetwork` takes; for a table, `cells` has it as a table with the words of
categories.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedstride.errors import DataError
from fedstride.tasks.forms.columns import Column
from fedstride.tasks.inputs import Kind
from fedstride.tasks.missing import ERROR
from fedstride.tasks.own_files import unlabelled
from fedstride.tasks.spec import Spec

from .network_with_preparation import columns_of

COUNT = 1000
"""Examples that are made."""

MISSING = 0.1
"""The share of missing cells, and that of categories that the task does not know, if it has missing cells."""


class Compared(NamedTuple):
    """Examples as `WholeNetwork` takes them, and in the stored form of the task."""

    x: np.ndarray
    stored: np.ndarray
    what: str


def made(spec: Spec) -> Compared:
    """`COUNT` examples of this task, always the same: with missing cells and unknown categories if allowed."""
    rng = np.random.default_rng(0)
    what = f"{COUNT} made examples"
    columns = columns_of(spec)
    if columns:
        x = _table(spec, columns, rng)
        names = [column.name for column in columns]
        rows = zip(*cells(x, columns).values(), strict=True)
        also = ", missing cells and unknown categories among them" if spec.reading.may_be_missing else ""
        return Compared(x, unlabelled.of_frame(names, rows, spec).x, what.replace("examples", "rows") + also)
    shape = (COUNT, *spec.inputs.shape)
    if spec.inputs.kind is Kind.TOKENS:
        x = rng.integers(1, spec.inputs.vocabulary, shape)
        x[np.arange(shape[1]) >= rng.integers(0, shape[1] + 1, COUNT)[:, None]] = 0  # texts of all lengths
        return Compared(x, x, what)
    if spec.inputs.kind is Kind.IMAGE and spec.scale > 1:
        x = rng.integers(0, 256, shape, dtype=np.uint8)
        return Compared(x, x, what)
    x = spec.scale * (_channel(spec.mean, spec, 0.0) + _channel(spec.std, spec, 1.0) * rng.normal(size=shape))
    x = x.astype(np.float32)
    if spec.reading.may_be_missing:
        x[rng.random(shape) < MISSING] = np.nan
    return Compared(x, x, what)


def read(source: Path, spec: Spec) -> Compared:
    """The examples of a user's file or folder. Raises DataError, as `fedstride predict` does."""
    examples = unlabelled.read(source, spec).x
    what = f"{len(examples)} examples of {source}"
    columns = columns_of(spec)
    if not columns:
        x = examples.astype(np.int64) if spec.inputs.kind is Kind.TOKENS else examples
        return Compared(x, examples, what)
    cells_of, start = [], 0
    for column in columns:
        block = examples[:, start : start + column.width]
        start += column.width
        missing = np.isnan(block).any(1)
        numbers = block.argmax(1).astype(np.float32) if column.categories else block[:, 0]
        cells_of.append(np.where(missing, np.nan, numbers))
    return Compared(np.stack(cells_of, 1).astype(np.float32), examples, what)


def as_bytes(x: np.ndarray) -> np.ndarray:
    """Images as bytes. Raises DataError if they are others."""
    images = x.astype(np.uint8)
    if not np.array_equal(images, x):
        raise DataError(
            "the images have values that are no whole numbers from 0 to 255: export the model with --floats"
        )
    return images


def cells(x: np.ndarray, columns: Sequence[Column]) -> dict[str, list[float] | list[str]]:
    """The cells of a table by column: numbers (NaN: missing), and words of categories (empty: missing)."""
    return {
        column.name: [_word(column, value) for value in values] if column.categories else values
        for column, values in zip(columns, x.T.tolist(), strict=True)
    }


def _word(column: Column, value: float) -> str:
    if value != value:
        return ""
    return column.categories[int(value)] if value < len(column.categories) else unknown_of(column)


def unknown_of(column: Column) -> str:
    """A word that is none of the column's categories."""
    return f"no {'/'.join(column.categories)}"


def _table(spec: Spec, columns: Sequence[Column], rng: np.random.Generator) -> np.ndarray:
    """Numbers about the means of columns, and places of categories; the one after the last is unknown."""
    arrays, start = [], 0
    for column in columns:
        may_be_missing = spec.reading.rules[column.name].fill != ERROR
        if column.categories:
            drawn = rng.integers(0, len(column.categories), COUNT).astype(np.float64)
            if may_be_missing:
                drawn[rng.random(COUNT) < MISSING] = len(column.categories)
        else:
            mean, std = (spec.mean[start], spec.std[start]) if spec.mean else (0.0, 1.0)
            drawn = rng.normal(mean, std, COUNT)
        if may_be_missing:
            drawn[rng.random(COUNT) < MISSING] = np.nan
        arrays.append(drawn)
        start += column.width
    return np.stack(arrays, 1).astype(np.float32)


def _channel(values: Sequence[float], spec: Spec, default: float) -> np.ndarray:
    """Mean or deviation in a shape that fits a batch."""
    from fedstride.tasks.forms.preparation import COLUMN

    return np.asarray(values or (default,)).reshape(COLUMN[spec.inputs.kind] if values else (1,))
