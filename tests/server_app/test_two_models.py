"""Two models in one message of a run that only measures: figures of both, and their differences at each site."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from desk import play
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from safetensors.numpy import load_file, save_file

from client_app import app as clients
from client_app.evaluation.second_model import differences
from fedstride.errors import ConfigError
from fedstride.figures.differences import Difference, over_sites
from fedstride.messages import wire
from fedstride.messages.records import metric_records
from fedstride.tasks.evaluation.comparison import at_site
from fedstride.tasks.evaluation.holdout import hold_out
from lab.comparison.compare import rows_of
from lab.comparison.site_rows import sites_of
from lab.prediction.model import load as load_model
from lab.report import report
from lab.results.run_folders import Run, load
from server_app import preparation
from server_app.config.compose import compose
from server_app.evaluation.differences import TOO_FEW

SIZES = (200, 120, 24)
FIGURES = ("auroc", "accuracy", "f1", "brier")
OWN_STATISTICS = ("task.mean=[1,0]", "task.std=[2,1]")
"""Of the second model's task; those of the first one's are computed over the sites."""


def wards(out: Path) -> list[str]:
    """The overrides of a run at sites of these sizes, with other means at each."""
    rng = np.random.default_rng(7)
    files = []
    for k, size in enumerate(SIZES):
        x = rng.normal(size=(size, 2)).round(3)
        ill = np.where(x[:, 0] + rng.normal(0, 0.9, size) > 0, "yes", "no")
        files.append(out / f"ward-{k}.csv")
        pd.DataFrame({"a": 3 * x[:, 0] + k, "b": x[:, 1], "ill": ill}).to_csv(files[-1], index=False)
    named = ",".join(f"'{file}'" for file in files)
    return [
        "task=own_table", "task.columns=['a','b']", "task.target=ill", "task.classes=['no','yes']",
        f"task.metrics=[{','.join(FIGURES)}]", "model=mlp", "partition=own", f"partition.files=[{named}]",
        f"clients={len(SIZES)}", "holdout=0.4",
    ]  # fmt: skip


class Models:
    """Two runs at the same sites, and what measures their models."""

    def __init__(self, out: Path) -> None:
        self.chosen = wards(out)
        self.first = self._trained(out, "first", "client.lr=0.1")
        self.second = self._trained(out, "second", "client.lr=0.003", "cohort=2", *OWN_STATISTICS)

    def _trained(self, out: Path, name: str, *more: str) -> Path:
        return play(out, *self.chosen, "rounds=2", f"name={name}", *more, small=False).folder

    def measuring(self, *more: str, against: Path | None = None) -> list[str]:
        second = self.second / "model.safetensors" if against is None else against
        return [
            *self.chosen,
            "rounds=0",
            f"initial='{self.first / 'model.safetensors'}'",
            f"against='{second}'",
            *more,
        ]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("wards"))


@pytest.fixture(scope="module")
def measured(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load(play(tmp_path_factory.mktemp("both"), *models.measuring(), small=False).folder)


def named(row: dict[str, Any], start: str) -> dict[str, Any]:
    return {key.removeprefix(start): value for key, value in row.items() if key.startswith(start)}


def alone(models: Models, folder: Path, out: Path) -> Run:
    """The same rows measured with one model, with the statistics of its own task."""
    overrides = [*models.chosen, "rounds=0", f"initial='{folder / 'model.safetensors'}'"]
    if folder == models.second:
        overrides += OWN_STATISTICS
    return load(play(out, *overrides, small=False).folder)


@pytest.mark.slow
def test_each_model_has_the_figures_that_it_has_alone(models: Models, measured: Run, tmp_path: Path) -> None:
    first, second = (alone(models, folder, tmp_path / folder.name) for folder in (models.first, models.second))
    for row, one, other in zip(measured.clients.rows, first.clients.rows, second.clients.rows, strict=True):
        assert named(row, "local/") == named(one, "local/")
        ours, theirs = named(row, "against/"), named(other, "local/")
        assert {name: ours[name] for name in (*FIGURES, "loss")} == {
            name: theirs[name] for name in (*FIGURES, "loss")
        }
    rows = measured.rows[0], second.rows[0]
    assert rows[0]["against/auroc"] == rows[1]["local/auroc"]
    assert named(measured.rows[0], "local/").items() >= named(first.rows[0], "local/").items()


@pytest.mark.slow
def test_the_differences_are_those_of_a_comparison_at_a_desk(models: Models, measured: Run) -> None:
    both = {name: load_model(getattr(models, name)) for name in ("first", "second")}
    config = both["first"].config
    for number, (site, row) in enumerate(
        zip(sites_of(config, both["first"].spec), measured.clients.rows, strict=True)
    ):
        held = hold_out(site.draws, 0.4, number)[1]
        each = {name: [rows_of(model, site, held)] for name, model in both.items()}
        desk = at_site(site.name, each, [("first", "second")], number).differences["first", "second"]
        found = differences(each["first"][0], each["second"][0], number)
        for figure in FIGURES:
            value, interval, _, variance = desk[figure]
            assert found[figure].value == value
            said = [row.get(f"difference/{figure}{end}") for end in ("", "/low", "/high")]
            if len(held) < 10 or (figure in ("auroc", "f1") and number == 2):
                assert math.isnan(found[figure].interval.low) and said[1:] == [None, None]
                continue
            assert found[figure] == Difference(value, interval, math.sqrt(variance))
            assert said == found[figure].packed()[:3]
            half = (interval.high - interval.low) / 2
            assert said == pytest.approx([value, *interval], abs=0.051 * half)


@pytest.mark.slow
def test_over_all_sites_it_is_the_mean_by_rows(measured: Run) -> None:
    rows = [row for row in measured.clients.rows if "difference/auroc/low" in row]
    assert len(rows) == 2
    counts = [row["local/num-examples"] for row in rows]
    assert measured.rows[0]["difference/auroc"] == pytest.approx(
        np.average([row["difference/auroc"] for row in rows], weights=counts)
    )
    low, high = (measured.rows[0][f"difference/auroc/{end}"] for end in ("low", "high"))
    narrowest = min(row["difference/auroc/high"] - row["difference/auroc/low"] for row in rows)
    assert 0.5 * narrowest < high - low < narrowest


@pytest.mark.parametrize(("deviations", "rows"), [((0.03, 0.04), (10, 10)), ((0.1, 0.2, 0.1), (30, 10, 60))])
def test_its_variance_is_from_those_of_the_sites(deviations: Sequence[float], rows: Sequence[int]) -> None:
    sites = [[0.1 * k, -1.0, 1.0, s] for k, s in enumerate(deviations)]
    found = over_sites([*sites, [9.0]], [*rows, 1000])  # one has too few rows for an interval
    shares = np.array(rows) / sum(rows)
    assert found.value == pytest.approx(float(shares @ [0.1 * k for k in range(len(rows))]))
    assert found.deviation**2 == pytest.approx(float(shares**2 @ np.square(deviations)))
    assert found.interval == pytest.approx(
        (found.value - 1.959964 * found.deviation, found.value + 1.959964 * found.deviation)
    )
    assert over_sites([[0.5], [0.1]], [1, 3]).value == pytest.approx(0.2)


@pytest.mark.slow
def test_the_bits_do_not_depend_on_the_engine(models: Models, measured: Run, tmp_path: Path) -> None:
    other = load(play(tmp_path, *models.measuring(), small=False, workers=2).folder)
    assert [figures(row) for row in other.clients.rows] == [figures(row) for row in measured.clients.rows]
    assert figures(other.rows[0]) == figures(measured.rows[0])


def figures(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key.startswith(("local/", "against/", "difference/"))}


@pytest.mark.slow
def test_the_same_model_twice_differs_nowhere(models: Models, tmp_path: Path) -> None:
    found = load(play(tmp_path, *models.measuring(against=models.first / "model.safetensors"), small=False).folder)
    for row in [*found.clients.rows, *found.rows]:
        assert set(named(row, "difference/").values()) == {0.0}


def test_card_and_page_have_a_row_for_each_site(measured: Run, tmp_path: Path) -> None:
    text = (measured.folder / "MODEL_CARD.md").read_text().partition("## Two models")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    assert len(lines) == len(FIGURES) * (1 + len(SIZES) + 1)
    (small,) = [line for line in lines[: len(SIZES) + 2] if "ward-2" in line]
    assert small.endswith(f"| {TOO_FEW} |")
    assert lines[1].startswith("| 0 (ward-0) | ") and " to " in lines[1] and lines[4].startswith("| all | ")
    accuracy = text.partition("accuracy:")[2].partition("brier")[0]
    assert " % | " in accuracy and accuracy.count(" points to ") >= 3
    page = report([measured])
    assert page.count("two models at the sites") == len(FIGURES) and TOO_FEW in page


def test_a_run_of_one_model_has_no_such_section(models: Models, tmp_path: Path) -> None:
    found = alone(models, models.first, tmp_path)
    assert "Two models" not in (found.folder / "MODEL_CARD.md").read_text()
    assert all(key.startswith("local/") for key in figures(found.rows[0]))


HOSTILE: dict[str, Any] = {
    "not finite": [math.nan, -0.1, 0.1, 0.05],
    "infinite": [0.1, -math.inf, math.inf, 0.05],
    "too long": [0.0] * 5,
    "empty": [0.0, 0.1],
    "huge": [0.1, -1e200, 1e200, 1e300],
    "the wrong way round": [0.1, 0.2, -0.2, 0.05],
    "negative": [0.1, 0.0, 0.2, -0.05],
    "too far": [7.0, 6.0, 8.0, 0.5],
    "a number": 0.25,
    "whole numbers": [10**18, -(10**18), 10**18, 1],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_site_that_says_anything_does_not_break_the_run(models: Models, kind: str, tmp_path: Path) -> None:
    lying = ClientApp()

    @lying.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        reply = clients.app(message, context)
        if context.node_config["partition-id"] == 1:
            (metrics,) = metric_records(reply.content).values()
            values = {**metrics, "difference/auroc": HOSTILE[kind], "against/accuracy": 3.5}
            reply.content = RecordDict({wire.METRICS: MetricRecord(values)})
        return reply

    @lying.query()
    def query(message: Message, context: Context) -> Message:
        return clients.app(message, context)

    found = load(play(tmp_path, *models.measuring(), app=lying, small=False).folder)
    honest, liar = found.clients.rows[0], found.clients.rows[1]
    assert "left out of the evaluation's figures: " in liar["note"] and "difference/auroc" not in liar
    assert liar["status"] == "used" and "local/auroc" in liar and "against/accuracy" not in liar
    assert found.rows[0]["difference/auroc"] == pytest.approx(honest["difference/auroc"])
    assert all(math.isfinite(value) for value in named(found.rows[0], "difference/").values())
    assert "## Two models" in (found.folder / "MODEL_CARD.md").read_text()


def other_network(out: Path, models: Models) -> Path:
    arrays = load_file(models.second / "model.safetensors")
    name = next(iter(arrays))
    save_file({**arrays, name: np.zeros((3, 3), np.float32)}, out / "other.safetensors")
    return out / "other.safetensors"


def not_finite(out: Path, models: Models) -> Path:
    arrays = load_file(models.second / "model.safetensors")
    save_file({name: np.full_like(array, np.nan) for name, array in arrays.items()}, out / "nan.safetensors")
    return out / "nan.safetensors"


def other_task(out: Path, models: Models) -> Path:
    shutil.copy(models.second / "model.safetensors", out)
    said = json.loads((models.second / "task.json").read_text())
    (out / "task.json").write_text(json.dumps(said | {"spec.names": ["yes", "no"]}))
    return out / "model.safetensors"


def cut(out: Path, models: Models) -> Path:
    (out / "cut.safetensors").write_bytes((models.second / "model.safetensors").read_bytes()[:-7])
    return out / "cut.safetensors"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (other_network, "against = .* does not fit the network"),
        (not_finite, "against = .* contains NaN or infinity"),
        (other_task, "against = .* is not a model of this task: outputs are 'no', 'yes'|against = .* outputs are"),
        (cut, "against = .* is not a complete safetensors file"),
        (lambda out, models: out / "missing.safetensors", "against = .* is not a file"),
        (lambda out, models: out, "against = .* is not a file"),
    ],
)
def test_a_second_model_that_does_not_fit_is_refused(models: Models, made: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        preparation.prepare(compose([*models.measuring(against=made(tmp_path, models)), f"out='{tmp_path}'"]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "chosen",
    [
        ["against=b.safetensors"],
        ["against=b.safetensors", "rounds=0"],
        ["against=b.safetensors", "initial=a.safetensors"],
        ["against=b.safetensors", "initial=a.safetensors", "rounds=3"],
        ["against=b.safetensors", "initial=a.safetensors", "rounds=0", "evaluate_clients=false"],
    ],
)
def test_a_second_model_needs_a_first_one_that_clients_measure(chosen: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"(against|rounds|evaluate_clients) = .* is not allowed"):
        compose(chosen)


@pytest.mark.slow
def test_clients_compare_by_default_also_where_the_server_has_a_test_set(tmp_path: Path) -> None:
    folder = play(tmp_path, "rounds=1").folder
    file = folder / "model.safetensors"
    found = load(play(tmp_path, "rounds=0", f"initial='{file}'", f"against='{file}'", "name=two").folder)
    assert {row["difference/accuracy"] for row in found.clients.rows} == {0.0}
