"""What may be said of a site's columns: nothing that only a few have, and not how many these are.

Rows are counted, or ids, where several rows belong to one: a column that many rows of one patient have is a column
that one has.
"""

from __future__ import annotations

import numpy as np

from ..inputs import Kind
from ..spec import Spec
from ..statistics.moments import Moments
from ..statistics.over_sites import columns_of
from .reader_result import ReaderResult

MOST_VALUES = 10
"""Different values of a column whose numbers could be computed from its mean and deviation."""


def ids_of(examples: ReaderResult) -> np.ndarray | None:
    """The number of the id of each row, from 0; None if each row counts."""
    return np.unique(examples.rows, axis=0, return_inverse=True)[1].ravel() if examples.has_ids else None


def said(moments: Moments, examples: ReaderResult, spec: Spec, least: int) -> Moments:
    """What may be said of these moments: nothing of a column, or of a category, that fewer than `least` have.

    If fewer than `least` lack a value, the count is said as that of all rows.
    """
    if least <= 1:
        return moments
    ids = ids_of(examples)
    ids = np.arange(len(examples.y)) if ids is None else ids
    columns = columns_of(examples.x, examples.y, spec)
    have, lack = np.array([_holders(column, ids) for column in columns], np.int64).reshape(-1, 2).T
    total = moments.count.max(initial=0.0) if spec.inputs.kind is not Kind.TABLE else float(len(ids))
    few = (lack > 0) & (lack < least) & (have > 0)
    count, mean, squares = moments.count.copy(), moments.mean.copy(), moments.squares.copy()
    squares[few] *= total / count[few]
    count[few] = total
    hidden = have < least
    if spec.inputs.kind is Kind.TABLE:
        hidden |= _few_of_a_value(np.stack(columns, axis=1), ids, spec, least)
    return Moments(*(np.where(hidden, 0.0, array) for array in (count, mean, squares)))


def _holders(column: np.ndarray, ids: np.ndarray) -> tuple[int, int]:
    """How many ids have a number in a column (n, ...), and how many lack one."""
    if column.dtype.kind != "f":
        return len(np.unique(ids)), 0
    nan = np.isnan(column.reshape(len(column), -1))
    return len(np.unique(ids[~nan.all(axis=1)])), len(np.unique(ids[nan.any(axis=1)]))


def _few_of_a_value(values: np.ndarray, ids: np.ndarray, spec: Spec, least: int) -> np.ndarray:
    """The columns of (n, columns) whose moments would say how many have a value that few have.

    Beside a category that few have, the next ones are hidden too, until the hidden ones have enough together:
    otherwise their number would follow from the others.
    """
    hidden, start = np.zeros(values.shape[1], bool), 0
    for column in spec.reading.parsed:
        block = slice(start, start + column.width)
        start += column.width
        if column.categories:
            hidden[block] = _hidden_categories(_holders_of_each(values[:, block] == 1, ids), least)
    for at in range(values.shape[1]):
        there = ~np.isnan(values[:, at])
        kinds, kind = np.unique(values[there, at], return_inverse=True)
        if 1 < len(kinds) <= MOST_VALUES:
            of_kind = kind[:, None] == np.arange(len(kinds))
            hidden[at] |= int(_holders_of_each(of_kind, ids[there]).sum(axis=0).min()) < least
    return hidden


def _holders_of_each(has: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Which id has which value, bool (ids, values), of rows that have it (n, values)."""
    held = np.zeros((int(ids.max(initial=-1)) + 1, has.shape[1]), bool)
    rows, values = np.nonzero(has)
    held[ids[rows], values] = True
    return held


def _hidden_categories(held: np.ndarray, least: int) -> np.ndarray:
    """Which categories are hidden, of those that each id has: bool (ids, categories)."""
    holders = held.sum(axis=0)
    hidden, together = np.zeros(len(holders), bool), np.zeros(len(held), bool)
    for at in np.argsort(holders, kind="stable"):
        if holders[at] >= least and (together.sum() >= least or not hidden.any()):
            break
        hidden[at], together = True, together | held[:, at]
    return hidden
