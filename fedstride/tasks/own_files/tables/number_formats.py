"""Numbers as people and programs write them: read if the site's file says how, else refused with what to say.

Whatever the file says, these are understood: blanks of any kind and quotation marks around a number, a sign, the
minus of typography, and an exponent as in 5e-3. What a comma, a point or a blank between digits means is never
guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from ...data_toml.file_form import COMMA, POINT
from ..checks import quoted

MINUS = "\N{MINUS SIGN}"
QUOTES = ('""', "''", "\u201c\u201d", "\u201e\u201c", "\u2018\u2019", "\u00ab\u00bb")
BLANKS = " \u00a0\u2007\u2009\u202f"
"""That separate thousands; one of them stands for all."""
APOSTROPHES = "'\u2019"

_ALIKE = {character: group for group in (BLANKS, APOSTROPHES) for character in group}
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_COMPARED = re.compile(r"\s*(?:<=|>=|[<>~\u2264\u2265\u2248])\s*[0-9]")
_UNIT = re.compile(r"(.*[0-9.,])\s*([^\s0-9.,+\-\"\\][^0-9\"\\]*)")
_DATE = re.compile(
    r"(?:[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}|[0-9]{1,2}([./-])[0-9]{1,2}\1(?:[0-9]{4}|[0-9]{2}))(?:[ T].*)?"
)
_SAID = re.compile(r"(?P<cell>.*) \(in this file, decimal = '(?P<decimal>.)'(?:, thousands = .*)?\)", re.DOTALL)
_SAID_DATE = re.compile(r"(?P<cell>.*) \(in this file, date = (?P<form>.*)\)", re.DOTALL)
DATES = (
    "%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y",
    "%d-%m-%y", "%m-%d-%y", "%y-%m-%d",
)  # fmt: skip
TIMES = tuple(
    f"{mark}{time}{zone}"
    for mark in " T"
    for time in ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f")
    for zone in ("", "%z", " %z")
)
"""The usual forms of dates, and of what may stand behind them."""

LONGEST_DATE = len("2020-01-31")
MOST_SHOWN = 12
"""Characters of a unit or of a word that a message names."""


def with_point(text: str, decimal: str = POINT, thousands: str = "", unit: str = "") -> str | None:
    """A number that is written so, with a decimal point and nothing else; None if the text is none."""
    text = _bare(text)
    if unit and text.endswith(unit):
        text = text.removesuffix(unit).rstrip()
    text = text.replace(MINUS, "-")
    if thousands:
        text = "".join(
            thousands if character in _ALIKE.get(thousands, thousands) else character for character in text
        )
    whole, mark, rest = text.partition(decimal)
    digits = whole.lstrip("+-")
    if thousands and thousands in digits:
        groups = digits.split(thousands)
        if not 1 <= len(groups[0]) <= 3 or any(len(group) != 3 for group in groups[1:]):
            return None
        whole = whole.replace(thousands, "")
    if decimal != POINT and POINT in whole + rest:
        return None  # 1.234 may be one thousand
    number = f"{whole}.{rest}" if mark else whole
    return number if _NUMBER.fullmatch(number) else None


def unlike_the_file(cell: str, decimal: str, thousands: str) -> str:
    """A cell that is no number as the site's data file says, with what it says: the text for a message."""
    more = f", thousands = {thousands!r}" if thousands else ""
    return f"{cell} (in this file, decimal = {decimal!r}{more})"


def unlike_the_date(cell: str, form: str) -> str:
    """A cell that is no date as the site's data file says, with what it says: the text for a message."""
    return f"{cell} (in this file, date = {form!r})"


def short(text: str) -> str:
    """A text of a cell as a data file says it, in quotation marks; WORD for one that is long or needs escapes."""
    text = text.strip()
    plain = text.isprintable() and not set(text) & set('"\\')
    return f'"{text}"' if plain and len(text) <= MOST_SHOWN else '"WORD"'


