"""A rule's state comes back from a checkpoint as it was; what cannot be stored is refused in one line."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import federation as fed
import numpy as np
import pytest

from fedstride.errors import ConfigError, RunError
from strategies import FedAvg
from strategies.shell.rule_state import check_values, flat, nested, pack, unpack


class Kept(NamedTuple):
    """Defaults of each kind, each of which may be replaced by a value of each kind."""

    count: Any = 0
    nothing: Any = None
    arrays: Any = {}  # noqa: RUF012
    text: Any = ""
    flag: Any = False


VALUES = [
    0.7,
    3,
    True,
    "x",
    None,
    {},
    np.array([1.0, 2.0]),
    np.array(2),
    {"w": np.ones(2, np.float32), "b/c": np.zeros(0)},
]


def through_json(entries: dict[str, Any]) -> dict[str, Any]:
    arrays = {key: value for key, value in entries.items() if isinstance(value, np.ndarray)}
    return json.loads(json.dumps({key: value for key, value in entries.items() if key not in arrays})) | arrays


def assert_same(got: Any, want: Any) -> None:
    assert type(got) is type(want)
    if isinstance(want, dict):
        assert list(got) == list(want)
        for name in want:
            assert_same(got[name], want[name])
    elif isinstance(want, np.ndarray):
        assert got.dtype == want.dtype and got.shape == want.shape and (got == want).all()
    else:
        assert got == want


@pytest.mark.parametrize("field", Kept._fields)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_each_value_comes_back_with_its_type(field: str, value: Any) -> None:
    state = Kept(**{field: value})
    back = unpack(Kept, through_json(pack(state)))
    for got, want in zip(back, state, strict=True):
        assert_same(got, want)


@pytest.mark.parametrize("value", [np.float32(0.5), np.int64(3), np.bool_(True), np.float64(0.1)])
def test_a_number_of_numpy_comes_back_as_pythons(value: Any) -> None:
    assert_same(unpack(Kept, through_json(pack(Kept(count=value)))).count, value.item())


class Numbers(NamedTuple):
    whole: int = 0
    share: float = 0.0
    flag: bool = False


@pytest.mark.parametrize("field", Numbers._fields)
def test_a_text_is_no_number(field: str) -> None:
    with pytest.raises(
        RunError, match=f"a rule: '{field}' of its state is a text, and its annotation says a number"
    ):
        pack(Numbers(**{field: "many"}))
    with pytest.raises(TypeError, match=f"{field} is a text"):
        unpack(Numbers, {**pack(Numbers()), field: "many"})


BAD = [
    [1.0],
    (1, 2),
    {1, 2},
    object(),
    b"x",
    1j,
    {"a": 1.0},
    {1: np.ones(2)},
    {"a": {"b": np.ones(1)}},
    np.array(["a"]),
]


@pytest.mark.parametrize("field", Kept._fields)
@pytest.mark.parametrize("value", BAD, ids=lambda value: type(value).__name__)
def test_what_cannot_be_stored_is_refused_in_the_round_that_made_it(field: str, value: Any) -> None:
    class Mine(FedAvg):
        State = Kept

        def rule(self, sent: Any, cohort: Any, state: Any) -> Any:
            return super().rule(sent, cohort, state)._replace(state=Kept(**{field: value}))

    with pytest.raises(
        RunError, match=rf"^Mine: '{field}' of its state is a?.*, which cannot be stored; use a number"
    ) as e:
        fed.play(Mine(**fed.OPEN), 1, {"w": np.zeros(3, np.float32)}, lambda model, n: [model] * 3)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("state", [{"n": 1}, (1, 2), None, 3])
def test_a_state_that_is_none_is_refused(state: Any) -> None:
    with pytest.raises(RunError, match=r"^mine returns a state that is a .*; it must be its State, a NamedTuple$"):
        pack(state, "mine")


def test_a_field_without_default_and_a_default_that_cannot_be_stored_are_refused_at_construction() -> None:
    class Without(NamedTuple):
        n: int
        m: int = 0

    class Bad(NamedTuple):
        n: Any = [1]  # noqa: RUF012

    class Plain:
        pass

    for kind, text in (
        (Without, r"^Mine.State = 'no default for n' is not allowed: State must be a default for each field"),
        (Bad, r"^Mine.State.n = 'list' is not allowed: n must be a number, a text, None, an array, or a dict"),
        (Plain, r"^Mine.State = 'Plain' is not allowed: State must be a NamedTuple"),
    ):
        with pytest.raises(ConfigError, match=text):
            type("Mine", (FedAvg,), {"State": kind})(**fed.OPEN)


def test_a_missing_number_is_an_error() -> None:
    with pytest.raises(KeyError, match="count"):
        unpack(Kept, {})


def test_values_of_a_users_state_dict_come_back() -> None:
    values = {"velocity": {"a": np.ones(2)}, "none": None, "empty": {}, "n": 3}
    check_values(values, "Mine")
    back = nested(through_json(flat(values)), values)
    assert list(back) == list(values)
    for key in values:
        assert_same(back[key], values[key])


@pytest.mark.parametrize("values", [None, [1], {"a/b": 1}, {1: 2}, {"a": [1]}, {"a": object()}])
def test_a_state_dict_that_cannot_be_stored_is_refused(values: Any) -> None:
    with pytest.raises(RunError, match=r"Mine\.state_dict\(\)"):
        check_values(values, "Mine")
