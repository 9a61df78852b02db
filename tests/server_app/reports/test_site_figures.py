"""What a site's figures say of the model, by the rows behind them: intervals, and where there is too little."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from desk import play

from fedstride.figures.intervals_by_counts import LISTS, kinds
from fedstride.figures.score_bins import bins_of, packed
from fedstride.figures.scores import EXACT, SCORES
from server_app.config.compose import compose
from server_app.records.line_files import read_lines
from server_app.reports.sites import TOO_FEW, TOO_FEW_OF_A_CLASS, TOO_WIDE, SiteRecord, Sites, figures_in, over_all

BY_CLASS = ("recall", "specificity", "balanced_accuracy", "precision", "cohen_kappa", "f1", "sensitivity_at_90")
BY_ROWS = ("brier", "calibration", "c_index", "accuracy", "rmse", "loss")


def wilson(share: float, rows: int) -> tuple[float, float]:
    z = 1.959963984540054
    roots = np.roots(
        [1 + z * z / rows, -(2 * share + z * z / rows), share**2]
    )  # (p - share)^2 = z^2 p (1 - p) / n
    return float(min(roots)), float(max(roots))


def site(metric: str, value: float, rows: int, **more: float) -> SiteRecord:
    found = Sites(compose([]))
    figures = {f"local/{metric}": value, **{f"local/{metric}/{key}": each for key, each in more.items()}}
    found.add(
        [{"round": 1, "client": 0, "status": "used", "num-examples": 50, "local/num-examples": rows} | figures]
    )
    return found.all[0]


@pytest.mark.parametrize("metric", [*BY_CLASS, *BY_ROWS])
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_too_few_rows_say_little_whatever_the_figure(metric: str, rows: int) -> None:
    said = site(metric, 1.0, rows).why_it_says_little(f"local/{metric}")
    assert said == (TOO_WIDE if metric == "accuracy" else TOO_FEW)
    assert site(metric, 0.95, 400).why_it_says_little(f"local/{metric}") == ""


@pytest.mark.parametrize("metric", [*BY_CLASS, "auroc", "jaccard", "matthews"])
@pytest.mark.parametrize(("fewest", "said"), [(0, TOO_FEW_OF_A_CLASS), (9, TOO_FEW_OF_A_CLASS), (10, "")])
def test_too_few_of_a_class_say_little_of_a_figure_by_class(metric: str, fewest: int, said: str) -> None:
    assert site(metric, 0.9, 200, fewest=fewest).why_it_says_little(f"local/{metric}") == said


@pytest.mark.parametrize(("right", "rows"), [(0, 1), (1, 1), (2, 32), (17, 32), (32, 32)])
@pytest.mark.parametrize("metric", ["accuracy", "top5_accuracy"])
def test_a_share_of_all_rows_has_wilsons_interval(metric: str, right: int, rows: int) -> None:
    figure = site(metric, right / rows, rows).figures[f"local/{metric}"]
    assert figure.interval == pytest.approx(wilson(right / rows, rows), abs=1e-9)


def test_no_other_figure_has_it() -> None:
    for metric in {*SCORES} - {"accuracy", "top5_accuracy"}:
        assert site(metric, 0.5, 32).figures[f"local/{metric}"].interval is None, metric


def test_a_users_own_figure_is_one_too() -> None:
    """What is below a figure, and the number of rows, are none."""
    found = site("cost", 3.5, 32, error=0.1).figures
    assert set(found) == {"local/cost"}
    assert (found["local/cost"].value, found["local/cost"].rows, found["local/cost"].interval) == (3.5, 32, None)
    assert set(over_all({"round": 3, "clients": 2, "local/cost": 3.0, "fednnnn/n": 1.0}, [])) == {"local/cost"}


@pytest.mark.parametrize(("fewest", "known"), [(4, False), (9, False), (10, True)])
def test_an_auroc_of_few_rows_of_a_class_has_none(fewest: int, known: bool) -> None:
    figure = site("auroc", 0.75, 32, deviation=0.1, fewest=fewest).figures["local/auroc"]
    assert (figure.interval is not None) is known


def test_over_all_the_rows_are_those_of_the_sites() -> None:
    sites = [site("recall", 1.0, rows) for rows in (3, 4)]
    row: dict[str, Any] = {"local/recall": 1.0, "test/accuracy": 0.9}
    found = over_all(row, sites)
    assert found["local/recall"].why_it_says_little == TOO_FEW
    assert found["test/accuracy"].why_it_says_little == ""  # of the server's own rows
    assert over_all(row, [*sites, site("recall", 1.0, 3)])["local/recall"].why_it_says_little == ""
    assert figures_in(row)["local/recall"].why_it_says_little == ""  # it is not known of how many rows


@pytest.mark.parametrize("y", [[1], [0, 1], [0] * 12, [1] * 28 + [0] * 4, [0, 1, 2, 2, 1, 0, 0]])
def test_rows_of_each_class_are_those_that_were_sent(y: list[int]) -> None:
    labels, classes = np.array(y), max(2, max(y) + 1)
    have = np.bincount(labels, minlength=classes)
    rates = [*(have / len(y)), *np.zeros(classes), *np.zeros(classes)]
    for name, lists in LISTS.items():
        sent = rates[: lists * classes]
        assert kinds(name, sent, len(y)) == [*have, *(len(y) - have)]
    scores = np.random.default_rng(1).normal(size=(len(y), classes))
    columns = [bins_of(scores[:, k], labels == k, 8, 1) for k in range(classes)]
    for name in EXACT:
        assert kinds(name, packed(columns), len(y)) == [*have, *(len(y) - have)]
    assert kinds("accuracy", [0.5], len(y)) == kinds("r2", [0.1, 0.2, 0.3], len(y)) == []


@pytest.mark.slow
def test_the_records_say_how_many_rows_a_class_has(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    files = []
    for place, (ill, well) in enumerate([(80, 60), (60, 9), (30, 0)]):
        files.append(tmp_path / f"ward-{place}.csv")
        y = ["yes"] * ill + ["no"] * well
        pd.DataFrame({"x": rng.normal(size=len(y)), "label": y}).to_csv(files[-1], index=False)
    named = ",".join(f"'{file}'" for file in files)
    folder = play(
        tmp_path, "task=own_table", "task.columns=['x']", "task.classes=['no','yes']", "model=mlp", "rounds=1",
        "task.metrics=['recall','accuracy','auroc','sensitivity_at_90']", "partition=own", "clients=3",
        f"partition.files=[{named}]", "holdout=0.4", small=False,
    ).folder  # fmt: skip
    rows = [row for row in read_lines(folder / "clients.jsonl") if row["round"] == 1]
    assert [row["local/recall/fewest"] for row in rows] == [row["local/sensitivity_at_90/fewest"] for row in rows]
    assert rows[2]["local/recall/fewest"] == 0 and 0 < rows[1]["local/recall/fewest"] <= 9
    assert 10 <= rows[0]["local/recall/fewest"] <= 60
    assert all("local/accuracy/fewest" not in row for row in rows)
    last = read_lines(folder / "metrics.jsonl")[-1]
    assert last["local/recall/fewest"] == sum(row["local/recall/fewest"] for row in rows)
    card = (folder / "MODEL_CARD.md").read_text()
    few = card.partition("too few rows to judge")[2]
    assert f"1 (ward-1): {TOO_FEW_OF_A_CLASS}" in few and "0 (ward-0)" not in few
    (line,) = [line for line in card.splitlines() if line.startswith("| 1 (ward-1)")]
    assert line.count("(") == 2, "only accuracy has an interval"
    assert math.isfinite(rows[1]["local/auroc/deviation"])
