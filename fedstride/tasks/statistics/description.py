"""What a site says of its data before a run: its form in a message, what of a column may be said, and its check.

Of each column a site says how many of its rows lack a value that can be used (none, fewer than `least`, or how
many), and how the others are distributed: bins with at least `least` rows each (`round_bins.py`), or the counts of
categories. Let n be the rows, g those without a usable value, and c_j the counts of the others, which are n - g.

- 0 < g < least is not said. The counts are then c_j n / (n - g), rounded to whole numbers whose sum is n, so that
  g does not follow from them. 0 < n - g < least is not said either: the column then has no values.
- A category with c_j < least is said as BELOW. If all of these together have fewer than `least` rows, the smallest
  of the others joins them, as BESIDE, until they have as many; of all of them only the sum follows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from ...errors import ReplyError
from ..forms.columns import parsed
from ..inputs import Kind
from ..spec import Spec, Target
from .over_sites import names
from .round_bins import MOST, bins_of

MIN_ROWS: Final = 20
"""The smallest number of rows of which something is said, unless a node's policy has another one."""

BELOW, BESIDE = -1, -2
"""In place of a number: fewer than `least` rows; and not said, so that those fewer do not follow from it."""

NOT_SAID = -1.0
"""In place of a standard deviation; the mean is then 0."""

PRESENT, LACKS, OTHER = 0, 1, 2
"""The site has the column; it has none of this name; its cells are other ones than the message says."""

MOST_ROWS = 1e12
MOST_COLUMNS = 1000
MOST_UNNAMED = 100_000
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class DescribedColumn:
    """A column of which a site says something: one of numbers, or of categories if it has some.

    `binned`: whether its distribution is said; of channels of images and signals it is not.
    """

    name: str
    categories: tuple[str, ...] = ()
    predicted: bool = False
    binned: bool = True


def asked_of(spec: Spec) -> list[DescribedColumn]:
    """The columns of a task in the order in which a site describes them: inputs, then what is predicted."""
    inputs: list[DescribedColumn] = []
    if spec.inputs.kind is Kind.TABLE:
        columns = parsed(spec.reading.columns)
        count = spec.inputs.shape[0]
        plain = names(spec)[:count]
        inputs = [DescribedColumn(column.name, column.categories) for column in columns] or [
            DescribedColumn(name) for name in plain
        ]
    elif spec.inputs.kind is not Kind.TOKENS:
        count = spec.inputs.shape[0 if spec.inputs.kind in (Kind.IMAGE, Kind.SIGNAL) else -1]
        inputs = [DescribedColumn(f"channel {at}", binned=False) for at in range(count)]
    return [*inputs, *_predicted(spec)]


def _predicted(spec: Spec) -> list[DescribedColumn]:
    if spec.target is Target.CLASS:
        classes = spec.names or tuple(map(str, range(spec.outputs)))
        return [DescribedColumn(spec.reading.targets[0] if spec.reading.targets else "class", classes, True)]
    if spec.target is Target.SURVIVAL:
        time, event = spec.reading.targets
        return [DescribedColumn(time, (), True), DescribedColumn(event, ("0", "1"), True)]
    given = spec.names or spec.reading.targets
    outputs = given if len(given) == spec.outputs else [str(at) for at in range(spec.outputs)]
    kinds = ("0", "1") if spec.target is Target.LABELS else ()
    return [DescribedColumn(name, kinds, True) for name in outputs]


@dataclass(frozen=True)
class Told:
    """What a site says of a column.

    `missing`: rows without a usable value: 0, BELOW, or their number. `unknown`: categories in the file that the
    message does not name: 0, BELOW if few rows have them, or their number. `counts`: of the bins between `edges`,
    or of each category; none if the column has too few values.
    """

    state: int = PRESENT
    missing: int = 0
    unknown: int = 0
    mean: float = 0.0
    std: float = NOT_SAID
    edges: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def present(self) -> int:
        """The rows of which the counts are, of a column of numbers."""
        return sum(self.counts)


