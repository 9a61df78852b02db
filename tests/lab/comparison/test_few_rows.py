"""Sites that say little in a comparison: a row or two, one class, models that agree on each row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from test_compare import NAMES, TRAINING, table
from torch import nn
from typer.testing import CliRunner

from fedstride.errors import DataError
from fedstride.figures.intervals_by_counts import LISTS
from fedstride.figures.scores import EXACT
from fedstride.tasks.evaluation.comparison import At
from fedstride.tasks.evaluation.per_row import PerRow, per_row
from fedstride.tasks.goals import goal_of
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.spec import Spec, Target
from lab.cli.main import app
from lab.comparison import page
from lab.comparison.comparison_figures import everywhere
from lab.comparison.evaluate import measure
from lab.prediction.model import load

ALL_OF_THEM = ["accuracy", "auroc", "brier", "calibration", "average_precision", "sensitivity_at_90", *LISTS]
BY_CLASS = {*LISTS, *EXACT}
PAIR = ("one", "other")


class Chosen(nn.Module):
    """A model whose outputs are two of the numbers of each row."""

    def __init__(self, start: int) -> None:
        super().__init__()
        self.start = start

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, self.start : self.start + 2]


def of_models(y: Sequence[int], *margins: Sequence[float], figures: Sequence[str]) -> dict[str, list[PerRow]]:
    """Two models with these margins of class 1 over class 0 in each row."""
    x = np.zeros((len(y), 4), np.float32)
    x[:, 1], x[:, 3] = margins
    spec = Spec(Inputs(Kind.TABLE, (4,)), 2, Target.CLASS)
    rows = Examples(
        x, np.array(y, np.int64), spec, device=torch.device("cpu"), goal=goal_of(spec, None, list(figures))
    )
    return {name: [per_row(Chosen(2 * place), rows)] for place, name in enumerate(PAIR)}


def drawn(rows: int, seed: int, figures: Sequence[str] = ALL_OF_THEM) -> dict[str, list[PerRow]]:
    """A site whose models differ, with about as many rows of each class."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    margins = (2 * y - 1 + rng.normal(0, 1.5, (2, rows))).tolist()
    return of_models(y.tolist(), *margins, figures=figures)


def found(*sites: dict[str, list[PerRow]]) -> list[At]:
    return everywhere([f"s{place}" for place in range(len(sites))], sites, [PAIR])


@pytest.mark.slow
def test_one_row_makes_no_clear_difference_over_all() -> None:
    agree = of_models([0, 1] * 18, *[[-1.0, 1.0] * 18] * 2, figures=["accuracy", "auroc"])
    row = of_models([1], [1.0], [-1.0], figures=["accuracy", "auroc"])
    big, small, together = found(agree, row)
    assert small.differences[PAIR]["accuracy"].value == 1.0 and not small.enough["accuracy"]
    assert (together.rows, together.left_out) == (36, ["s1"])
    for at in (big, small, together):
        for figure in ("accuracy", "auroc"):
            for cell in (at.differences[PAIR][figure], *(cells[figure] for cells in at.figures.values())):
                assert not cell.interval.known, (at.site, figure)
    assert together.differences[PAIR]["accuracy"].value == 0.0
    notes = page.notes([big, small, together], "accuracy", [1])
    assert "all: without s1, where fewer than 10 rows were measured" in notes
    assert any(note.startswith("no interval at s0, all: the number is the same") for note in notes)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_few_rows_have_no_interval_whatever_the_figure(rows: int) -> None:
    big, small, together = found(drawn(60, 1), drawn(rows, 2))
    for figure in ALL_OF_THEM:
        assert not small.enough[figure] and big.enough[figure] and together.enough[figure], figure
        for cell in (small.differences[PAIR][figure], small.figures["one"][figure]):
            assert not cell.interval.known and math.isnan(cell.variance), figure
        assert big.differences[PAIR][figure].interval.known, figure
        assert together.differences[PAIR][figure].value == big.differences[PAIR][figure].value


