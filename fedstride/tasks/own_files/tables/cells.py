"""Cells of a table, which are text, as numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ...data_toml.dictionary import CATEGORY, NUMBER, TEXT, AllowedCells
from ...forms.columns import alike
from ...missing import ERROR, with_indicators
from ...reading import Reading
from ..checks import quoted
from .number_formats import no_number, short, with_point
from .rows import Rows

LARGEST = float(np.finfo(np.float32).max)
EMPTY = ("", "nan")
"""The text of a cell without a value, in lower case."""

Convert = Callable[[str], float]
"""The number of a cell, whose text has no blanks at its ends. Raises CellError for text that is not allowed."""


TASK_FILLS = ", or let the task replace such cells, as in task.missing=mean"
SITE_ALLOWS = ", or write empty = true of its column in the data file"
"""What else to do about an empty cell of an example."""


class CellError(Exception):
    """A cell that is not allowed: what it contains, and what is allowed."""


def inputs(
    rows: Rows, reading: Reading, said: Mapping[str, AllowedCells], *, may_be_unknown: bool = False
) -> np.ndarray:
    """The numbers of the examples, float32 (rows, width): one for a column of numbers, one for each category.

    Then one for each indicator of missing cells. `said`: what the site's data file says of its columns. Numbers of
    an empty cell that may be missing are NaN, and so are those of a category that is not known, if it may be
    unknown and missing: then the task alone decides which cells may be empty. Raises DataError, with file, line
    and column, for another empty cell, another category, and text that is not a number.
    """
    blocks = []
    for column in reading.parsed:
        may_be = reading.rules[column.name].fill != ERROR
        known = {name: float(index) for index, name in enumerate(column.categories)}
        convert = _one_of(known, "category") if known else within(number, said.get(column.name))
        convert = _or_missing(convert) if known and may_be and may_be_unknown else convert
        allowed = may_be_unknown or column.name not in said or said[column.name].empty
        then = SITE_ALLOWS if not allowed else "" if may_be_unknown else TASK_FILLS
        values = _values(rows, column.name, convert, may_be and allowed, then)[:, None]
        if known:
            values = np.where(np.isnan(values), np.nan, values == np.arange(len(known)))
        blocks.append(values)
    x = np.concatenate(blocks, axis=1).astype(np.float32)
    return with_indicators(x, reading.parsed, reading.rules)


def targets(
    rows: Rows, columns: Sequence[str], converts: Sequence[Convert], said: Mapping[str, AllowedCells]
) -> np.ndarray:
    """The targets, float64 (rows, columns), with one of `converts` for each column.

    Raises DataError, with file, line and column, as they say.
    """
    pairs = zip(columns, converts, strict=True)
    return np.stack(
        [_values(rows, column, within(convert, said.get(column)), False) for column, convert in pairs], axis=1
    )


def within(convert: Convert, said: AllowedCells | None) -> Convert:
    """The same conversion, for a column of which a site's data file says this."""
    if said is None or said.kind != NUMBER:
        return convert

    def converted(text: str) -> float:
        value = convert(text)
        if not said.allows(value):
            raise CellError(f"{quoted(text)} is not allowed: the data file of this site says {said}")
        return value

    return converted


def converter(said: AllowedCells) -> Convert:
    """What reads the cells of a column of which a site's data file says this; a text has the number 0."""
    if said.kind == TEXT:
        return _text
    if said.kind == CATEGORY:
        return _one_of({name: float(index) for index, name in enumerate(said.categories)}, "category")
    return within(number, said)


def unfit(rows: Rows, column: str, said: AllowedCells) -> Iterator[tuple[int, str]]:
    """The positions of cells that are not as a site's data file says, and why."""
    convert = converter(said)
    for position, cell in enumerate(rows.cells[column]):
        try:
            convert(cell.strip())
        except CellError as error:
            if not is_empty(cell):
                yield position, str(error)
            elif not said.empty:
                yield (
                    position,
                    "the cell is empty; fill it, delete the row, or write empty = true in the data file",
                )


def _text(text: str) -> float:
    if not text:
        raise CellError("the cell is empty")
    return 0.0


def is_empty(text: str) -> bool:
    """Whether a cell has no value."""
    return text.strip().lower() in EMPTY


def number(text: str) -> float:
    """A finite number within float32."""
    try:
        value = float(text)
    except ValueError:
        value = None
    if value is None or "_" in text:  # which Python allows in a number
        plain = with_point(text)
        if plain is None:
            raise CellError(no_number(text))
        value = float(plain)
    if not -LARGEST <= value <= LARGEST:  # also for NaN
        raise CellError(f"{quoted(text)} is not allowed: numbers must be finite in float32")
    return value


def label(text: str) -> float:
    """0 or 1."""
    if (value := number(text)) not in (0, 1):
        raise CellError(f"label {quoted(text)} is not allowed: it must be 0 or 1")
    return value


def duration(text: str) -> float:
    """A time until an event, or until a row was last seen: at least 0."""
    if (value := number(text)) < 0:
        raise CellError(f"time {quoted(text)} is not allowed: it must be at least 0, the time since the begin")
    return value


def class_of(names: Sequence[str], outputs: int) -> Convert:
    """The number of a class, from 0: of its name, or of the number itself if the classes have no names."""
    if names:
        return _one_of({name: float(index) for index, name in enumerate(names)}, "class")

    def convert(text: str) -> float:
        value = number(text)
        if not (0 <= value < outputs and value.is_integer()):
            raise CellError(
                f"class {quoted(text)} is not allowed: it must be a whole number from 0 to {outputs - 1}"
            )
        return value

    return convert


def _one_of(known: Mapping[str, float], what: str) -> Convert:
    numbers = {alike(name): value for name, value in known.items()}

    def convert(text: str) -> float:
        try:
            return numbers[alike(text)]
        except KeyError:
            allowed = quoted(", ".join(known), 200)
            words = " or ".join(f"{{ {short(text)} = {short(name)} }}" for name in _likely(text, list(known)))
            raise CellError(
                f"{what} {quoted(text)} is not allowed: it must be one of {allowed}; if it is another word for "
                f"one, say so of its column in the data file, as in words = {words}"
                + (f"; if it is no value, missing = [{short(text)}]" if what == "category" else "")
            ) from None

    return convert


def _likely(text: str, names: Sequence[str]) -> Sequence[str]:
    """Those of the names for which a text may stand, as examples: two, but of 0 and 1 false and true."""
    truth = {"0": "false", "1": "true"}.get(text)
    return [name for name in names if name.casefold() == truth] or names[:2]


def _or_missing(convert: Convert) -> Convert:
    def converted(text: str) -> float:
        try:
            return convert(text)
        except CellError:
            if is_empty(text):
                raise
            return float("nan")

    return converted


def _values(rows: Rows, column: str, convert: Convert, may_be_missing: bool, then: str = "") -> np.ndarray:
    """The numbers of a column. `then`: what else than filling them can be done about empty cells."""
    values = np.empty(len(rows))
    for position, cell in enumerate(rows.cells[column]):
        text = cell.strip()
        try:
            values[position] = convert(text)
        except CellError as error:
            if not is_empty(text):
                raise rows.error(position, column, str(error)) from None
            if not may_be_missing:
                raise rows.error(position, column, f"the cell is empty; fill it or delete the row{then}") from None
            values[position] = np.nan
    return values
