"""Settings: read from annotations, checked for type and range, and described in words."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstride.errors import ConfigError
from fedstride.settings import REQUIRED, Field, Influence, Setting, check, check_fields, fields_of

NAN, INF = float("nan"), float("inf")
PROPERTY = settings(max_examples=200, deadline=None, database=None, derandomize=True)


def a_field(kind: Any, **limits: Any) -> Field:
    return Field("beta", kind, REQUIRED, Setting("a meaning", **limits))


def allows(a: Field, value: object) -> bool:
    try:
        a.check("strategy.beta", value)
    except ConfigError:
        return False
    return True


# ---------------------------------------------------------------- in annotations


@dataclass
class Base:
    name: str = "???"
    lr: Annotated[float, Setting("rate", above=0)] = 0.1


@dataclass
class Derived(Base):
    needed: Annotated[int, Setting("a number")] = dataclasses.field(default=REQUIRED)
    track: Annotated[list[str], Setting("names")] = field(default_factory=lambda: ["one"])


class Rule:
    factor: Annotated[float, Setting("of the class, not of its constructor")] = 3.0

    def __init__(
        self, inner: object, *, beta: Annotated[float, Setting("step", above=0)], plain: int = 3, **rest: Any
    ) -> None:
        check(Rule, locals())


def function(first: int, *, alpha: Annotated[float | None, Setting("skew", above=0)] = None) -> None: ...


@pytest.mark.parametrize(
    ("target", "defaults"),
    [
        (Base, {"lr": 0.1}),
        (Derived, {"lr": 0.1, "needed": REQUIRED, "track": ["one"]}),
        (Rule, {"beta": REQUIRED}),
        (function, {"alpha": None}),
        (len, {}),
    ],
)
def test_settings_are_the_annotated_fields_or_parameters_in_order(target: Any, defaults: dict[str, Any]) -> None:
    found = fields_of(target)
    assert {name: f.default for name, f in found.items()} == defaults
    assert list(found) == list(defaults)


def test_a_field_has_its_type_without_the_annotation() -> None:
    (alpha,) = fields_of(function).values()
    assert (alpha.type, alpha.kinds, alpha.may_be_none) == (float | None, (float,), True)
    (lr,) = fields_of(Base).values()
    assert (lr.type, lr.kinds, lr.may_be_none, lr.setting) == (float, (float,), False, Setting("rate", above=0))


def test_a_constructor_checks_its_arguments() -> None:
    Rule(None, beta=1)
    with pytest.raises(ConfigError, match=r"^beta = 0 is not allowed: beta must be a finite number greater"):
        Rule(None, beta=0)


def test_only_given_values_are_checked_and_the_path_precedes_the_key() -> None:
    check(Base, {"other": NAN})
    with pytest.raises(ConfigError, match=r"^client.lr = -1 is not allowed: lr must be "):
        check_fields(fields_of(Base).values(), {"lr": -1}, "client")


def test_kinds_as_text() -> None:
    assert [str(kind) for kind in Influence] == ["method", "setting", "chance", "none"]


# ---------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("kind", "allowed", "refused"),
    [
        (
            float,
            [0.5, -1, 0, 10**300, np.float32(0.5), np.int64(2)],
            ["1", None, True, NAN, INF, -INF, [1.0], 10**400],
        ),
        (int, [3, -3, 0, 2**63 - 1, np.int64(3)], [3.0, "3", None, False, [3], {}, 2**63, -(2**64)]),
        (bool, [True, False], [0, 1, "true", None]),
        (str, ["", "a"], [1, None, ["a"], b"a"]),
        (float | None, [None, 0.5, 1], ["1", True, NAN]),
        (int | None, [None, 1], [1.0, True]),
        (list[float], [[], [1, 0.5], (0.5,)], [None, 0.5, ["a"], [None], [True], [NAN], "ab"]),
        (list[str], [[], ["a"]], [None, "ab", [1]]),
        (list[float] | None, [None, [1.0]], [[None], 1.0]),
        (dict[str, Any], [{}, {"a": 1}], [None, [], "a"]),
    ],
)
def test_types(kind: Any, allowed: list[object], refused: list[object]) -> None:
    assert [value for value in allowed if not allows(a_field(kind), value)] == []
    assert [value for value in refused if allows(a_field(kind), value)] == []


# ---------------------------------------------------------------- ranges

EDGES = st.sampled_from([None, -2, -1, 0, 0.5, 1, 2])
NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([-2.5, -0.5, 0.25, 0.5, 1.5]), st.floats())


@PROPERTY
@given(least=EDGES, above=EDGES, most=EDGES, below=EDGES, value=NUMBERS)
def test_a_number_is_allowed_just_inside_its_limits(
    least: float | None, above: float | None, most: float | None, below: float | None, value: float
) -> None:
    inside = math.isfinite(value)
    inside = inside and value >= (-INF if least is None else least) and value <= (INF if most is None else most)
    inside = inside and value > (-INF if above is None else above) and value < (INF if below is None else below)
    limits = {"least": least, "above": above, "most": most, "below": below}
    assert allows(a_field(float, **limits), value) == inside
    assert allows(a_field(list[float], **limits), [value]) == inside
    assert allows(a_field(float | None, **limits), None)


@PROPERTY
@given(st.text())
def test_only_the_named_options_are_allowed(text: str) -> None:
    assert allows(a_field(str, options=("a", "b")), text) == (text in {"a", "b"})


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("kind", "limits", "words"),
    [
        (float, {}, "a finite number"),
        (int, {}, "a whole number"),
        (float, {"above": 0}, "a finite number greater than 0"),
        (float, {"least": 0.5}, "a finite number of at least 0.5"),
        (float, {"most": 1}, "a finite number of at most 1"),
        (float, {"below": 1}, "a finite number less than 1"),
        (int, {"least": 1}, "a whole number of at least 1"),
        (int, {"least": 0, "most": 2**63 - 1}, "a whole number in [0, 2**63 - 1]"),
        (float, {"above": 0, "most": 1}, "a finite number in (0, 1]"),
        (float, {"least": 0, "below": 1}, "a finite number in [0, 1)"),
        (float, {"above": 0, "unit": "seconds"}, "a finite number greater than 0 (seconds)"),
        (float | None, {"above": 1}, "a finite number greater than 1, or null"),
        (str, {}, "text"),
        (str, {"options": ("a",)}, "'a'"),
        (str, {"options": ("a", "b", "c")}, "'a', 'b' or 'c'"),
        (str | None, {"options": ("a", "b")}, "'a' or 'b', or null"),
        (bool, {}, "true or false"),
        (list[str], {}, "a list, each item text"),
        (list[float], {"above": 0, "most": 1}, "a list, each item a finite number in (0, 1]"),
        (dict[str, Any], {}, "a mapping"),
        (Any, {}, "any value"),
    ],
)
def test_allowed_values_in_words(kind: Any, limits: dict[str, Any], words: str) -> None:
    assert a_field(kind, **limits).allowed == words


def test_an_error_message_contains_key_value_and_what_is_allowed() -> None:
    with pytest.raises(ConfigError) as caught:
        a_field(str, options=("a", "b")).check("strategy.inner.beta", "c")
    assert str(caught.value) == "strategy.inner.beta = 'c' is not allowed: beta must be 'a' or 'b'"
