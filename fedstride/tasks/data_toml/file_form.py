"""How a site's table is written: separators, dates, names and words of its own. Read from its `data.toml`.

[file]
format = "csv"                      # whatever the name of the file ends with
separator = ";"
decimal = ","                       # 1,5 is one and a half; thousands = "." for 1.234,5
encoding = "latin-1"
header = ["Alter", "Sex", "CRP"]    # of a file whose first row is already an example
missing = ["?", "-9"]               # cells that are empty

[columns]
age = { from = "Alter", least = 0, most = 120 }
sex = { categories = ["female", "male"], words = { w = "female", m = "male" } }
weight = { unit = "kg" }             # cells as 80 kg
crp = { factor = 10 }               # mg/dL in the file, mg/L in the task: cell * factor + offset
visit = { date = "%d.%m.%Y", days_since = "2020-01-01" }
born = { date = "%Y-%m-%d", years_until = "2026-01-01" }
chol = { missing = ["0"], empty = true }                 # a 0 in this column is no value
smoker = { categories = ["yes", "no"], absent = true }   # this site has no such column: all its cells are empty
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from ...plain_numbers import is_number

CSV, COMMA, POINT = "csv", ",", "."

KEYS = ("format", "separator", "decimal", "thousands", "encoding", "header", "missing")
"""Of [file]."""

OF_TEXT = ("separator", "encoding", "header")
"""Those of a file that is text."""

OF_COLUMNS = (
    "from",
    "words",
    "unit",
    "factor",
    "offset",
    "date",
    "days_since",
    "years_until",
    "missing",
    "absent",
)
"""Keys of a column that say how its cells are written; all others say what they may be."""

NO_UNIT = (*"0123456789+-.,", "")
"""A unit does not begin so."""

YEAR = 365.2425
"""Days, on average in the Gregorian calendar."""


@dataclass(frozen=True)
class ColumnInFile:
    """How the cells of one column are written in the file."""

    name: str = ""  # of the column in the file; empty: the same
    words: tuple[tuple[str, str], ...] = ()  # (in the file, in the task)
    factor: float = 1.0
    offset: float = 0.0
    date: str = ""  # a format of strptime; empty: no dates
    since: str = ""  # as in 2020-01-01: a date becomes the days since this one
    until: str = ""  # a date becomes the years until this one
    missing: tuple[str, ...] = ()  # cells of this column that are empty
    absent: bool = False
    unit: str = ""  # what may stand behind a number of this column

    @property
    def is_scaled(self) -> bool:
        """Whether its numbers are converted to another unit."""
        return (self.factor, self.offset) != (1.0, 0.0)


@dataclass(frozen=True)
class FileForm:
    """How a table is written; the default is a CSV file in UTF-8 with commas, decimal points and a header."""

    is_csv: bool = False  # whatever the name of the file ends with
    separator: str = COMMA
    decimal: str = POINT
    thousands: str = ""
    encoding: str = "utf-8-sig"
    header: tuple[str, ...] = ()  # empty: the first row
    missing: tuple[str, ...] = ()
    columns: Mapping[str, ColumnInFile] = field(default_factory=dict)  # by the task's name; those that differ

    def of(self, column: str) -> ColumnInFile:
        """How the cells of a column are written."""
        return self.columns.get(column, _SAME)

    @classmethod
    def of_plain(cls, values: Mapping[str, Any]) -> FileForm:
        """What `dataclasses.asdict` made, perhaps after JSON."""
        columns = {
            name: ColumnInFile(
                **{**column, "words": tuple(map(tuple, column["words"])), "missing": tuple(column["missing"])}
            )
            for name, column in values["columns"].items()
        }
        return cls(
            **{
                **values,
                "header": tuple(values["header"]),
                "missing": tuple(values["missing"]),
                "columns": columns,
            }
        )


_SAME = ColumnInFile()


# ---------------------------------------------------------------- reading it


def read_form(said: object, columns: Mapping[str, object]) -> FileForm:
    """The form that `[file]` says (None: nothing) and that the columns say. Raises ValueError for what cannot be.

    `columns`: by name, what [columns] says of each.
    """
    given = {} if said is None else said
    if not isinstance(given, dict):
        raise ValueError('[file] must be a table, as in [file] and separator = ";" in the next line')
    for key in given:
        if key not in KEYS:
            raise ValueError(f"[file]: {key[:60]!r} is not a key; allowed are {', '.join(KEYS)}")
    separator = _character(given, "separator", COMMA)
    decimal = _character(given, "decimal", POINT)
    thousands = _character(given, "thousands", "")
    if decimal not in (COMMA, POINT):
        raise ValueError(f'[file]: decimal = {decimal!r} is not allowed: it must be "," or "."')
    if thousands == decimal:
        raise ValueError(f"[file]: thousands and decimal are both {decimal!r}; they must be different")
    kind = given.get("format", "")
    if kind not in ("", CSV):
        raise ValueError(f'[file]: format = {kind!r} is not allowed: it can only be "{CSV}"')
    return FileForm(
        kind == CSV,
        separator,
        decimal,
        thousands,
        _encoding(given),
        _texts(given, "header"),
        _texts(given, "missing"),
        {name: origin for name, column in columns.items() if (origin := _origin(name, column)) != _SAME},
    )


def without_form(said: object) -> object:
    """What a column may be, without how it is written; `"number"` if nothing is left."""
    if not isinstance(said, dict):
        return said
    rest = {key: value for key, value in said.items() if key not in OF_COLUMNS}
    if said.get("absent") is True:
        rest["empty"] = True
    return rest or "number"


def _origin(name: str, said: object) -> ColumnInFile:
    given = {key: value for key, value in said.items() if key in OF_COLUMNS} if isinstance(said, dict) else {}
    try:
        return _checked(given) if given else _SAME
    except ValueError as error:
        raise ValueError(f"column {name!r}: {error}") from None


def _checked(given: Mapping[str, Any]) -> ColumnInFile:
    absent = given.get("absent", False)
    if not isinstance(absent, bool):
        raise ValueError(f"absent = {absent!r} must be true or false")
    if absent and len(given) > 1:
        raise ValueError("absent = true excludes all that says how its cells are written")
    name = given.get("from", "")
    if not isinstance(name, str) or ("from" in given and not name.strip()):
        raise ValueError(f"from = {name!r} must be the name of a column in the file")
    words = given.get("words", {})
    if not isinstance(words, dict) or not all(isinstance(word, str) for word in words.values()):
        raise ValueError('words must be a table of texts, as in { w = "female", m = "male" }')
    factor, offset = (_number(given, key, usual) for key, usual in (("factor", 1.0), ("offset", 0.0)))
    if factor == 0.0:
        raise ValueError("factor = 0 is not allowed: all cells would be the same number")
    missing = _texts(given, "missing", "")
    return ColumnInFile(
        name.strip(), tuple(words.items()), factor, offset, *_dates(given), missing, absent, _unit(given)
    )


def _unit(given: Mapping[str, Any]) -> str:
    unit = given.get("unit", "")
    if not isinstance(unit, str) or ("unit" in given and unit.strip()[:1] in NO_UNIT):
        raise ValueError(f'unit = {unit!r} must be what stands behind its numbers, as in "kg" or "%"')
    return unit.strip()


def _dates(given: Mapping[str, Any]) -> tuple[str, str, str]:
    form, since, until = (given.get(key, "") for key in ("date", "days_since", "years_until"))
    if not form and not since and not until:
        return "", "", ""
    if not isinstance(form, str) or "%" not in form:
        raise ValueError('date must say how dates are written, as in date = "%d.%m.%Y"')
    if bool(since) == bool(until):
        raise ValueError('a date needs one of days_since and years_until, as in days_since = "2020-01-01"')
    try:
        date.fromisoformat(since or until)
    except (TypeError, ValueError):
        raise ValueError(
            f"{since or until!r} is not a date: write it as in 2020-01-31, in quotation marks"
        ) from None
    if not _is_a_day(form):
        raise ValueError(
            f'date = {form!r} does not say a day: it needs year, month and day, as in "%d.%m.%Y", each once, '
            "with the codes of Python; %c, %x and %X are not allowed"
        )
    return form, since, until


def _is_a_day(form: str) -> bool:
    """Whether a date that is written in this form can be read again. %c, %x and %X are other texts elsewhere."""
    if set(re.findall("%(.)", form)) & set("cxX"):
        return False
    moment = datetime(2003, 11, 28, 13, 14, 15, tzinfo=UTC)
    try:
        return datetime.strptime(moment.strftime(form), form).date() == moment.date()
    except (ValueError, re.error):
        return False


def _number(given: Mapping[str, Any], key: str, usual: float) -> float:
    value = given.get(key, usual)
    if not is_number(value) or not math.isfinite(value):
        raise ValueError(f"{key} = {value!r} must be a number")
    return float(value)


def _character(given: Mapping[str, Any], key: str, usual: str) -> str:
    value = given.get(key, usual)
    if value == usual:
        return usual
    if not isinstance(value, str) or len(value) != 1 or value in '"\r\n' or value.isalnum():
        raise ValueError(f'[file]: {key} = {value!r} must be one character, as in ";" or "\\t"')
    return value


def _encoding(given: Mapping[str, Any]) -> str:
    value = given.get("encoding", "utf-8")
    try:
        codec = codecs.lookup(value)
        if not codec._is_text_encoding:
            raise LookupError
    except (LookupError, TypeError):
        raise ValueError(
            f'[file]: encoding = {value!r} is not known; write one as in "utf-8" or "latin-1"'
        ) from None
    return "utf-8-sig" if codec.name == "utf-8" else codec.name


def _texts(given: Mapping[str, Any], key: str, where: str = "[file]: ") -> tuple[str, ...]:
    value = given.get(key, [])
    if not isinstance(value, list) or not all(isinstance(text, str) and text.strip() for text in value):
        raise ValueError(f'{where}{key} = {value!r} must be a list of texts, as in ["one", "two"]')
    texts = tuple(text.strip() for text in value)
    if len(set(texts)) < len(texts):
        raise ValueError(f"{where}{key} has a text twice")
    return texts
