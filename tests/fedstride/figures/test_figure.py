"""Figures from states that add over clients: the form in a message, the sum, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstride.errors import ConfigError, RunError
from fedstride.figures.calibration import Calibration, Reliability
from fedstride.figures.concordance import CIndex
from fedstride.figures.figure import Figure, fault_of, pooled, state_of, try_out, value_of
from fedstride.figures.figure_states import MAX_NUMBERS, Reported, added, checked, form, packed, unpacked


class Cost(Figure):
    """A mean cost of decisions: 5 for a missed positive, 1 for a false alarm."""

    better = "smaller"
    unit = "EUR"

    def state(self, outputs: np.ndarray, targets: np.ndarray) -> Mapping[str, Any]:
        found = outputs[:, 1] > outputs[:, 0]
        cost = 5.0 * (~found & (targets == 1)) + 1.0 * (found & (targets == 0))
        return {"cost": cost.sum(), "rows": len(targets)}

    def value(self, state: Mapping[str, np.ndarray]) -> float:
        return float(state["cost"] / state["rows"])


class Confusion(Figure):
    """The confusion matrix as shares: several numbers, without a better direction."""

    def state(self, outputs: np.ndarray, targets: np.ndarray) -> Mapping[str, Any]:
        found = np.zeros((outputs.shape[1], outputs.shape[1]), dtype=np.int64)
        np.add.at(found, (targets, outputs.argmax(1)), 1)
        return {"counts": found}

    def value(self, state: Mapping[str, np.ndarray]) -> list[float]:
        return [float(x) for x in (state["counts"] / state["counts"].sum()).reshape(-1)]


FIGURES = (Cost(), Confusion(), Calibration(), Reliability())
"""Figures whose state is a sum over rows."""

rows = st.lists(st.tuples(st.floats(-20, 20), st.floats(-20, 20), st.integers(0, 1)), min_size=1, max_size=40)


def arrays(table: list[tuple[float, float, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([row[:2] for row in table]), np.array([row[2] for row in table], dtype=np.int64)


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES, ids=lambda each: type(each).__name__)
@given(sites=st.lists(rows, min_size=1, max_size=6))
def test_the_figure_over_all_sites_is_that_of_the_pooled_rows(
    figure: Figure, sites: list[list[tuple[float, float, int]]]
) -> None:
    sent = [packed(len(site), state_of(figure, "mine", *arrays(site))) for site in sites]
    together = [row for site in sites for row in site]
    expected = value_of(figure, "mine", state_of(figure, "mine", *arrays(together)))
    found = pooled(figure, "mine", sent, [float(len(site)) for site in sites])
    assert found.error is None
    np.testing.assert_allclose(found.value, expected, rtol=1e-12, atol=1e-12)
    assert all(fault_of(figure, each) is None for each in sent)


@pytest.mark.slow
@given(sites=st.lists(rows, min_size=2, max_size=6), seed=st.integers(0, 100))
def test_counts_are_exact_and_the_order_of_the_sites_does_not_matter(
    sites: list[list[tuple[float, float, int]]], seed: int
) -> None:
    sent = [packed(len(site), state_of(Confusion(), "mine", *arrays(site))) for site in sites]
    weights = [float(len(site)) for site in sites]
    state = added([unpacked(each) for each in sent], weights)
    together = checked(Confusion().state(*arrays([row for site in sites for row in site])))
    assert state["counts"].tolist() == together["counts"].tolist()
    costs = [packed(len(site), state_of(Cost(), "mine", *arrays(site))) for site in sites]
    order = np.random.default_rng(seed).permutation(len(sites))
    again = pooled(Cost(), "mine", [costs[k] for k in order], [weights[k] for k in order])
    assert again == pooled(Cost(), "mine", costs, weights)


shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
names = st.from_regex(r"[a-z_][a-z0-9_]{0,12}", fullmatch=True)


@pytest.mark.slow
@given(st.dictionaries(names, shapes, min_size=1, max_size=5), st.integers(1, 10**9), st.integers(0, 2**32))
def test_a_state_comes_out_of_a_message_as_it_went_in(
    forms: dict[str, tuple[int, ...]], count: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    state = checked({name: draw.standard_normal(shape) for name, shape in forms.items()})
    found = unpacked(packed(count, state))
    assert found.rows == count and list(found.state) == sorted(forms)
    for name, array in state.items():
        assert found.state[name].shape == array.shape and found.state[name].tobytes() == array.tobytes()
    assert form(found.state) == form(state)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True) | st.integers(-3, 130), max_size=60))
def test_any_list_of_numbers_is_a_state_or_one_line(numbers: list[float]) -> None:
    fault = fault_of(Cost(), [float(x) for x in numbers])
    if fault is not None:
        assert len(fault.splitlines()) == 1
    else:
        found = unpacked([float(x) for x in numbers])
        assert found.rows >= 1 and found.state


GOOD = packed(7, checked({"ab": np.ones(3), "c": 2.0}))


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([], "a state that is cut off: 0 numbers, expected 1"),
        ([0.0, *GOOD[1:]], "0 as rows of a state, expected a whole number from 1 to 1e+12"),
        ([2.5, *GOOD[1:]], "2.5 as rows of a state"),
        ([1e13, *GOOD[1:]], "1e+13 as rows"),
        (GOOD[:1], "a state without arrays"),
        (GOOD[:-1], "cut off"),
        ([*GOOD, *GOOD[1:]], "are there twice"),
        ([*GOOD[:1], 1.0, 32.0, 0.0, 5.0], "no words"),
        ([*GOOD[:1], 1.0, 1e6, 0.0, 5.0], "1e+06 as a letter"),
        ([*GOOD[:1], 1.0, 97.0, 9.0], "9 as dimensions"),
        ([*GOOD[:1], 1.0, 97.0, 1.0, 1e9], "1e+09 as a length"),
        ([*GOOD[:-1], math.inf], "not finite"),
        ([*GOOD[:-1], math.nan], "not finite"),
    ],
)
def test_a_state_that_cannot_be_is_refused_with_one_line(numbers: list[float], words: str) -> None:
    fault = fault_of(Cost(), numbers)
    assert fault is not None and words in fault and len(fault.splitlines()) == 1


def test_a_client_counts_with_its_weight_whatever_rows_it_claims() -> None:
    honest = [Reported(10.0, {"a": np.array(1.0)}), Reported(30.0, {"a": np.array(3.0)})]
    assert added(honest, [10.0, 30.0])["a"] == 4.0
    liar = Reported(1e9, {"a": np.array(1e9)})  # says that it has 10^9 rows, and has the weight of 20
    total = added([*honest, liar], [10.0, 30.0, 20.0])["a"]
    assert total == pytest.approx(24.0)


# ---------------------------------------------------------------- a user's code


class Grows(Cost):
    def state(self, outputs: np.ndarray, targets: np.ndarray) -> Mapping[str, Any]:
        return {"each": np.ones(len(targets))}


class Text(Cost):
    def state(self, outputs: np.ndarray, targets: np.ndarray) -> Mapping[str, Any]:
        return {"cost": "much"}


class Broken(Cost):
    def state(self, outputs: np.ndarray, targets: np.ndarray) -> Mapping[str, Any]:
        raise KeyError("no such thing")


class Empty(Cost):
    def state(self, outputs: np.ndarray, targets: np.ndarray) -> Mapping[str, Any]:
        return {}


class NotFinite(Cost):
    def state(self, outputs: np.ndarray, targets: np.ndarray) -> Mapping[str, Any]:
        return {"cost": np.inf, "rows": 1}


class Huge(Cost):
    def state(self, outputs: np.ndarray, targets: np.ndarray) -> Mapping[str, Any]:
        return {"cost": np.zeros(MAX_NUMBERS + 1)}


class Misspelt(Cost):
    def state(self, outputs: np.ndarray, targets: np.ndarray) -> Mapping[str, Any]:
        return {"my cost": 1.0}


class NoValue(Cost):
    def value(self, state: Mapping[str, np.ndarray]) -> float:
        return float(state["price"])


class Matrix(Cost):
    def value(self, state: Mapping[str, np.ndarray]) -> Any:
        return np.ones((2, 2))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Grows, "has other arrays for 13 rows, {'each': (13,)}, than for 8"),
        (Text, "'cost' is no array of numbers"),
        (Broken, "KeyError: 'no such thing'"),
        (Empty, "dict instead of a dict of arrays with at least one"),
        (NotFinite, "not finite"),
        (Huge, "at most 100 of 4000 together"),
        (Misspelt, "the name 'my cost'"),
        (NoValue, "has no value: KeyError: 'price'"),
        (Matrix, "has a value of shape (2, 2)"),
        (Figure, "has no state(outputs, targets)"),
    ],
)
def test_a_figure_that_cannot_be_computed_is_found_before_any_work(kind: Callable[[], Figure], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        try_out(kind(), "mine", "class", 2)
    text = str(caught.value)
    assert words in text and "'mine'" in text and len(text.splitlines()) == 1


class Forms(Figure):
    """Checks what it gets."""

    def __init__(self, columns: int, dtype: str) -> None:
        self.columns, self.dtype = columns, dtype

    def state(self, outputs: np.ndarray, targets: np.ndarray) -> Mapping[str, Any]:
        assert outputs.dtype == np.float64 and outputs.ndim == 2 and targets.dtype == self.dtype
        assert targets.shape == ((len(outputs),) if self.columns == 0 else (len(outputs), self.columns))
        return {"rows": len(targets)}

    def value(self, state: Mapping[str, np.ndarray]) -> float:
        return float(state["rows"])


@pytest.mark.parametrize(
    ("target", "outputs", "columns", "dtype"),
    [
        ("class", 5, 0, "int64"),
        ("labels", 3, 3, "float64"),
        ("values", 2, 2, "float64"),
        ("survival", 1, 2, "float64"),
    ],
)
def test_the_made_up_rows_have_the_form_of_the_task(target: str, outputs: int, columns: int, dtype: str) -> None:
    try_out(Forms(columns, dtype), "mine", target, outputs)


@pytest.mark.parametrize("figure", [*FIGURES[:1], Calibration(), CIndex()], ids=lambda each: type(each).__name__)
def test_what_can_be_computed_passes(figure: Figure) -> None:
    target, outputs = ("survival", 1) if isinstance(figure, CIndex) else ("class", 2)
    try_out(figure, "mine", target, outputs)


def test_a_division_by_zero_is_no_value() -> None:
    class Ratio(Cost):
        def value(self, state: Mapping[str, np.ndarray]) -> float:
            return 1.0 / float(state["rows"] - state["rows"])

    assert math.isnan(value_of(Ratio(), "mine", {"rows": np.array(3.0)}))  # type: ignore[arg-type]
    assert value_of(Cost(), "mine", {"rows": np.array(0.0), "cost": np.array(1.0)}) == math.inf
    with pytest.raises(RunError, match="has no value: KeyError"):
        value_of(NoValue(), "mine", {"rows": np.array(3.0)})


# ---------------------------------------------------------------- min_rows


@pytest.mark.parametrize(
    ("entries", "least", "leaves"),
    [
        ([20.0, 7.25], 20, True),
        ([19.0, 7.25], 20, False),
        ([0.0, 100.0], 20, True),
        ([1.0], 5, False),
        ([4.5], 5, True),
        ([-3.0], 5, True),
        ([5.0], 5, True),
    ],
)
def test_a_whole_number_below_min_rows_may_be_a_count_and_stays(
    entries: list[float], least: int, leaves: bool
) -> None:
    assert (Cost().discreet(100, checked({"sums": entries}), least) is not None) == leaves
