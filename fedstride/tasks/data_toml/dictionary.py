"""What a site says of its own data: the columns of its table, or the form of its examples.

What a run may name comes from here and never from the rows. So whether a run is refused says nothing about a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import ConfigError
from ..forms.columns import Column, alike
from ..forms.wav import FULL_SCALE
from ..inputs import Kind
from ..missing import ERROR, RULES
from ..reading import sample_of
from ..spec import Spec, Target

NUMBER, CATEGORY, TEXT = "number", "category", "text"


@dataclass(frozen=True)
class AllowedCells:
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


@dataclass(frozen=True)
class Dictionary:
    """Columns and targets of a table, or the form of other examples; of one of them."""

    columns: Mapping[str, AllowedCells] = field(default_factory=dict)
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

    def has(self, column: Column, spec: Spec, *, predicted: bool = False) -> bool:
        """Whether the cells of this column, which the table has, are what a run takes them for.

        `predicted`: the column is one that the run predicts, and not one of an example.
        """
        cells = self.columns[column.name]
        if predicted:
            place = spec.reading.targets.index(column.name)
            return column.name in self.targets and _predicts(cells, spec, place)
        return _same(column.categories, cells.categories) and cells.kind != TEXT

    # ------------------------------------------------------------ a table

    def _check_inputs(self, spec: Spec) -> None:
        if spec.inputs.kind is Kind.TOKENS:
            texts = [self._column("reading.texts", name) for name in spec.reading.texts]
            if any(cells.kind != TEXT for cells in texts) or all(cells.empty for cells in texts):
                raise _refused(
                    "reading.texts", list(spec.reading.texts), "columns of texts, one of them never empty"
                )
            return
        if spec.reading.signals and spec.inputs.kind is Kind.SIGNAL:
            self._check_signals(spec)
            return
        if spec.inputs.kind is not Kind.TABLE:
            raise _refused(
                "spec.kind", str(spec.inputs.kind), "table or tokens: the data of this site are a table"
            )
        for column in spec.reading.parsed:
            self._check_column(column, spec, spec.reading.rules[column.name].fill)

    def _check_signals(self, spec: Spec) -> None:
        """A run gets whole channels: statistics of all and of some samples would say what single ones are."""
        samples = spec.inputs.shape[1]
        for name in spec.reading.of_signals(samples):
            self._check_column(Column(name), spec, ERROR)
        for name in spec.reading.signals:
            if sample_of(name, samples) in self.columns:
                raise _refused("spec.shape", list(spec.inputs.shape), f"all samples of {name}, which has more")

    def _check_column(self, column: Column, spec: Spec, missing: str) -> None:
        cells, key = self._column("reading.columns", column.name), "reading.columns"
        if not self.has(column, spec):
            raise _refused(key, column.name, f"{column.name} with what its cells are: {cells}")
        if cells.empty and missing == ERROR:
            allowed = f"mean or median with the column {column.name!r}, whose cells may be empty"
            raise _refused("reading.missing", missing, allowed)

    def _check_targets(self, spec: Spec) -> None:
        key = "reading.targets"
        for place, name in enumerate(spec.reading.targets):
            cells = self._column(key, name)
            if name not in self.targets:
                raise _refused(key, name, f"one of {', '.join(self.targets) or 'no columns'}")
            if not _predicts(cells, spec, place):
                raise _refused(key, name, f"a column whose cells the task predicts; they are: {cells}")

    def _column(self, key: str, name: str) -> AllowedCells:
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
            "spec.names": _ordered(spec.names, numbered),
            "reading.rate": spec.reading.rate,
            "reading.missing": spec.reading.missing,
        }
        for key, allowed in self._form(numbered).items():
            if asked[key] not in allowed:
                raise _refused(
                    key, asked[key], " or ".join(str(value) if value != [] else "none" for value in allowed)
                )

    def _form(self, numbered: bool) -> dict[str, list[Any]]:
        """What a message may say, for each of its keys."""
        said = dict(self.examples)
        kind, classes, empty = said.pop("kind"), said.pop("classes", None), said.pop("empty", None)
        said.pop("any_form", None)  # of the files, of which a run makes its own form
        names = _ordered(classes if isinstance(classes, list) else (), numbered)
        if classes is not None:
            target, outputs = Target.CLASS, len(names) or classes
        else:
            target = next(GOALS[name] for name in GOALS if name in said)
            outputs = said.pop(str(target))
        allowed: dict[str, list[Any]] = {
            "spec.kind": _KINDS[kind],
            "spec.target": [str(target)],
            "spec.outputs": [outputs],
        }
        if target is Target.CLASS and (names or not numbered):  # else numbers, which a run may name
            allowed["spec.names"] = [names]
        if empty:
            allowed["reading.missing"] = [rule for rule in RULES if rule != ERROR]
        places = {
            "shape": "spec.shape",
            "vocabulary": "spec.vocabulary",
            "scale": "spec.scale",
            "rate": "reading.rate",
        }
        return allowed | {places[name]: [value] for name, value in said.items()}


_KINDS = {str(kind): [str(kind)] for kind in Kind} | {
    "sound": [str(Kind.SIGNAL), str(Kind.FRAMES)],
    "text": [str(Kind.TOKENS)],
}
"""What `kind` in a data file allows. Recordings and texts have whatever form a run makes of them."""

SOUND = "sound"
FOLDERS = (SOUND, TEXT)
"""Kinds of folders with a file for each example."""

NEEDED = {
    str(Kind.IMAGE): ("shape", "scale"),
    str(Kind.SIGNAL): ("shape", "scale"),
    str(Kind.FRAMES): ("shape", "scale"),
    str(Kind.TABLE): ("shape", "scale"),
    str(Kind.TOKENS): ("shape", "vocabulary", "scale"),
    "sound": ("rate",),
    "text": (),
}
OPTIONAL = {str(Kind.IMAGE): ("any_form",), str(Kind.TABLE): ("empty",)}
SCALE = {str(Kind.IMAGE): 255.0, str(Kind.SIGNAL): float(FULL_SCALE)}


def goal_of(target: Target) -> str:
    """The key of [examples] that says how many classes, labels or values there are."""
    return "classes" if target is Target.CLASS else str(target)


GOALS = {goal_of(target): target for target in Target}
"""What is predicted, by its key in [examples]."""


def examples_of(spec: Spec) -> dict[str, Any]:
    """What a data file says, in [examples], of arrays in the form of a task."""
    kind = str(spec.inputs.kind)
    values = {"shape": list(spec.inputs.shape), "vocabulary": spec.inputs.vocabulary, "scale": spec.scale}
    goal = goal_of(spec.target)
    names = list(spec.names) if spec.target is Target.CLASS else []
    return {"kind": kind, **{name: values[name] for name in NEEDED[kind]}, goal: names or spec.outputs}


def _ordered(names: Iterable[str], numbered: bool) -> list[str]:
    """Names of classes, to compare: in their own order only where the data have the numbers of classes."""
    texts = list(map(alike, names))
    return texts if numbered else sorted(texts)


def _same(names: Iterable[str], others: Iterable[str]) -> bool:
    return set(map(alike, names)) == set(map(alike, others))


def _predicts(cells: AllowedCells, spec: Spec, place: int) -> bool:
    """Whether a task may predict a column with these cells; `place`: of it among the task's."""
    if spec.target is Target.VALUES:
        return cells.kind == NUMBER
    if spec.target is Target.SURVIVAL and place == 0:
        return cells.kind == NUMBER and cells.least >= 0
    if spec.target in (Target.LABELS, Target.SURVIVAL):
        return cells.is_index and cells.most == 1
    if spec.names:
        return _same(spec.names, cells.categories) and spec.outputs == len(cells.categories)
    return cells.is_index and cells.most == spec.outputs - 1


AS_USERS_WRITE = {"reading.missing": "task.missing", "reading.targets": "task.target"}
"""Keys of a message that a run says under another name, which is the same for all kinds of examples."""


def _refused(key: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(
        f"{AS_USERS_WRITE.get(key, key)}: {str(value)[:200]!r} is not what the site's data file allows; "
        f"allowed is {allowed}",
        key=key,
    )
