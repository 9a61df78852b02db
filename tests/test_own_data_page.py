"""docs/own-data.md: its file, its tables and its command, run as they stand; normalisation of data on nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from desk import table, weights
from page_of_own_data import BEATS, BEATS_FILE, BLOOD, OF_ANOTHER_FORM, OVERRIDES, OVERRIDES_OF_BEATS, PAGE, TABLES

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a reader of the page types."""
    folder = tmp_path_factory.mktemp("hospitals")
    (folder / "blood.py").write_text(BLOOD)
    subprocess.run([sys.executable, "-c", TABLES], cwd=folder, check=True, timeout=60)
    return folder


def fedstride(desk: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "FEDSTRIDE_RUNS": str(desk / "runs")}
    command = [sys.executable, "-m", "lab.cli.main", *arguments]
    return subprocess.run(command, cwd=desk, env=env, capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture(scope="module")
def run(desk: Path) -> Path:
    done = fedstride(desk, "run", "--no-compare", *OVERRIDES)
    assert done.returncode == 0, done.stderr
    assert "final local auroc" in done.stdout
    return desk / "runs/blood-own-fednnnn-sgd-seed1"


def test_the_file_is_as_short_as_the_page_says() -> None:
    lines = len(BLOOD.splitlines())
    assert f"a file of {lines} lines" in PAGE.replace("\n", " ")
    assert lines < 20


def test_the_hospitals_learn(run: Path) -> None:
    status = json.loads((run / "status.json").read_text())
    assert status["final"]["local/auroc"] > 0.97
    assert status["final"]["local/auroc/worst"] > 0.95
    assert set(status["best"]) == {"local/auroc", "round"}
    assert not [name for name in table(run)[0] if name.startswith("test/")]


def test_columns_are_normalised_with_all_rows_of_all_hospitals(desk: Path, run: Path) -> None:
    task = json.loads((run / "task.json").read_text())
    tables = [pd.read_csv(desk / f"hospital-{client}.csv")[task["reading.columns"]] for client in range(3)]
    rows = pd.concat(tables).to_numpy(np.float32).astype(np.float64)
    np.testing.assert_allclose(task["spec.mean"], rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(task["spec.std"], rows.std(0), rtol=1e-12)


def test_a_table_of_another_form_keeps_it(desk: Path) -> None:
    """The page's file beside a table with `;`, decimal commas and latin-1 takes the place of the table."""
    before = fedstride(desk, "check", *OVERRIDES)
    read = pd.read_csv(desk / "hospital-0.csv")
    read.to_csv(desk / "other.csv", index=False, sep=";", decimal=",", encoding="latin-1")
    (desk / "hospital-0.toml").write_text(f'path = "other.csv"\n{OF_ANOTHER_FORM}')
    after = fedstride(desk, "check", *(each.replace("hospital-0.csv", "hospital-0.toml") for each in OVERRIDES))
    assert before.returncode == after.returncode == 0, after.stderr
    assert before.stdout == after.stdout and "hospital-0" in after.stdout
    assert (desk / "hospital-0.toml").with_suffix(".secret").exists() is False  # nothing was held out yet


def test_a_resumed_run_has_the_statistics_of_its_start(desk: Path, run: Path) -> None:
    first = fedstride(desk, "run", "--no-compare", *OVERRIDES, "rounds=4", "checkpoint_every=1", "name=resumed")
    assert first.returncode == 0, first.stderr
    folder = desk / "runs/resumed"
    before = json.loads((folder / "task.json").read_text())
    resumed = fedstride(desk, "resume", str(folder), "rounds=10")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads((folder / "task.json").read_text()) == before
    assert weights(folder) == weights(run)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["privacy=server_side"], "privacy = 'server_side' is not allowed"),
        (
            ["partition.files=[hospital-0.csv]"],
            "partition.files = ['hospital-0.csv'] is not allowed: files must be one",
        ),
        (
            ["partition=iid"],
            "partition = 'iid' is not allowed: partition must be own, because task=blood has no examples",
        ),
        (["test_set=true"], "test_set = True is not allowed"),
        (["best=test/auroc"], "best = 'test/auroc' is not allowed"),
        (["model=cnn_mnist"], "model = 'cnn_mnist' needs examples of kind image"),
    ],
)
def test_a_mistake_is_one_line(desk: Path, change: list[str], said: str) -> None:
    kept = [each for each in OVERRIDES if each.partition("=")[0] not in [c.partition("=")[0] for c in change]]
    if change == ["partition=iid"]:
        kept = [each for each in kept if not each.startswith("partition.files")]
    done = fedstride(desk, "run", "--no-compare", *kept, *change, "name=mistake")
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (desk / "runs/mistake").exists()


# ---------------------------------------------------------------- signals


@pytest.fixture(scope="module")
def heart_desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader types what the page says of signals."""
    folder = tmp_path_factory.mktemp("beats")
    subprocess.run([sys.executable, "-c", BEATS], cwd=folder, check=True, timeout=60)
    return folder


def test_signals_in_three_layouts(heart_desk: Path) -> None:
    done = fedstride(heart_desk, "run", "--no-compare", *OVERRIDES_OF_BEATS, "name=beats")
    assert done.returncode == 0, done.stderr
    folder = heart_desk / "runs/beats"
    status = json.loads((folder / "status.json").read_text())
    assert status["final"]["local/accuracy"] > 0.85
    task = json.loads((folder / "task.json").read_text())
    assert task["spec.shape"] == [2, 64] and len(task["spec.mean"]) == 2
    predicted = fedstride(heart_desk, "predict", str(folder), "ecg-0.csv", "-o", "found.csv")
    assert predicted.returncode == 0, predicted.stderr
    assert len(pd.read_csv(heart_desk / "found.csv")) == 200


def test_what_a_hospital_says_of_its_signals(heart_desk: Path) -> None:
    """The data file of the page, of a table with the names and the unit that it says."""
    table_of = pd.read_csv(heart_desk / "ecg-0.csv").rename(columns=lambda name: name.replace("V2_", "Lead 2_"))
    table_of[[f"Lead 2_{k}" for k in range(64)]] *= 1000
    table_of.to_csv(heart_desk / "mine.csv", index=False)
    (heart_desk / "data.toml").write_text(f'path = "mine.csv"\nsplit_seed = 0\n{BEATS_FILE}')
    changed = [each.replace("ecg-0.csv", "data.toml") for each in OVERRIDES_OF_BEATS]
    done = fedstride(heart_desk, "run", "--no-compare", *changed, "rounds=2", "name=mine")
    assert done.returncode == 0, done.stderr
    status = json.loads((heart_desk / "runs/mine/status.json").read_text())
    assert status["final"]["local/accuracy"] > 0.7
