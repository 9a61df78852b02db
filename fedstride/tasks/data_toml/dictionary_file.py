"""Reads what a site's own file says of its data, and refuses what it cannot mean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

from ...errors import nearest
from ...plain_numbers import is_number
from ..forms.columns import twice
from ..reading import sample_of
from .dictionary import CATEGORY, GOALS, NEEDED, NUMBER, OPTIONAL, SCALE, TEXT, AllowedCells, Dictionary
from .file_form import OF_COLUMNS

SAMPLES, MOST_SAMPLES = "samples", 100_000

OF_KINDS = {CATEGORY: ("categories",), TEXT: (TEXT,), NUMBER: ("least", "most", "whole")}
"""The keys that say what cells of each kind may be; the first one says the kind."""

_FORMS = (
    '"number", "text", a list of categories, or a table as { least = 0, most = 120, whole = true, empty = true }'
)


def cells_of(said: object) -> AllowedCells:
    """From `"number"`, `"text"`, a list of categories, or a table. Raises ValueError for anything else."""
    if said in (NUMBER, TEXT):
        return AllowedCells(str(said))
    if isinstance(said, list):
        said = {"categories": said}
    if not isinstance(said, dict):
        raise ValueError(f"{str(said)[:60]!r} is not allowed: it must be {_FORMS}")
    kind = next((kind for kind, keys in OF_KINDS.items() if keys[0] in said), NUMBER)
    _check_keys(said, kind)
    given = dict(said)
    empty = _flag(given, "empty")
    if kind == CATEGORY:
        return AllowedCells(CATEGORY, categories=_names(given["categories"]), empty=empty)
    if kind == TEXT:
        if not _flag(given, TEXT):
            raise ValueError(f"text = false is not allowed: it must be {_FORMS}")
        return AllowedCells(TEXT, empty=empty)
    least, most = given.get("least", -math.inf), given.get("most", math.inf)
    if not _is_known(least) or not _is_known(most) or least > most:
        raise ValueError("least and most must be numbers, and least not above most")
    return AllowedCells(NUMBER, float(least), float(most), _flag(given, "whole"), empty=empty)


def _check_keys(said: Mapping[str, object], kind: str) -> None:
    """Raise ValueError for a key that a column of this kind cannot have, with those that it can have."""
    keys = (*OF_KINDS[kind], "empty")
    if strange := next((key for key in said if key not in keys), None):
        allowed = (*keys, *([SAMPLES] if kind == NUMBER else []), *OF_COLUMNS)
        hint = f" (did you mean {close[0]!r}?)" if (close := nearest(strange, allowed, 1)) else ""
        raise ValueError(
            f"{strange[:60]!r} is not allowed here{hint}: a column of this kind has {', '.join(allowed)}"
        )


def expanded(columns: object) -> object:
    """The same with a column for each sample of a signal, which is said as `{ samples = 500 }`, with other keys.

    Raises ValueError, with the column, for another number of samples.
    """
    if not isinstance(columns, dict):
        return columns
    all_columns: dict[str, object] = {}
    for name, said in columns.items():
        if not isinstance(said, dict) or SAMPLES not in said:
            all_columns[name] = said
            continue
        count = said[SAMPLES]
        if type(count) is not int or not 1 <= count <= MOST_SAMPLES:
            needed = f"a whole number from 1 to {MOST_SAMPLES}"
            raise ValueError(f"column {name!r}: samples = {count!r} must be {needed}")
        for at in range(count):
            column = {key: value for key, value in said.items() if key != SAMPLES}
            if isinstance(column.get("from"), str):
                column["from"] = sample_of(column["from"], at)
            all_columns[sample_of(name, at)] = column
    return all_columns


def read_columns(columns: object, targets: object) -> Dictionary:
    """The dictionary of a table. Raises ValueError, with the column, for what is not allowed."""
    if not isinstance(columns, dict) or not columns:
        raise ValueError('[columns] must name at least one column, as in age = "number"')
    cells = {}
    for name, said in columns.items():
        try:
            cells[name.strip()] = cells_of(said)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from None
    if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
        raise ValueError('targets must be a list of columns that may be predicted, as in targets = ["diagnosis"]')
    for name in targets:
        if name not in cells:
            raise ValueError(f"targets: {name!r} is not in [columns]")
        if cells[name].empty or cells[name].kind == TEXT:
            raise ValueError(
                f"targets: {name!r} cannot be predicted: its cells must be numbers or categories, never empty"
            )
    return Dictionary(cells, tuple(targets))


def read_examples(said: object) -> Dictionary:
    """The form of examples that are no table. Raises ValueError for what is not allowed."""
    kinds = ", ".join(NEEDED)
    if not isinstance(said, dict) or said.get("kind") not in NEEDED:
        raise ValueError(f"[examples] must have a kind: one of {kinds}")
    given = {name: value for name, value in said.items() if name != "kind"}
    needed = NEEDED[said["kind"]]
    if "scale" in needed:
        given.setdefault("scale", SCALE.get(said["kind"], 1.0))
    goals = [name for name in GOALS if name in given]
    if len(goals) != 1:
        raise ValueError(f"[examples] must have one of {', '.join(GOALS)}: their number, or the names of classes")
    optional = [key for key in OPTIONAL.get(said["kind"], ()) if key in given]
    different = sorted(set(given) ^ {*needed, *goals, *optional})
    if different:
        what = "is missing" if different[0] in needed else "is not a key"
        raise ValueError(
            f"[examples]: {different[0]} {what}; kind = {said['kind']!r} has {', '.join([*needed, *goals])}"
        )
    for name, value in given.items():
        _CHECKS[name](name, value)
    if "scale" in given:
        given["scale"] = float(given["scale"])
    return Dictionary(examples={"kind": said["kind"], **given})


def _flag(given: dict[str, Any], name: str) -> bool:
    value = given.pop(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"{name} = {value!r} must be true or false")
    return value


def _is_known(value: object) -> TypeGuard[float]:
    return is_number(value) and not math.isnan(value)


def _names(said: object) -> tuple[str, ...]:
    if not isinstance(said, list) or not all(isinstance(text, str) and text.strip() for text in said):
        raise ValueError('categories must be a list of texts, as in ["female", "male"]')
    names = tuple(text.strip() for text in said)
    if twice(names) is not None or not names or any("|" in name for name in names):
        raise ValueError("categories must be different (1 and 1.0 are one), at least one, and without |")
    return names


def _count(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"[examples]: {name} = {value!r} must be a whole number of at least 1")


def _one(name: str, value: object) -> None:
    if type(value) is not int or value != 1:
        raise ValueError(f"[examples]: {name} = {value!r} must be 1: one risk is predicted, from time and event")


def _shape(name: str, value: object) -> None:
    if not isinstance(value, list) or not value:
        raise ValueError(f"[examples]: {name} = {value!r} must be a list, as in [3, 64, 64]")
    for size in value:
        _count(name, size)


def _scale(name: str, value: object) -> None:
    if not _is_known(value) or not 0 < float(str(value)) < math.inf:
        raise ValueError(f"[examples]: {name} = {value!r} must be a number above 0")


def _switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"[examples]: {name} = {value!r} must be true or false")


def _classes(name: str, value: object) -> None:
    _names(value) if isinstance(value, list) else _count(name, value)


_CHECKS = {
    "shape": _shape,
    "scale": _scale,
    "vocabulary": _count,
    "rate": _count,
    "classes": _classes,
    "labels": _count,
    "values": _count,
    "survival": _one,
    "empty": _switch,
    "any_form": _switch,
}