@dataclass(frozen=True)
class Description:
    """What a site says: that it has fewer than `min_rows` rows, or the rest.

    `readable`: whether a run can read the table and all of its cells. `unnamed`: columns of the site that the
    message does not name.
    """

    min_rows: int
    few: bool = False
    rows: int = 0
    readable: bool = True
    unnamed: int = 0
    columns: tuple[Told, ...] = ()

    def flatten(self) -> dict[str, Any]:
        """As plain values of a message, which has no empty lists."""
        flat: dict[str, Any] = {"min_rows": self.min_rows, "few": self.few}
        if not self.few:
            flat |= {"rows": self.rows, "readable": self.readable, "unnamed": self.unnamed}
            for name in ("state", "missing", "unknown", "mean", "std"):
                flat[name] = [getattr(column, name) for column in self.columns]
            flat["sizes"] = [len(column.counts) for column in self.columns]
            flat["edges"] = [edge for column in self.columns for edge in column.edges]
            flat["counts"] = [count for column in self.columns for count in column.counts]
        return {f"description.{name}": value for name, value in flat.items() if value != []}

    @classmethod
    def unflatten(cls, record: Mapping[str, Any], asked: Sequence[DescribedColumn]) -> Description:
        """What `flatten` converted, of these columns. Raises ReplyError for anything else."""
        try:
            return _Reading(record).of(asked)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ReplyError(f"what it says of its data cannot be used: {reason}") from None


class _Reading:
    """Reads a record that anyone may have written. Raises KeyError, TypeError and ValueError."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record = record

    def of(self, asked: Sequence[DescribedColumn]) -> Description:
        least = self._whole("min_rows", self._record["description.min_rows"], 1, MOST_ROWS)
        if self._switch("few"):
            return Description(least, few=True)
        rows = self._whole("rows", self._record["description.rows"], least, MOST_ROWS)
        unnamed = self._whole("unnamed", self._record["description.unnamed"], 0, MOST_UNNAMED)
        count = len(asked)
        sizes = self._wholes("sizes", count, 0, max([MOST + 1, *(len(column.categories) for column in asked)]))
        widths = [
            max(size - 1, 0) if not column.categories else 0 for column, size in zip(asked, sizes, strict=True)
        ]
        edges = self._floats("edges", sum(widths), -LARGEST, LARGEST)
        counts = self._wholes("counts", sum(sizes), BESIDE, MOST_ROWS)
        by_column = zip(
            self._wholes("state", count, PRESENT, OTHER),
            self._wholes("missing", count, BELOW, rows),
            self._wholes("unknown", count, BELOW, MOST_ROWS),
            self._floats("mean", count, -LARGEST, LARGEST),
            self._floats("std", count, NOT_SAID, 2 * LARGEST),
            _cut(edges, widths),
            _cut(counts, sizes),
            strict=True,
        )
        told = tuple(Told(*one) for one in by_column)
        for one, column in zip(told, asked, strict=True):
            _check(one, column, rows, least)
        return Description(least, False, rows, self._switch("readable"), unnamed, told)

    def _switch(self, name: str) -> bool:
        value = self._record[f"description.{name}"]
        if type(value) is not bool:
            raise ValueError(f"{name} is not true or false")
        return value

    def _whole(self, name: str, value: Any, least: float, most: float) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"{name} is not a whole number from {least:g} to {most:g}")
        return value

    def _list(self, name: str, length: int) -> list[Any]:
        values = self._record.get(f"description.{name}", [])
        if not isinstance(values, list) or len(values) != length:
            raise ValueError(f"{name} is not a list of {length} values")
        return values

    def _wholes(self, name: str, length: int, least: float, most: float) -> list[int]:
        return [self._whole(name, value, least, most) for value in self._list(name, length)]

    def _floats(self, name: str, length: int, least: float, most: float) -> list[float]:
        values = self._list(name, length)
        if not all(type(value) is float and least <= value <= most for value in values):  # also refuses NaN
            raise ValueError(f"{name} has a value that is not a number from {least:g} to {most:g}")
        return values


def _cut(values: list[Any], sizes: Sequence[int]) -> list[tuple[Any, ...]]:
    ends = np.cumsum(sizes).tolist()
    return [tuple(values[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


def _check(told: Told, column: DescribedColumn, rows: int, least: int) -> None:
    """Raise ValueError for counts that cannot be those of such a column."""
    what = f"column {column.name[:60]!r}"
    if told.counts and column.categories and len(told.counts) != len(column.categories):
        raise ValueError(f"{what} has {len(column.categories)} categories, and {len(told.counts)} counts")
    if any(count < least and (count >= 0 or not column.categories) for count in told.counts):
        raise ValueError(f"{what} has a count below {least}")
    if not all(one < other for one, other in pairwise(told.edges)):
        raise ValueError(f"{what} has edges that do not ascend")
    if sum(max(count, 0) for count in told.counts) > rows:
        raise ValueError(f"{what} has more values than rows")
    if told.std < 0 and told.std != NOT_SAID:
        raise ValueError(f"{what} has a negative deviation")
    if told.state != PRESENT and (told.counts or told.missing or told.unknown or told.std != NOT_SAID):
        raise ValueError(f"{what} is not there, and has values")


# ---------------------------------------------------------------- what may be said


def of_numbers(values: np.ndarray, least: int) -> Told:
    """What may be said of numbers, float (n,), NaN where a cell cannot be used; without their moments."""
    present = np.asarray(values, np.float64)
    present = present[~np.isnan(present)]
    missing, total = _missing(len(values), len(present), least)
    if not total:
        return Told(missing=missing)
    edges, counts = bins_of(present, least)
    return Told(missing=missing, edges=tuple(edges), counts=tuple(scaled(counts, total)))


def of_categories(places: np.ndarray, categories: int, least: int) -> Told:
    """What may be said of a column of categories: the number of each row's, from 0; -1 where there is none."""
    present = places[places >= 0]
    missing, total = _missing(len(places), len(present), least)
    if not total:
        return Told(missing=missing)
    counts = np.bincount(present, minlength=categories).tolist()
    pairs = zip(withheld(counts, least), scaled(counts, total), strict=True)
    return Told(missing=missing, counts=tuple(said if said < 0 else count for said, count in pairs))


