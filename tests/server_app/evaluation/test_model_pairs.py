"""The texts of two models at a site: one form of numbers, and the direction of the difference."""

from __future__ import annotations

import pytest

from fedstride.figures.intervals import NONE, Interval
from server_app.evaluation.differences import HEAD, TOO_FEW, UNMOVED, ModelPair


@pytest.mark.parametrize(
    ("figure", "values", "texts"),
    [
        ("auroc", (0.9, 0.91, -0.003179, -0.024, 0.0176), ["0.9000", "0.9100", "-0.0032", "-0.0240 to +0.0176"]),
        (
            "accuracy",
            (0.8, 0.82366, -0.02366, -0.172, 0.0),
            ["80.00 %", "82.37 %", "-2.37 points", "-17.20 points to +0.00 points"],
        ),
        ("rmse", (12.3456, 12.5, -0.2, -0.3, 0.1), ["12.35", "12.5", "-0.2", "-0.3 to +0.1"]),
    ],
)
def test_numbers_have_the_digits_of_the_figure(figure: str, values: tuple[float, ...], texts: list[str]) -> None:
    first, second, difference, *ends = values
    assert ModelPair(figure, first, second, difference, Interval(*ends)).cells == texts


def test_in_place_of_an_interval() -> None:
    assert ModelPair("auroc", 0.5, 0.5, 0.0, NONE).cells[-1] == TOO_FEW
    assert ModelPair("auroc", 0.5, 0.5, 0.0, Interval(0.0, 0.0)).cells[-1] == UNMOVED


def test_the_heading_says_the_direction() -> None:
    assert HEAD[2] == f"{HEAD[0]} − {HEAD[1]}"
