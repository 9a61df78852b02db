"""What a site says of its own data: the columns of its table, or the form of its examples.

What a run may name comes from here and never from the rows. So whether a run is refused says nothing about a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from ..errors import ConfigError
from .columns import Column, parsed
from .inputs import Kind
from .spec import Spec, Target
from .wav import FULL_SCALE

NUMBER, CATEGORY, TEXT = "number", "category", "text"


@dataclass(frozen=True)
class Cells:
    """What the cells of a column may be.

    Numbers from `least` to `most`, whole ones if `whole`; one of `categories`; or any text. `empty`: cells may be
    empty.
    """

    kind: str = NUMBER
    least: float = -math.inf
    most: float = math.inf
    whole: bool = False
    categories: tuple[str, ...] = ()
    empty: bool = False

    @classmethod
    def read(cls, said: object) -> Cells:
        """From `"number"`, `"text"`, a list of categories, or a table. Raises ValueError for anything else."""
        if said in (NUMBER, TEXT):
            return cls(str(said))
        if isinstance(said, list):
            said = {"categories": said}
        if not isinstance(said, dict):
            raise ValueError(f"{str(said)[:60]!r} is not allowed: it must be {_FORMS}")
        given = dict(said)
        empty = _flag(given, "empty")
        if "categories" in given:
            found = cls(CATEGORY, categories=_names(given.pop("categories")), empty=empty)
        elif TEXT in given:
            if not _flag(given, TEXT):
                raise ValueError(f"text = false is not allowed: it must be {_FORMS}")
            found = cls(TEXT, empty=empty)
        else:
            least, most = given.pop("least", -math.inf), given.pop("most", math.inf)
            if not _is_number(least) or not _is_number(most) or least > most:
                raise ValueError("least and most must be numbers, and least not above most")
            found = cls(NUMBER, float(least), float(most), _flag(given, "whole"), empty=empty)
        if given:
            raise ValueError(f"{next(iter(given))!r} is not allowed here: it must be {_FORMS}")
        return found

    def allows(self, value: float) -> bool:
        """Whether a column of numbers may have this one."""
        return self.least <= value <= self.most and (not self.whole or value.is_integer())

    @property
    def is_index(self) -> bool:
        """Whether the cells are whole numbers from 0."""
        return self.kind == NUMBER and self.whole and self.least == 0

    def __str__(self) -> str:
        if self.kind == TEXT:
            return "a text"
        if self.kind == CATEGORY:
            return f"one of {', '.join(self.categories)}"
        named = "a whole number" if self.whole else "a number"
        ends = [
            f"{word} {value:g}"
            for word, value in (("from", self.least), ("to", self.most))
            if math.isfinite(value)
        ]
        return " ".join([named, *ends])


_FORMS = (
    '"number", "text", a list of categories, or a table as { least = 0, most = 120, whole = true, empty = true }'
)


@dataclass(frozen=True)
class Dictionary:
    """Columns and targets of a table, or the form of other examples; of one of them."""

    columns: Mapping[str, Cells] = field(default_factory=dict)
    targets: tuple[str, ...] = ()  # the columns that may be predicted
    examples: Mapping[str, Any] = field(default_factory=dict)

    def check(self, spec: Spec, numbered: bool = False) -> None:
        """Raise ConfigError, with the key of the message, unless a run may ask for examples of this form.

        `numbered`: the data have the numbers of classes, so the order of their names matters.
        """
        if not self.columns:
            self._check_examples(spec, numbered)
            return
        if spec.scale != 1.0:
            raise _refused("spec.scale", spec.scale, "1")
        self._check_inputs(spec)
        self._check_targets(spec)

    # ------------------------------------------------------------ a table

    def _check_inputs(self, spec: Spec) -> None:
        if spec.inputs.kind is Kind.TOKENS:
            texts = [self._column("reading.texts", name) for name in spec.reading.texts]
            if any(cells.kind != TEXT for cells in texts) or all(cells.empty for cells in texts):
                raise _refused(
                    "reading.texts", list(spec.reading.texts), "columns of texts, one of them never empty"
                )
            return
        if spec.inputs.kind is not Kind.TABLE:
            raise _refused(
                "spec.kind", str(spec.inputs.kind), "table or tokens: the data of this site are a table"
            )
        for column in parsed(spec.reading.columns):
            self._check_column(column, spec.reading.missing)

    def _check_column(self, column: Column, missing: str) -> None:
        cells, key = self._column("reading.columns", column.name), "reading.columns"
        if set(column.categories) != set(cells.categories) or cells.kind == TEXT:
            raise _refused(key, column.name, f"{column.name} with what its cells are: {cells}")
        if cells.empty and missing == "error":
            raise _refused(
                "reading.missing", missing, f"mean with the column {column.name!r}, whose cells may be empty"
            )

    def _check_targets(self, spec: Spec) -> None:
        key = "reading.targets"
        for name in spec.reading.targets:
            cells = self._column(key, name)
            if name not in self.targets:
                raise _refused(key, name, f"one of {', '.join(self.targets) or 'no columns'}")
            if not _predicts(cells, spec):
                raise _refused(key, name, f"a column whose cells the task predicts; they are: {cells}")

    def _column(self, key: str, name: str) -> Cells:
        if name not in self.columns:
            raise _refused(key, name, f"one of {', '.join(self.columns)}")
        return self.columns[name]

    # ------------------------------------------------------------ other examples

    def _check_examples(self, spec: Spec, numbered: bool) -> None:
        asked: dict[str, Any] = {
            "spec.kind": str(spec.inputs.kind),
            "spec.shape": list(spec.inputs.shape),
            "spec.vocabulary": spec.inputs.vocabulary,
            "spec.scale": spec.scale,
            "spec.target": str(spec.target),
            "spec.outputs": spec.outputs,
            "spec.names": list(spec.names) if numbered else sorted(spec.names),
            "reading.rate": spec.reading.rate,
            "reading.missing": spec.reading.missing,
        }
        for key, allowed in self._form(numbered).items():
            if asked[key] not in allowed:
                raise _refused(
                    key, asked[key], " or ".join(str(each) if each != [] else "none" for each in allowed)
                )

    def _form(self, numbered: bool) -> dict[str, list[Any]]:
        """What a message may say, for each of its keys."""
        said = dict(self.examples)
        kind, classes, empty = said.pop("kind"), said.pop("classes", None), said.pop("empty", None)
        names = list(classes) if isinstance(classes, list) else []
        names = names if numbered else sorted(names)
        if classes is not None:
            target, outputs = Target.CLASS, len(names) or classes
        else:
            target = Target.LABELS if "labels" in said else Target.VALUES
            outputs = said.pop(str(target))
        found: dict[str, list[Any]] = {
            "spec.kind": _KINDS[kind],
            "spec.target": [str(target)],
            "spec.outputs": [outputs],
        }
        if target is Target.CLASS and (names or not numbered):  # else numbers, which a run may name
            found["spec.names"] = [names]
        if empty:
            found["reading.missing"] = ["mean"]
        places = {
            "shape": "spec.shape",
            "vocabulary": "spec.vocabulary",
            "scale": "spec.scale",
            "rate": "reading.rate",
        }
        return found | {places[name]: [value] for name, value in said.items()}


_KINDS = {str(kind): [str(kind)] for kind in Kind} | {
    "sound": [str(Kind.SIGNAL), str(Kind.FRAMES)],
    "text": [str(Kind.TOKENS)],
}
"""What `kind` in a data file allows. Recordings and texts have whatever form a run makes of them."""

SOUND = "sound"
FOLDERS = (SOUND, TEXT)
"""Kinds of folders with a file for each example."""

_NEEDED = {
    str(Kind.IMAGE): ("shape", "scale"),
    str(Kind.SIGNAL): ("shape", "scale"),
    str(Kind.FRAMES): ("shape", "scale"),
    str(Kind.TABLE): ("shape", "scale"),
    str(Kind.TOKENS): ("shape", "vocabulary", "scale"),
    "sound": ("rate",),
    "text": (),
}
_SCALE = {str(Kind.IMAGE): 255.0, str(Kind.SIGNAL): float(FULL_SCALE)}


def read_columns(columns: object, targets: object) -> Dictionary:
    """The dictionary of a table. Raises ValueError, with the column, for what is not allowed."""
    if not isinstance(columns, dict) or not columns:
        raise ValueError('[columns] must name at least one column, as in age = "number"')
    found = {}
    for name, said in columns.items():
        try:
            found[name.strip()] = Cells.read(said)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from None
    if not isinstance(targets, list) or not all(isinstance(each, str) for each in targets):
        raise ValueError('targets must be a list of columns that may be predicted, as in targets = ["diagnosis"]')
    for name in targets:
        if name not in found:
            raise ValueError(f"targets: {name!r} is not in [columns]")
        if found[name].empty or found[name].kind == TEXT:
            raise ValueError(
                f"targets: {name!r} cannot be predicted: its cells must be numbers or categories, never empty"
            )
    return Dictionary(found, tuple(targets))


def examples_of(spec: Spec) -> dict[str, Any]:
    """What a data file says, in [examples], of arrays in the form of a task."""
    kind = str(spec.inputs.kind)
    values = {"shape": list(spec.inputs.shape), "vocabulary": spec.inputs.vocabulary, "scale": spec.scale}
    goal = "classes" if spec.target is Target.CLASS else str(spec.target)
    names = list(spec.names) if spec.target is Target.CLASS else []
    return {"kind": kind, **{name: values[name] for name in _NEEDED[kind]}, goal: names or spec.outputs}


def read_examples(said: object) -> Dictionary:
    """The form of examples that are no table. Raises ValueError for what is not allowed."""
    kinds = ", ".join(_NEEDED)
    if not isinstance(said, dict) or said.get("kind") not in _NEEDED:
        raise ValueError(f"[examples] must have a kind: one of {kinds}")
    given = {name: value for name, value in said.items() if name != "kind"}
    needed = _NEEDED[said["kind"]]
    if "scale" in needed:
        given.setdefault("scale", _SCALE.get(said["kind"], 1.0))
    goals = [name for name in ("classes", "labels", "values") if name in given]
    if len(goals) != 1:
        raise ValueError(
            "[examples] must have one of classes, labels, values: their number, or the names of classes"
        )
    may_be_empty = ["empty"] if said["kind"] == str(Kind.TABLE) and "empty" in given else []
    different = sorted(set(given) ^ {*needed, *goals, *may_be_empty})
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


def _predicts(cells: Cells, spec: Spec) -> bool:
    if spec.target is Target.VALUES:
        return cells.kind == NUMBER
    if spec.target is Target.LABELS:
        return cells.is_index and cells.most == 1
    if spec.names:
        return set(spec.names) == set(cells.categories) and spec.outputs == len(cells.categories)
    return cells.is_index and cells.most == spec.outputs - 1


def _refused(key: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(
        f"{key}: {str(value)[:200]!r} is not what the site's data file allows; allowed is {allowed}", key=key
    )


def _flag(given: dict[str, Any], name: str) -> bool:
    value = given.pop(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"{name} = {value!r} must be true or false")
    return value


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def _names(said: object) -> tuple[str, ...]:
    if not isinstance(said, list) or not all(isinstance(each, str) and each.strip() for each in said):
        raise ValueError('categories must be a list of texts, as in ["female", "male"]')
    names = tuple(each.strip() for each in said)
    if len(set(names)) < len(names) or not names or any("|" in each for each in names):
        raise ValueError("categories must be different, at least one, and without |")
    return names


def _count(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"[examples]: {name} = {value!r} must be a whole number of at least 1")


def _shape(name: str, value: object) -> None:
    if not isinstance(value, list) or not value:
        raise ValueError(f"[examples]: {name} = {value!r} must be a list, as in [3, 64, 64]")
    for each in value:
        _count(name, each)


def _scale(name: str, value: object) -> None:
    if not _is_number(value) or not 0 < float(str(value)) < math.inf:
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
    "empty": _switch,
}