def no_number(text: str) -> str:
    """Why a text is not allowed in a column of numbers, and what to say in a data file or to write instead.

    `text`: a cell, or what `unlike_the_file` or `unlike_the_date` makes of one.
    """
    if said := _SAID_DATE.fullmatch(text):
        forms = _date_forms(said["cell"])
        change = (
            f"if all dates of the column are as this one, say date = {forms} of its column in the data file"
            if forms
            else "write it so"
        )
        no_value = f"missing = [{short(said['cell'])}] of its column"
        return (
            f"{quoted(said['cell'])} is no date of the form date = {said['form']}, as the data file says of this "
            f"column; {change}, or if it is no value, {no_value}"
        )
    return f"{quoted(text)} is not a number; {what_to_say(text)}"


def _date_forms(text: str) -> str:
    """The usual forms of dates that a text has, as a data file says them; empty if it has none."""
    text = text.strip()
    behind = ("",) if len(text) <= LONGEST_DATE else TIMES
    forms = (f"{day}{time}" for day in DATES for time in behind)
    return " or ".join(f'"{form}"' for form in forms if _is_date(text, form))


def _is_date(text: str, form: str) -> bool:
    try:
        datetime.strptime(text, form)
    except ValueError:
        return False
    return True


def is_date(text: str) -> bool:
    """Whether a text is a date in one of the usual forms."""
    return _DATE.fullmatch(text.strip()) is not None


def what_to_say(text: str) -> str:
    """What in a site's data file would make this text a number, or that nothing does.

    `text`: a cell, or what `unlike_the_file` makes of one.
    """
    if said := _SAID.fullmatch(text):
        return _unit_to_say(said["cell"], said["decimal"]) or what_to_say(said["cell"])
    text = _bare(text)
    if _COMPARED.match(text):
        return (
            'say what such a cell stands for, as in words = { "<5" = "2.5" } or missing = ["<5"] of its column; '
            "the number in words is in the task's unit, with a decimal point"
        )
    if _DATE.fullmatch(text):
        forms = _date_forms(text)
        if not forms:
            return (
                "if it is a date, say in date of its column in the data file how it is written, with %Y, %m and %d"
            )
        years = "; %y is a year from 1969 to 2068" if "%y" in forms else ""
        return (
            f'if it is a date, say so of its column, as in {{ date = {forms}, days_since = "2020-01-01" }}{years}'
        )
    ways = list(dict.fromkeys(_ways(text)))
    if ways:
        return f"if it is a number, say in [file] of the data file {' or '.join(ways)}"
    return _unit_to_say(text) or (
        "write it with a decimal point and without separators, or say in [file] of the data file how numbers are "
        f"written; a text that is no value belongs to missing, as in missing = [{short(text)}] there; words are "
        'named in the run, as in task.columns=["sex=female|male"], and those to predict in task.classes'
    )


def _unit_to_say(text: str, decimal: str = POINT) -> str:
    """What to say of a number with a unit; empty if the text is none. `decimal`: the data file says it already."""
    unit = _UNIT.fullmatch(_bare(text))
    if unit is None or len(unit[2]) > MOST_SHOWN:
        return ""
    is_number = with_point(unit[1], decimal) is not None
    ways = [] if is_number else list(_ways(unit[1]))
    if not is_number and not ways:
        return ""
    more = f", and in [file] {' or '.join(ways)}" if ways else ""
    return f'say unit = "{unit[2]}" of its column in the data file{more}'


def _ways(text: str) -> Iterator[str]:
    for decimal, thousands in ((COMMA, ""), (POINT, COMMA), (COMMA, POINT), *((d, t) for t in " '" for d in ".,")):
        if with_point(text, decimal, thousands) is None:
            continue
        if thousands and with_point(text, decimal) is not None:
            continue  # it needs no separator of thousands
        said = [f'decimal = "{decimal}"'] * (decimal != POINT) + [f'thousands = "{thousands}"'] * bool(thousands)
        yield " and ".join(said)


def _bare(text: str) -> str:
    """The text without blanks and a pair of quotation marks around it."""
    text = text.strip()
    if len(text) > 1 and text[0] + text[-1] in QUOTES:
        return text[1:-1].strip()
    return text
