"""`fedstride compare`: together, each site alone and pooled, on the same rows, which none was trained on."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pids import killed_at
from typer.testing import CliRunner

from client_app.message_settings import members
from fedstride.errors import ConfigError, DataError
from fedstride.tasks import data, own_files
from fedstride.tasks.evaluation.holdout import hold_out
from lab.cli.main import app
from lab.comparison.compare import plan
from lab.comparison.comparison_folder import BEGUN, ROWS
from lab.comparison.comparison_runs import ALONE, POOLED
from lab.comparison.page import PAGE
from lab.prediction.model import load
from lab.results.run_folders import load as load_run
from server_app.config.compose import compose
from server_app.records.run_folder import LOCK, lock

NAMES = ("north", "south", "west")
COLUMNS = "task.columns=[dose,'sex=f|m']"
TRAINING = ("model=mlp", "model.width=8", "client.batch_size=10", "client.lr=0.05", "clients=3")


def table(path: Path, rows: int, seed: int, share: float = 0.5) -> Path:
    rng = np.random.default_rng(seed)
    ill = rng.random(rows) < share
    dose = np.round(rng.normal(size=rows) + 1.5 * ill, 3)
    made = pd.DataFrame({"dose": dose, "sex": rng.choice(["f", "m"], rows), "label": np.where(ill, "yes", "no")})
    made.to_csv(path, index=False)
    return path


@pytest.fixture
def sites(tmp_path: Path) -> list[str]:
    sizes = ((80, 1, 0.5), (120, 2, 0.4), (60, 3, 0.1))
    files = [table(tmp_path / f"{n}.csv", *size) for n, size in zip(NAMES, sizes, strict=True)]
    named = ",".join(f"'{file}'" for file in files)
    return [
        "task=own_table", COLUMNS, "task.classes=[no,yes]", "partition=own", f"partition.files=[{named}]",
        "task.metrics=[auroc,accuracy]", *TRAINING, "rounds=2",
    ]  # fmt: skip


def compared(out: Path, *arguments: str) -> tuple[str, list[dict]]:
    found = CliRunner().invoke(app, ["compare", *arguments, "--out", str(out)], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output, json.loads((out / "comparison.json").read_text())


@pytest.mark.slow
def test_each_model_is_measured_on_the_same_rows_of_each_site(sites: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    printed, found = compared(out, *sites, "strategy=fedavg,fednnnn", "--seeds", "4,7")
    assert [each["site"] for each in found] == [*NAMES, "all"]
    assert list(found[0]["figures"]) == ["fedavg", "fednnnn", ALONE, POOLED]
    counted = [each for each in found[:-1] if each["rows"] >= 10]
    assert found[-1]["rows"] == sum(each["rows"] for each in counted)
    assert found[-1]["left_out"] == ["west"] and "all: without west, where fewer than 10 rows" in printed
    assert not (out / ROWS).exists(), "copies of rows stay nowhere"
    assert "west" in printed.partition("fewer than 10 rows")[0].rpartition("*")[2]
    # The federation's figures at each site are those that the run itself reports.
    for seed in (4, 7):
        run = load_run(out / f"runs/fedavg-seed{seed}")
        assert run.completed
    own = [run.clients.rows for run in (load_run(out / f"runs/fedavg-seed{s}") for s in (4, 7))]
    last = [row for rows in own for row in rows if row["round"] == 2 and row["local/num-examples"] >= 10]
    mean = np.average([row["local/accuracy"] for row in last], weights=[row["local/num-examples"] for row in last])
    assert found[-1]["figures"]["fedavg"]["accuracy"]["value"] == pytest.approx(mean, abs=1e-12)
    # A site alone: the run of that site alone, which `fedstride run` gives too, measured on its held-out rows.
    for name in NAMES:
        alone = np.mean([load_run(out / f"runs/alone-{name}-seed{s}").rows[-1]["local/accuracy"] for s in (4, 7)])
        (site,) = [each for each in found if each["site"] == name]
        assert site["figures"][ALONE]["accuracy"]["value"] == pytest.approx(alone, abs=1e-12)
    # Differences are those of the figures, and inside of their intervals.
    for each in found:
        for pair, figures in each["differences"].items():
            one, other = pair.split(" - ")
            for figure, cell in figures.items():
                values = [each["figures"][column][figure]["value"] for column in (one, other)]
                if None not in values:
                    assert cell["value"] == pytest.approx(values[0] - values[1], abs=1e-12)
                    if cell["low"] is not None:
                        assert cell["low"] - 1e-12 <= cell["value"] <= cell["high"] + 1e-12
    page = (out / PAGE).read_text()
    assert "![auroc at each site](comparison.png)" in page
    assert "--seeds 4,7" in page
    assert (out / "comparison.png").stat().st_size > 10_000


def test_nothing_that_is_measured_was_trained_on(sites: list[str], tmp_path: Path) -> None:
    config = compose(sites)
    planned = plan({"fedavg": config}, [1], tmp_path / "out")
    spec = data.load(config.task).spec
    pooled = np.load(planned.splits[0].pooled)
    trained = []
    for place, site in enumerate(planned.sites):
        split = planned.splits[0]
        rows = own_files.load(split.files[place], spec)
        kept, held = hold_out(rows.draws(config.split_seed), 0.2, place)
        assert np.array_equal(kept, split.trained[place])
        assert np.array_equal(held, split.held[place])
        assert not set(split.trained[place]) & set(split.held[place])
        trained.append(site.x[kept])
    assert np.array_equal(pooled["x"], np.concatenate(trained), equal_nan=True)
    (run,) = [run for run in planned.runs if run.column == POOLED]
    assert run.config.holdout == 0.0
    assert run.config.clients == 1


@pytest.mark.parametrize("count", [2, 3, 7])
def test_each_row_is_held_out_once(sites: list[str], tmp_path: Path, count: int) -> None:
    planned = plan({"fedavg": compose(sites)}, [1, 2], tmp_path / "out", count)
    assert len(planned.splits) == count
    assert len(planned.runs) == 2 * count * (1 + 3 + 1)
    assert len({run.folder for run in planned.runs}) == len(planned.runs)
    for place, site in enumerate(planned.sites):
        held = np.concatenate([split.held[place] for split in planned.splits])
        assert sorted(held) == list(range(len(site.y)))
        for split in planned.splits:
            both = np.concatenate([split.held[place], split.trained[place]])
            assert sorted(both) == list(range(len(site.y)))
            assert len(np.load(split.files[place])["y"]) == len(split.trained[place])
            assert split.holdout == 0.0
        draws = [site.draws[split.held[place]] for split in planned.splits]
        assert all(one.max() < other.min() for one, other in itertools.pairwise(draws))


@pytest.mark.slow
def test_sites_with_one_file_name_and_a_number_have_names_of_their_own(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("1.csv", "x/a.csv", "y/a.csv")]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
    files = [table(path, 80, number, 0.5) for number, path in enumerate(paths)]
    config = compose(
        ["task=own_table", COLUMNS, "task.classes=[no,yes]", "partition=own", "clients=3", *TRAINING,
         f"partition.files=[{','.join(map(repr, map(str, files)))}]", "holdout=0.2", "evaluate_clients=true"]
    )  # fmt: skip
    planned = plan({"fedavg": config}, [1], tmp_path / "out")
    assert [site.name for site in planned.sites] == ["0 (1)", "1 (a)", "2 (a)"]
    assert len({run.folder for run in planned.runs}) == len(planned.runs) == 5
    for name in (ALONE, POOLED):
        with pytest.raises(ConfigError, match=f"strategy = '{name}' is not allowed: strategy must be another"):
            plan({name: config}, [1], tmp_path / name)


@pytest.mark.slow
def test_a_cross_validation_measures_every_row(sites: list[str], tmp_path: Path) -> None:
    printed, found = compared(tmp_path / "out", *sites, "strategy=fedavg", "--folds", "2", "--seeds", "1")
    assert [each["rows"] for each in found] == [80, 120, 60, 260]
    assert "west 60 of 60" in printed
    assert "each row is measured once" in (tmp_path / "out" / PAGE).read_text()
    assert found[0]["figures"]["fedavg"]["auroc"]["spread"] is None, "one seed has no spread"


def test_a_division_of_the_tasks_data_is_the_same_for_all_seeds(tmp_path: Path) -> None:
    config = compose(
        ["task=mnist5k", "partition=dirichlet", "partition.alpha=0.5", "clients=3", "model=mlp", "seed=5"]
    )
    planned = plan({"fedavg": config}, [1, 2], tmp_path / "out")
    assert [site.name for site in planned.sites] == ["0", "1", "2"]
    files = {tuple(run.config.partition.files) for run in planned.runs if run.column == "fedavg"}
    assert len(files) == 1
    parts = members(config.task, config.partition, 3, 5)
    for site, part in zip(planned.sites, parts, strict=True):
        assert np.array_equal(site.x, data.load(config.task).train_x[np.sort(part)])


def test_alone_and_pooled_have_nothing_of_a_server(sites: list[str], tmp_path: Path) -> None:
    more = [
        "strategy=two_d_lrd",
        "strategy.local_steps=4",
        "client.weight_decay=0.01",
        "cohort=2",
        "min_clients=2",
    ]
    planned = plan({"two_d_lrd": compose([*sites, *more])}, [1], tmp_path / "out")
    for run in planned.runs:
        if run.column in (ALONE, POOLED):
            config = run.config
            assert (config.strategy.name, config.client.name, config.cohort_size, config.start_size) == (
                "fedavg", "sgd", 1, 1,
            )  # fmt: skip
            steps = 4 if run.column == ALONE else 3 * 4
            assert (config.client.local_steps, config.client.weight_decay) == (steps, 0.01)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["holdout=0"], "holdout = 0"),
        (["strategy=fedavg,fedavg"], "twice"),
        (["strategy=nothing"], "nothing"),
        (["partition.files=[a.csv,b.csv]"], "one path for each of the 3 clients"),
        (["partition.files=[a.csv,b.csv,c.csv]"], "does not exist"),
        (["clients=4"], "one path for each of the 4 clients"),
    ],
)
def test_what_cannot_be_compared_leaves_nothing(
    sites: list[str], tmp_path: Path, more: list[str], line: str
) -> None:
    out = tmp_path / "out"
    with pytest.raises((ConfigError, DataError), match=line):
        CliRunner().invoke(app, ["compare", *sites, *more, "--out", str(out)], catch_exceptions=False)
    assert not out.exists()


def test_too_many_folds_for_a_small_site(sites: list[str], tmp_path: Path) -> None:
    table(tmp_path / "west.csv", 7, 5)
    with pytest.raises(DataError, match=r"site west has 7 rows.*use fewer --folds"):
        plan({"fedavg": compose(sites)}, [1], tmp_path / "out", 20)


@pytest.mark.slow
def test_quiet_prints_the_result_alone(sites: list[str], tmp_path: Path) -> None:
    printed, _ = compared(tmp_path / "quiet", *sites, "--seeds", "4", "--quiet")
    assert "rows that are measured" not in printed and "[1/" not in printed and "completed" not in printed
    assert "all figures, the picture" in printed and "intervals" in printed


def test_a_folder_with_files_is_not_used(sites: list[str], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("")
    with pytest.raises(ConfigError, match="new or empty"):
        CliRunner().invoke(app, ["compare", *sites, "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["mine"]


@pytest.mark.slow
def test_a_comparison_has_the_same_bits_each_time(sites: list[str], tmp_path: Path) -> None:
    short = [
        *(key for key in sites if not key.startswith("rounds")),
        "rounds=1",
        "strategy=fedavg",
        "--seeds",
        "1",
    ]
    _, one = compared(tmp_path / "one", *short, "--jobs", "1")
    _, other = compared(tmp_path / "other", *short, "--jobs", "2")
    assert one == other
    model = load(tmp_path / "one/runs/fedavg-seed1")
    assert replace(model.config, out=None) == replace(load(tmp_path / "other/runs/fedavg-seed1").config, out=None)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_copy_of_a_row(sites: list[str], tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-m", "lab.cli.main", "compare", *sites, "rounds=5000", "--out", str(out)],
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if " runs in " in line:
                break
        assert (out / ROWS).is_dir()
        process.send_signal(number)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"go on with the same command, --resume and --out {out}" in rest
    assert not (out / ROWS).exists()


@pytest.fixture
def short(sites: list[str]) -> list[str]:
    """A comparison of five runs."""
    return [*sites, "strategy=fedavg", "rounds=40", "checkpoint_every=1", "--seeds", "1", "--jobs", "1"]


@pytest.mark.slow
def test_a_killed_comparison_goes_on_with_the_same_numbers(short: list[str], tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    _, expected = compared(whole, *short)
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.cli.main", "compare", *short, "--out", str(out)],
        stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    killed_at(process, out / "runs/alone-north-seed1/checkpoint/round-000003")  # in the middle of the second run
    assert (out / ROWS).is_dir() and not (out / PAGE).exists()
    first = (out / "runs/fedavg-seed1/model.safetensors").stat().st_mtime_ns

    printed, found = compared(out, *short, "--resume")
    assert "5 runs in" in printed and "1 of them is complete already" in printed
    assert found == expected
    assert (out / "runs/fedavg-seed1/model.safetensors").stat().st_mtime_ns == first
    assert not (out / ROWS).exists()
    for run in sorted(path.name for path in (whole / "runs").iterdir()):
        assert (out / "runs" / run / "model.safetensors").read_bytes() == (
            whole / "runs" / run / "model.safetensors"
        ).read_bytes()

    again, found = compared(out, *short, "--resume")
    assert "5 of them are complete already" in again and found == expected

    table(Path(tmp_path / "west.csv"), 60, 4)  # other rows
    written = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="with other rows: the data have changed since it was begun"):
        compared(out, *short, "--resume")
    with pytest.raises(ConfigError, match=r"with another command: go on with fedstride compare .*rounds=40"):
        compared(out, *short, "client.lr=0.2", "--resume")
    with lock(out), pytest.raises(ConfigError, match="still in progress"):
        compared(out, *short, "--resume")
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == written


@pytest.mark.parametrize("content", [None, "", "[]", '{"command": "fedstride compare"}'])
def test_only_a_comparison_that_was_begun_goes_on(sites: list[str], tmp_path: Path, content: str | None) -> None:
    """Rows of the user that lie in such a folder stay."""
    out = tmp_path / "out"
    (out / ROWS).mkdir(parents=True)
    (out / ROWS / "mine").touch()
    if content is not None:
        (out / BEGUN).write_text(content)
    with pytest.raises(ConfigError, match="is not the folder of a comparison that was begun"):
        compared(out, *sites, "--resume")
    assert (out / ROWS / "mine").exists() and not (out / LOCK).exists()


def test_what_goes_on_needs_its_folder(sites: list[str]) -> None:
    with pytest.raises(ConfigError, match="--out = None is not allowed"):
        CliRunner().invoke(app, ["compare", *sites, "--resume"], catch_exceptions=False)