@pytest.mark.slow
@pytest.mark.parametrize(("of_one", "others"), [(9, 40), (40, 3), (30, 0), (0, 30)])
def test_a_figure_by_class_needs_rows_of_each_class(of_one: int, others: int) -> None:
    rng = np.random.default_rng(of_one)
    y = [1] * of_one + [0] * others
    margins = rng.normal(size=(2, len(y))).tolist()
    names = ["accuracy", "auroc", "brier", "f1", "recall", "balanced_accuracy", "cohen_kappa"]
    (at,) = found(of_models(y, *margins, figures=names))  # of one site, there is no row over all
    for figure in names:
        few = figure in BY_CLASS
        assert at.enough[figure] is not few, figure
        assert at.differences[PAIR][figure].interval.known is not few, figure


@pytest.mark.slow
def test_over_all_it_is_the_bootstrap_of_the_sites_that_count() -> None:
    rng = np.random.default_rng(8)
    margins = {rows: rng.normal(0.4, 1.0, (2, rows)) for rows in (50, 30, 2)}
    sites = [of_models([1] * rows, *margins[rows].tolist(), figures=["accuracy"]) for rows in (50, 30, 2)]
    *_, together = found(*sites)
    right = {rows: both > 0 for rows, both in margins.items()}
    draws = []
    for _ in range(4000):
        apart = 0.0
        for rows in (50, 30):
            again = rng.integers(0, rows, rows)
            apart += right[rows][0, again].sum() - right[rows][1, again].sum()
        draws.append(apart / 80)
    cell = together.differences[PAIR]["accuracy"]
    assert cell.interval == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.02)
    assert cell.variance == pytest.approx(np.var(draws), rel=0.15)
    assert (together.rows, together.left_out) == (80, ["s2"])


def test_a_site_where_models_agree_counts_over_all() -> None:
    agree = of_models([1] * 50, [1.0] * 50, [1.0] * 50, figures=["accuracy"])
    differ = of_models([1] * 25, [1.0] * 25, ([1.0] * 15) + [-1.0] * 10, figures=["accuracy"])
    one, other, together = found(agree, differ)
    assert not one.differences[PAIR]["accuracy"].interval.known and one.enough["accuracy"]
    low, high = other.differences[PAIR]["accuracy"].interval
    assert together.differences[PAIR]["accuracy"].value == pytest.approx(10 / 75)
    assert 0 < together.differences[PAIR]["accuracy"].interval.low < low and not together.left_out
    assert together.differences[PAIR]["accuracy"].interval.high < high


@pytest.mark.slow
def test_where_no_site_has_enough_all_count_and_none_has_an_interval() -> None:
    *_, together = found(*(drawn(9, seed, ["accuracy", "auroc"]) for seed in range(4)))
    assert together.rows == 36 and not together.left_out and not any(together.enough.values())
    assert not any(cell.interval.known for cell in together.differences[PAIR].values())


def overrides(files: Sequence[object]) -> list[str]:
    named = ",".join(f"'{file}'" for file in files)
    return [
        "task=own_table", "task.columns=[dose,'sex=f|m']", "task.classes=[no,yes]", "partition=own",
        f"partition.files=[{named}]", "task.metrics=[accuracy]", *TRAINING, "rounds=1",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3])
def test_a_site_without_two_different_rows_is_named(tmp_path: Path, rows: int) -> None:
    files = [table(tmp_path / f"{name}.csv", 40, place) for place, name in enumerate(NAMES)]
    run = CliRunner().invoke(
        app, ["run", *overrides(files), f"out={tmp_path}", "name=run"], catch_exceptions=False
    )
    assert run.exit_code == 0, run.output
    pd.DataFrame({"dose": [1.0] * rows, "sex": "f", "label": "no"}).to_csv(files[1], index=False)
    said = rf"site south has {rows} rows, which do not give holdout = 0.2 one to train on and .*leave out the site"
    with pytest.raises(DataError, match=said):
        CliRunner().invoke(
            app, ["compare", *overrides(files), "--out", str(tmp_path / "out")], catch_exceptions=False
        )
    model = load(tmp_path / "run")
    with pytest.raises(DataError, match=said):
        measure({"run": model}, model.config, all_rows=False)
