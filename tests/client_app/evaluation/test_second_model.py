"""What a client says of two models: differences follow the rules for figures, and are rounded."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from client_app.evaluation.second_model import differences
from fedstride.figures.differences import Difference, fault_of, unpacked
from fedstride.figures.intervals import Interval
from fedstride.tasks.evaluation.per_row import PerRow, per_row
from fedstride.tasks.goals import goal_of
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.spec import Spec, Target


def examples(counts: list[int], figures: list[str], seed: int = 0, target: Target = Target.CLASS) -> Examples:
    """Rows of two numbers, so many of each class."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
    x = rng.normal(size=(len(y), 2)).astype(np.float32)
    if target is Target.VALUES:
        y = x[:, :1] + rng.normal(size=(len(y), 1)).astype(np.float32)
    spec = Spec(Inputs(Kind.TABLE, (2,)), 1 if target is Target.VALUES else len(counts), target)
    return Examples(x, y, spec, device=torch.device("cpu"), goal=goal_of(spec, None, figures))


def rows_of(given: Examples, seed: int) -> PerRow:
    torch.manual_seed(seed)
    return per_row(nn.Linear(2, given.spec.outputs), given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "without"),
    [
        ([40, 30], set[str]()),
        ([40, 9], {"auroc", "average_precision", "f1"}),
        ([9, 60], {"auroc", "average_precision", "f1"}),
        ([4, 5], {"auroc", "average_precision", "accuracy", "f1", "brier"}),
    ],
)
def test_few_rows_have_a_difference_and_no_interval(counts: list[int], without: set[str]) -> None:
    names = ["auroc", "average_precision", "accuracy", "f1", "brier"]
    each = examples(counts, names)
    found = differences(rows_of(each, 1), rows_of(each, 2), 3)
    assert set(found) == set(names)
    assert {name for name, one in found.items() if not one.interval.known} == without
    for name, one in found.items():
        assert len(one.packed()) == (1 if name in without else 4)
        assert fault_of(one.packed()) is None


@pytest.mark.parametrize("counts", [[30, 0], [0, 25], [12]])
def test_a_figure_that_the_rows_do_not_have_is_left_out(counts: list[int]) -> None:
    each = examples(counts if len(counts) > 1 else [12, 0], ["auroc", "accuracy"])
    assert set(differences(rows_of(each, 1), rows_of(each, 2), 0)) == {"accuracy"}


def test_values_and_figures_that_are_several_numbers() -> None:
    values = examples([50], ["rmse", "mae", "r2"], target=Target.VALUES)
    found = differences(rows_of(values, 1), rows_of(values, 2), 0)
    assert set(found) == {"rmse", "mae", "r2"} and all(one.interval.known for one in found.values())
    several = examples([50, 50], ["reliability"])
    assert differences(rows_of(several, 1), rows_of(several, 2), 0) == {}


@pytest.mark.slow
def test_a_model_and_itself_and_the_other_way_round() -> None:
    each = examples([50, 40], ["auroc", "accuracy"])
    one, other = rows_of(each, 1), rows_of(each, 2)
    assert differences(one, one, 0)["auroc"] == Difference(0.0, Interval(0.0, 0.0), 0.0)
    there, back = differences(one, other, 0)["auroc"], differences(other, one, 0)["auroc"]
    assert there.value == -back.value and there.interval == pytest.approx(
        (-back.interval.high, -back.interval.low)
    )


@given(
    st.floats(-1.0, 1.0, allow_subnormal=False),
    st.floats(1e-6, 0.9),
    st.floats(0.1, 3.0),
)
def test_what_is_sent_has_two_digits_of_half_the_interval(value: float, half: float, factor: float) -> None:
    whole = Difference(value, Interval(value - half, value + half), half / factor)
    sent = unpacked(whole.packed())
    step = 10.0 ** (math.floor(math.log10((whole.interval.high - whole.interval.low) / 2)) - 1)
    for one, other in zip(
        (sent.value, *sent.interval, sent.deviation), (value, *whole.interval, whole.deviation), strict=True
    ):
        assert abs(one - other) <= 0.5001 * step
        assert one / step == pytest.approx(round(one / step), abs=1e-6 + 1e-9 * abs(one / step))
    assert fault_of(whole.packed()) is None or factor * 10 < 1


@pytest.mark.parametrize(
    ("value", "sent"), [(0.1251, 0.13), (-0.0876, -0.088), (12.34, 12.0), (0.0, 0.0), (3e-7, 3e-7)]
)
def test_without_an_interval_it_has_two_digits(value: float, sent: float) -> None:
    assert Difference(value).packed() == [sent]


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([], "a list of 0 numbers"),
        ([0.1, 0.2, 0.3], "a list of 3 numbers"),
        ([math.inf], "inf is not finite"),
        ([0.1, 0.0, math.nan, 0.1], "nan is not finite"),
        ([1.5], r"1.5 is not in \[-1, 1\]"),
        ([0.5, -40.0, 1.0, 0.1], r"-40 is not in \[-10, 10\]"),
        ([0.5, 0.6, 0.4, 0.1], "ends before it begins"),
        ([0.5, 0.4, 0.6, -1.0], "a negative deviation"),
    ],
)
def test_numbers_that_are_no_difference(numbers: list[float], said: str) -> None:
    import re

    assert re.search(said, fault_of(numbers, 1.0) or "")
