"""What a site says of its data: what a message may ask for depends on this alone, never on rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from fedstride.errors import ConfigError
from fedstride.tasks.data_toml import site
from fedstride.tasks.data_toml.dictionary import AllowedCells
from fedstride.tasks.data_toml.dictionary_file import read_columns, read_examples
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.own_files.readers import npz
from fedstride.tasks.own_files.tables import table_file
from fedstride.tasks.reading import Reading
from fedstride.tasks.spec import Spec, Target

TABLE = read_columns(
    {
        "age": {"least": 0, "most": 120, "whole": True, "empty": True},
        "weight": "number",
        "sex": ["female", "male"],
        "note": "text",
        "title": {"text": True, "empty": True},
        "ill": ["no", "yes"],
        "grade": {"least": 0, "most": 3, "whole": True},
        "back": {"least": 0, "most": 1, "whole": True},
    },
    ["ill", "grade", "back", "weight"],
)
SPEC = Spec(
    Inputs(Kind.TABLE, (3,)),
    2,
    names=("no", "yes"),
    reading=Reading(columns=("weight", "sex=female|male"), targets=("ill",)),
)


def asks(**changes: Any) -> Spec:
    """SPEC with these changes; those of `reading` by their own names."""
    of_reading = {name: changes.pop(name) for name in list(changes) if name in vars(SPEC.reading)}
    return replace(SPEC, reading=replace(SPEC.reading, **of_reading), **changes)


def test_the_kinds_of_cells() -> None:
    assert TABLE.columns["age"] == AllowedCells("number", 0.0, 120.0, True, empty=True)
    assert TABLE.columns["weight"] == AllowedCells("number", -math.inf, math.inf)
    assert TABLE.columns["sex"] == AllowedCells("category", categories=("female", "male"))
    assert TABLE.columns["title"] == AllowedCells("text", empty=True)
    age = TABLE.columns["age"]
    assert [age.allows(value) for value in (0.0, 120.0, 1.5, -1.0, 121.0)] == [True, True, False, False, False]
    assert str(age) == "a whole number from 0 to 120" and str(TABLE.columns["sex"]) == "one of female, male"


@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        asks(columns=("sex=male|female",)),
        asks(columns=("age",), missing="mean"),
        asks(names=("yes", "no")),
        asks(names=(), outputs=4, targets=("grade",)),
        asks(names=("back",), outputs=1, target=Target.LABELS, targets=("back",)),
        asks(names=("weight",), outputs=1, target=Target.VALUES, targets=("weight",)),
        asks(inputs=Inputs(Kind.TOKENS, (9,), 50), texts=("title", "note")),
    ],
)
def test_what_a_message_may_ask_for(spec: Spec) -> None:
    TABLE.check(spec)


@pytest.mark.parametrize(
    ("spec", "key"),
    [
        (asks(columns=("patient=Jane Doe|?",)), "reading.columns"),
        (asks(columns=("weigth",)), "reading.columns"),
        (asks(columns=("sex=female",)), "reading.columns"),
        (asks(columns=("sex=female|male|?",)), "reading.columns"),
        (asks(columns=("sex",)), "reading.columns"),
        (asks(columns=("weight=1|2",)), "reading.columns"),
        (asks(columns=("note",)), "reading.columns"),
        (asks(columns=("age",)), "reading.missing"),
        (asks(targets=("sex",)), "reading.targets"),
        (asks(targets=("age",)), "reading.targets"),
        (asks(targets=("weight",)), "reading.targets"),
        (asks(names=("no", "perhaps")), "reading.targets"),
        (asks(names=("no", "yes", "?"), outputs=3), "reading.targets"),
        (asks(names=(), outputs=5, targets=("grade",)), "reading.targets"),
        (asks(names=(), outputs=3, targets=("grade",)), "reading.targets"),
        (asks(names=("g",), outputs=1, target=Target.LABELS, targets=("grade",)), "reading.targets"),
        (asks(names=("i",), outputs=1, target=Target.VALUES, targets=("ill",)), "reading.targets"),
        (asks(inputs=Inputs(Kind.TOKENS, (9,), 50), texts=("title",)), "reading.texts"),
        (asks(inputs=Inputs(Kind.TOKENS, (9,), 50), texts=("sex",)), "reading.texts"),
        (asks(inputs=Inputs(Kind.IMAGE, (1, 8, 8))), "spec.kind"),
    ],
)
def test_what_it_may_not(spec: Spec, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TABLE.check(spec)
    assert caught.value.key == key


IMAGES = {"kind": "image", "shape": [1, 8, 8], "classes": ["cat", "dog"]}
PICTURES = Spec(Inputs(Kind.IMAGE, (1, 8, 8)), 2, scale=255.0, names=("dog", "cat"))


@pytest.mark.parametrize(
    ("said", "spec"),
    [
        (IMAGES, PICTURES),
        (IMAGES | {"scale": 16, "classes": 3}, replace(PICTURES, scale=16.0, names=(), outputs=3)),
        (
            {"kind": "sound", "rate": 8000, "classes": 2},
            Spec(Inputs(Kind.FRAMES, (9, 4)), 2, reading=Reading(rate=8000, window=9.0)),
        ),
        ({"kind": "text", "classes": 2}, Spec(Inputs(Kind.TOKENS, (9,), 77), 2)),
        (
            {"kind": "tokens", "shape": [9], "vocabulary": 77, "labels": 3},
            Spec(Inputs(Kind.TOKENS, (9,), 77), 3, Target.LABELS, names=("a", "b", "c")),
        ),
        ({"kind": "table", "shape": [5], "values": 1}, Spec(Inputs(Kind.TABLE, (5,)), 1, Target.VALUES)),
    ],
)
def test_the_form_of_other_examples(said: dict[str, Any], spec: Spec) -> None:
    read_examples(said).check(spec)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"inputs": Inputs(Kind.IMAGE, (1, 8, 9))}, "spec.shape"),
        ({"inputs": Inputs(Kind.SIGNAL, (1, 8))}, "spec.kind"),
        ({"outputs": 3, "names": ("cat", "dog", "?")}, "spec.outputs"),
        ({"names": ("cat", "cow")}, "spec.names"),
        ({"names": ()}, "spec.names"),
        ({"scale": 1.0}, "spec.scale"),
        ({"target": Target.VALUES}, "spec.target"),
    ],
)
def test_another_form_is_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_examples(IMAGES).check(replace(PICTURES, **changes))
    assert caught.value.key == key


def test_numbers_of_classes_have_the_order_of_the_site() -> None:
    """In an .npz file the labels are numbers: with names in another order, the classes would be exchanged."""
    found = read_examples(IMAGES)
    found.check(replace(PICTURES, names=("cat", "dog")), numbered=True)
    with pytest.raises(ConfigError) as caught:
        found.check(replace(PICTURES, names=("dog", "cat")), numbered=True)
    assert caught.value.key == "spec.names"
    read_examples(IMAGES | {"classes": 2}).check(PICTURES, numbered=True)  # numbers, which a run may name


def test_the_endings_of_tables_are_those_of_the_readers() -> None:
    assert set(site.TABLES) == set(table_file.SUFFIXES) and site.ARRAYS == npz.SUFFIX


def test_numbers_that_may_be_missing_in_arrays() -> None:
    said = {"kind": "table", "shape": [5], "values": 1, "empty": True}
    spec = Spec(Inputs(Kind.TABLE, (5,)), 1, Target.VALUES)
    read_examples(said).check(replace(spec, reading=Reading(missing="mean")))
    with pytest.raises(ConfigError) as caught:
        read_examples(said).check(spec)
    assert caught.value.key == "reading.missing"
