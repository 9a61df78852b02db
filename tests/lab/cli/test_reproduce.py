"""`fedstride reproduce` as a user types it, on a small task: killed, gone on with, repeated, refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from desk import weights
from pids import killed_at

from lab.reproduction.cells import cells
from lab.reproduction.running import places
from lab.results.run_folders import load

pytestmark = pytest.mark.slow

SMALL = ("task=mnist5k", "clients=10", "cohort=10", "model=mlp", "client.local_epochs=1", "evaluate_every=3")
COMMAND = (sys.executable, "-m", "lab.cli.main", "reproduce", "fednnnn/table2")
CHOSEN = ("--columns", "mnist_noniid_b", "--methods", "fedavg,fednnnn", "--seeds", "1")
ROUNDS = 6


def start(out: Path, *more: str) -> subprocess.Popen[str]:
    command = [*COMMAND, *SMALL, f"rounds={ROUNDS}", *more, *CHOSEN, "--out", str(out)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def said(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=240)[0]


def test_it_is_killed_in_the_middle_and_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "killed"
    process = start(whole)
    text = said(process)
    assert process.returncode == 0, text
    assert "mnist_noniid_b, fedavg: a round" in text
    assert "2 runs in this order" in text

    process = start(out)
    third = out / "mnist_noniid_b-fednnnn-seed1/checkpoint/round-000003"  # in the middle of the second run
    killed_at(process, third)
    assert (out / "mnist_noniid_b-fedavg-seed1" / "model.safetensors").exists()

    process = start(out)
    text = said(process)
    assert process.returncode == 0, text
    assert "1. mnist_noniid_b, fedavg, seed 1: complete" in text
    for cell in cells("fednnnn/table2", ["mnist_noniid_b"], ["fedavg", "fednnnn"], [1])[0]:
        assert weights(out / cell.name) == weights(whole / cell.name)
        assert load(out / cell.name).completed

    page = (out / "README.md").read_text()
    assert "| mnist_noniid_b | fednnnn | 99.1 |" not in page  # mnist5k is not the paper's data set
    assert "| fednnnn |" in page and "(accuracy.png)" in page
    assert "contains 5,000 of MNIST's 70,000 images" in page
    assert (out / "accuracy.png").stat().st_size > 10_000

    process = start(out, "client.lr=0.2")
    assert "has a run with client.lr = 0.05, not 0.2: choose another --out" in said(process)
    assert process.returncode == 2
    shutil.rmtree(whole)


def test_a_cell_has_the_bits_of_the_run_that_it_names(tmp_path: Path) -> None:
    found, _ = cells("fednnnn/table2", ["mnist_noniid_b"], ["fednnnn"], [2])
    [place] = places(found, tmp_path / "out", [*SMALL, "rounds=3"])
    process = subprocess.run(
        [*COMMAND, *SMALL, "rounds=3", "--columns", place.cell.column, "--methods", "fednnnn", "--seeds", "2",
         "--out", str(tmp_path / "out"), "--budget", "1h"],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout + process.stderr
    run = [*place.cell.overrides, *SMALL, "rounds=3", f"out={tmp_path / 'alone'}", "name=it"]
    subprocess.run(
        [sys.executable, "-m", "lab.cli.main", "run", *run, "--no-compare"], check=True, capture_output=True
    )
    assert weights(place.folder) == weights(tmp_path / "alone/it")


def test_a_budget_leaves_the_rest_for_later(tmp_path: Path) -> None:
    process = start(tmp_path, "--budget", "1s")
    text = said(process)
    assert process.returncode == 0, text
    assert "0 runs in this order, 0:00:00 of 0:00:01" in text
    assert "not: mnist_noniid_b, fednnnn, seed 1, which would take" in text
    assert "not within the budget" in (tmp_path / "README.md").read_text()


def test_data_that_are_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSTRIDE_DATA", str(tmp_path))
    process = subprocess.run(
        [*COMMAND, "--columns", "cifar10_*b", "--methods", "fedavg", "--seeds", "1", "--out", str(tmp_path)],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert process.returncode == 1
    assert "cifar10_iid_b, fedavg: left out: DataError" in process.stdout
    assert process.stderr.count("error:") == 1
