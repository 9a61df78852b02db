"""The values of each column that a site describes, and what may be said of them without their moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..forms.columns import alike
from ..spec import Spec, Target
from ..statistics.description import PRESENT, DescribedColumn, Told, asked_of, of_categories, of_numbers
from .reader_result import ReaderResult
from .tables.counted_faults import Seen


def of_rows(examples: ReaderResult, spec: Spec) -> tuple[int, list[np.ndarray | None]]:
    """The number of rows, and the values of each column (`_values`). Of an id, one row counts."""
    first = (
        np.unique(examples.rows, axis=0, return_index=True)[1] if examples.has_ids else np.arange(len(examples.y))
    )
    return len(first), _values(examples.x[first], examples.y[first], spec)


def answers(examples: ReaderResult, spec: Spec, seen: Sequence[Seen], least: int) -> tuple[int, list[Told]]:
    """The number of rows, and what may be said of each column."""
    rows, values = of_rows(examples, spec)
    return rows, [told(column, array, least) for column, array in zip(seen, values, strict=True)]


def told(seen: Seen, values: np.ndarray | None, least: int) -> Told:
    """What may be said of these values of a column; None: nothing but whether the column is there."""
    if seen.state != PRESENT or values is None:
        return Told(seen.state)
    if not seen.asked.categories:
        return of_numbers(values, least)
    order = _order(seen.asked)
    ranks = np.append(np.argsort(order), -1)  # the last one for rows without a category
    said = of_categories(ranks[values], len(order), least)
    return replace(said, counts=tuple(said.counts[ranks[at]] for at in range(len(order))) if said.counts else ())


def _order(asked: DescribedColumn) -> np.ndarray:
    """The categories in an order of their own, so that which counts are not said does not depend on a message."""
    return np.array(sorted(range(len(asked.categories)), key=lambda at: alike(asked.categories[at])), np.int64)


def _values(x: np.ndarray, y: np.ndarray, spec: Spec) -> list[np.ndarray | None]:
    """The values of each column of `asked_of`: float (n,), or the numbers of categories, -1 where none is."""
    inputs, start = [column for column in asked_of(spec) if not column.predicted], 0
    values: list[np.ndarray | None] = []
    for column in inputs:
        block = x[:, start : start + (len(column.categories) or 1)] if column.binned else None
        start += len(column.categories) or 1
        if block is None:
            values.append(None)
        elif column.categories:
            values.append(np.where((block == 1).any(axis=1), np.argmax(block == 1, axis=1), -1))
        else:
            values.append(block[:, 0].astype(np.float64))
    if spec.target is Target.CLASS:
        return [*values, y.astype(np.int64)]
    if spec.target is Target.LABELS:
        return [*values, *np.where(y > 1, -1, y.astype(np.int64)).T]
    if spec.target is Target.SURVIVAL:
        return [*values, y[:, 0].astype(np.float64), np.nan_to_num(y[:, 1], nan=-1).astype(np.int64)]
    return [*values, *y.astype(np.float64).T]