def _missing(rows: int, present: int, least: int) -> tuple[int, int]:
    """What is said of the rows without a value, and of how many rows the counts are; 0: they are not said."""
    gone = rows - present
    if present < least:
        return rows, 0
    if 0 < gone < least:
        return BELOW, rows
    return gone, present


def scaled(counts: Sequence[int], total: int) -> list[int]:
    """The counts in the same shares, as whole numbers whose sum is `total`; none becomes smaller.

    `total` is at least their sum. What rounding leaves goes to the largest remainders, the first ones of equal.
    """
    before = sum(counts)
    whole = [count * total // before for count in counts]
    rest = [count * total % before for count in counts]
    order = sorted(range(len(counts)), key=lambda at: -rest[at])
    for at in order[: total - sum(whole)]:
        whole[at] += 1
    return whole


def of_other_rows(told: Told, before: int, rows: int, least: int) -> Told:
    """What was said of a column of `before` rows, as what is said of one of so many `rows`.

    Only what was said decides, and not the values. The counts stay where `least` rows or more, or none, are then
    without a value. Otherwise all rows have one as far as is said: the counts grow in the same shares, or the
    largest one shrinks. A column that cannot have so few rows has no counts.
    """
    if before == rows or told.state != PRESENT:
        return told
    if not told.counts:
        return Told(missing=rows)
    hides = any(count < 0 for count in told.counts)
    total = before - max(told.missing, 0) if hides else told.present
    if rows - total >= least or rows == total:
        return replace(told, missing=rows - total)
    counts = list(told.counts)
    if rows > total:
        counts = counts if hides else scaled(counts, rows)
    for _ in range(total - rows):
        at = counts.index(max(counts))
        if counts[at] <= least:
            return Told(missing=rows)
        counts[at] -= 1
    return replace(told, missing=BELOW if told.missing else 0, counts=tuple(counts))


def withheld(counts: Sequence[int], least: int) -> list[int]:
    """The counts of categories, with BELOW and BESIDE in place of those that are not said."""
    shown = [count if count >= least else BELOW for count in counts]
    together = sum(count for count, said in zip(counts, shown, strict=True) if said == BELOW)
    for at in sorted(range(len(counts)), key=lambda at: counts[at]):
        if not 0 < together < least:
            break
        if shown[at] != BELOW:
            shown[at], together = BESIDE, together + counts[at]
    return shown


def to_json(told: Told) -> dict[str, Any]:
    """As values of JSON."""
    return {field.name: getattr(told, field.name) for field in fields(told)}


def from_json(values: Mapping[str, Any]) -> Told:
    """What `to_json` converted."""
    return Told(**{**values, "edges": tuple(values["edges"]), "counts": tuple(values["counts"])})


def near(values: Told, share: float) -> tuple[float, float] | None:
    """The edge with a share of the values below it that is nearest to this one, and that share; None: no edge."""
    if not values.edges:
        return None
    upto = np.cumsum(values.counts)[:-1] / values.present
    at = int(np.argmin(np.abs(upto - share)))
    return values.edges[at], float(upto[at]) if math.isfinite(upto[at]) else share
