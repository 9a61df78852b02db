"""Tables, plots and reports of runs that are decided by other metrics than test accuracy."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from folders import Call, config, lines, make

from fedstride.errors import ConfigError
from lab.plots import draw, kind
from lab.report import report
from lab.results.run_folders import Run, by_headline, load
from lab.results.tables import Statistic, compare_all

RMSE, AUROC, ACCURACY = "test/rmse", "local/auroc", "test/accuracy"


def decided(folder: Path, metric: str, values: Sequence[float], *overrides: str) -> Run:
    """A run that is decided by this metric, with these values of rounds 1, 2, ..."""
    settings = config(*overrides, f"best={metric}", f"rounds={len(values)}")
    make(folder, settings, [None] * len(values))
    rows: list[Mapping[str, object]] = [{"round": 0, metric: 0.5}]
    rows += [{"round": i, metric: value, "seconds/train": 1.0} for i, value in enumerate(values, start=1)]
    lines(folder / "metrics.jsonl", rows)
    return load(folder)


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    return [
        decided(tmp_path / "a", RMSE, [0.4, 0.2, 0.3], "strategy=fedavg"),
        decided(tmp_path / "b", RMSE, [0.45, 0.4, 0.35], "strategy=fednnnn"),
        decided(tmp_path / "c", AUROC, [0.6, 0.8], "strategy=fedavg", "client.lr=0.01"),
        decided(tmp_path / "d", ACCURACY, [0.6, 0.9], "strategy=fedavg"),
    ]


@pytest.mark.slow
def test_each_metric_has_a_table(runs: list[Run]) -> None:
    made = compare_all(runs)
    assert [each.grid().title.partition(", mean")[0] for each in made] == [
        "test rmse, last round, smaller is better",
        "local auroc, last round",
        "test accuracy (%), last round",
    ]
    assert [each.grid().rows for each in made] == [
        [["fedavg", "0.3"], ["fednnnn", "0.35"]],
        [["fedavg", "0.8"]],
        [["fedavg", "90.00"]],
    ]
    assert list(by_headline(runs)) == [RMSE, AUROC, ACCURACY]


def test_the_best_round_and_a_target_have_the_direction_of_the_metric(runs: list[Run]) -> None:
    assert compare_all(runs[:2], None, Statistic(best=True))[0].grid().rows == [
        ["fedavg", "0.2"],
        ["fednnnn", "0.35"],
    ]
    (made,) = compare_all(runs[:2], None, Statistic(target=0.38))
    assert made.grid().rows == [["fedavg", "2.0 (1 of 1)"], ["fednnnn", "3.0 (1 of 1)"]]


def test_one_target_for_several_metrics_is_refused(runs: list[Run]) -> None:
    words = r"different metrics: test/rmse \(2\), local/auroc \(1\), test/accuracy \(1\); name only"
    with pytest.raises(ConfigError, match=words):
        compare_all(runs, None, Statistic(target=0.5))
    with pytest.raises(ConfigError, match=words):
        report(runs, target=0.5)
    with pytest.raises(ConfigError, match="test/rmse is between 0 and inf"):
        report(runs[:2], target=-1.0)


@pytest.mark.slow
def test_a_run_that_is_not_completed_is_named_once(tmp_path: Path, runs: list[Run]) -> None:
    failed = load(make(tmp_path / "e", config("best=test/loss"), [0.3], state="failed", reason="x"))
    remarks = [remark for each in compare_all([*runs, failed]) for remark in each.remarks]
    assert remarks == [f"left out: {failed.folder} {failed.remark}"]
    with pytest.raises(ConfigError, match="none of 1 runs is completed"):
        compare_all([failed])


@pytest.mark.slow
@pytest.mark.parametrize(("form", "blocks"), [("text", 3), ("markdown", 3), ("latex", 3), ("csv", 1)])
def test_the_command_prints_a_block_for_each_metric(
    tmp_path: Path, runs: list[Run], call: Call, form: str, blocks: int
) -> None:
    code, out, err = call("table", str(tmp_path), "--format", form)
    assert (code, err) == (0, "")
    assert sum(out.count(f"{title}, ") for title in ("rmse, last", "auroc, last", "(%), last")) in (blocks, 0)
    if form == "csv":
        assert [row[2] for row in csv.reader(out.splitlines())] == ["metric", RMSE, RMSE, AUROC, ACCURACY]


@pytest.mark.slow
def test_plots_have_the_metrics_own_axes(runs: list[Run]) -> None:
    for name in ("accuracy", "seconds"):
        panels = [axes for axes in draw(name, runs).axes if axes.axison]
        assert [axes.get_ylabel() for axes in panels] == ["test rmse", "local auroc", "test accuracy (%)"]
        assert [max(map(max, (line.get_ydata() for line in axes.lines))) for axes in panels] == [0.5, 0.8, 90.0]
    (panel,) = draw("accuracy", runs[:2]).axes
    assert [text.get_label() for text in panel.lines] == ["fedavg: 0.3", "fednnnn: 0.35"]
    assert kind("accuracy").title(runs[:2]) == "test rmse against rounds"


@pytest.mark.slow
def test_the_report_uses_each_runs_metric(runs: list[Run]) -> None:
    text = report(runs[:2])
    assert "test rmse, best round, smaller is better" in text
    assert "test accuracy" not in text
    assert "rounds until" not in text
    assert "rounds until test rmse is 0.38" in report(runs[:2], target=0.38)
    mixed = report(runs)
    assert "rounds until test accuracy is 90 %" in mixed
    assert all(
        f">{cell}<" in mixed for cell in ("metric", "last value", "test rmse", "local auroc", "test accuracy (%)")
    )


def test_a_configuration_without_a_metric_that_decides(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", config(), [0.5])
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace("best: test/accuracy", "best: null"))
    with pytest.raises(ConfigError, match="it has no metric `best`, which every run has"):
        load(folder)
