"""One line of a round: the same figures in words and in columns, with all or few of them."""

from __future__ import annotations

from typing import Any

import pytest

from server_app.reports.round_line import columns, head, line

FULL = {
    "round": 7,
    "train/loss": 0.25,
    "test/accuracy": 0.5,
    "clients": 3,
    "seconds/train": 1.5,
    "seconds/evaluate": 0.25,
}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (FULL, "round   7   train loss 0.2500   test accuracy  50.00 %   3 clients   1.8 s"),
        ({"round": 0, "test/accuracy": 0.125}, "round   0   test accuracy  12.50 %"),
        (
            {"round": 12, "test/accuracy": None, "seconds/train": 2.0},
            "round  12   2.0 s",
        ),
        ({**FULL, "privacy/stddev": 1.0}, "round   7   test accuracy  50.00 %   3 clients   1.8 s"),
    ],
)
def test_a_line_in_words(row: dict[str, Any], said: str) -> None:
    assert line(row, "test/accuracy") == said


def test_a_train_loss_that_decides_stands_there_once() -> None:
    assert line(FULL, "train/loss") == "round   7   train loss     0.25   3 clients   1.8 s"
    titles, figures = head("train/loss"), columns(FULL, "train/loss")
    assert titles.split() == ["round", "train", "loss", "clients", "seconds"]
    assert figures.split() == ["7", "0.25", "3", "1.8"] and len(titles) == len(figures)


@pytest.mark.parametrize("metric", ["test/accuracy", "local/balanced_accuracy"])
def test_columns_stand_under_their_titles(metric: str) -> None:
    titles, figures = head(metric), columns({**FULL, metric: 0.5}, metric)
    assert figures.split() == ["7", "0.2500", "50.00", "%", "3", "1.8"]
    assert len(titles) == len(figures)
    for title, figure in (("round", "7"), ("train loss", "0.2500"), ("clients", " 3"), ("seconds", "1.8")):
        assert titles.index(title) + len(title) == figures.rindex(figure) + len(figure)
