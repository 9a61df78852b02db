"""The examples of user-defined parts: they are short, listed, shown and checked, and their commands run.

Each command runs in a separate process, because a parts file stays loaded in the process that has read it.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from desk import table, weights
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[1]
FILES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
SMALL = ("rounds=1", "clients=3")
SIMULATED = ("own_wrapper", "own_metric")  # their files contain what clients do, so clients need them too

OUT_OF_RANGE = {
    "own_client": "client.first=0",
    "own_lora": "model.rank=0",
    "own_metric": "task.metrics=[price]",
    "own_model": "model.width=0",
    "own_objective": "objective.epsilon=1",
    "own_partition": "partition.ratio=0",
    "own_strategy": "strategy.longest=0",
    "own_survival": "task.missing=zero",
    "own_task": "task.noise=-1",
    "own_wrapper": "strategy.size=-1",
}

each = pytest.mark.parametrize("name", FILES)
chosen_alone = pytest.mark.parametrize("name", [name for name in FILES if name != "own_metric"])
"""Figures are chosen several at once, and are no group of the configuration."""


class Example(NamedTuple):
    """The command in the docstring of an example: its overrides, and the part that they choose."""

    overrides: list[str]
    group: str
    part: str

    @property
    def parts(self) -> str:
        """The override that names the file."""
        return self.overrides[0]


def example(name: str) -> Example:
    text = ast.get_docstring(ast.parse(FILES[name].read_text()))
    (command,) = re.findall(r"^fedstride run (.+)$", text or "", re.MULTILINE)
    overrides = shlex.split(command)
    assert overrides[0] == f"parts=examples/{FILES[name].name}"
    group, _, choice = overrides[1].partition("=")
    return Example(overrides, group, choice)


def survival_tables(folder: Path) -> list[str]:
    """Two tables with the columns of the example, as the test makes them."""
    for number, name in enumerate(("a", "b")):
        rng = np.random.default_rng(number)
        age, stage, sex = rng.integers(40, 80, 60), rng.integers(1, 5, 60), rng.choice(["female", "male"], 60)
        time, last = rng.exponential(30 / stage), rng.uniform(0, 60, 60)
        rows = zip(age, stage, sex, np.minimum(time, last).round(1), (time <= last).astype(int), strict=True)
        lines = [",".join(map(str, row)) for row in [("age", "stage", "sex", "months", "died"), *rows]]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return [f"partition.files=[{folder}/a.csv,{folder}/b.csv]"]


def adapters(folder: Path) -> list[str]:
    """The file that the lines in docs/networks.md write, from a backbone that other lines there write."""
    shutil.copy(ROOT / "examples/own_lora.py", folder)
    section = (ROOT / "docs/networks.md").read_text().partition("## A pretrained backbone, adapters alone sent")[2]
    code, make = re.findall("```python\n(.*?)```", section, re.DOTALL)
    assert sum(bool(line) and not line.startswith(("from", "import")) for line in code.splitlines()) < 10
    for text in (make, code):
        done = subprocess.run(
            [sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    return [f"initial={folder}/start.safetensors"]


FILES_OF = {"own_survival": survival_tables, "own_lora": adapters}
"""Files that a reader has, by the example that needs them; overrides that name those of the test."""


def with_files(name: str, folder: Path) -> list[str]:
    """The overrides of the example's command, with files that the test makes."""
    overrides = example(name).overrides
    if name not in FILES_OF:
        return overrides
    made = FILES_OF[name](folder)
    keys = {override.partition("=")[0] for override in made}
    return [*(each for each in overrides if each.partition("=")[0] not in keys), *made]


def small(given: list[str]) -> list[str]:
    """The overrides, and those of SMALL whose keys they do not contain."""
    keys = {override.partition("=")[0] for override in given}
    return [*given, *(override for override in SMALL if override.partition("=")[0] not in keys)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fedstride-cache")


class Command:
    """Runs the command `fedstride` in new processes, with the folders of the test."""

    def __init__(self, runs: Path, cache: Path) -> None:
        self.runs = runs
        self.env = os.environ | {"FEDSTRIDE_RUNS": str(runs), "FEDSTRIDE_CACHE": str(cache)}

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "lab.cli.main", *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=300, check=False
        )


@pytest.fixture
def fedstride(tmp_path: Path, cache: Path) -> Command:
    return Command(tmp_path / "runs", cache)


def completed(done: subprocess.CompletedProcess[str], folder: Path) -> None:
    """Check that the run in this folder is completed."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((folder / "status.json").read_text())["state"] == "completed"


# ---------------------------------------------------------------- the files


def lines_of_code(path: Path) -> int:
    """Lines that are neither blank nor part of a docstring."""
    text = path.read_text()
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            docstrings |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return sum(bool(line.strip()) and number not in docstrings for number, line in enumerate(text.splitlines(), 1))


@each
def test_an_example_is_short(name: str) -> None:
    assert lines_of_code(FILES[name]) < 30


def test_every_example_is_tried_with_a_value_out_of_range() -> None:
    assert sorted(OUT_OF_RANGE) == sorted(FILES)


# ---------------------------------------------------------------- the command, in processes


@pytest.mark.slow
@each
def test_its_command_runs(name: str, fedstride: Command, tmp_path: Path) -> None:
    done = fedstride("run", "--quiet", "--no-compare", *small(with_files(name, tmp_path)), "name=mine")
    completed(done, fedstride.runs / "mine")


@pytest.mark.slow
def test_the_backbone_stays_and_the_adapters_alone_are_sent(fedstride: Command, tmp_path: Path) -> None:
    given = small(with_files("own_lora", tmp_path))
    completed(fedstride("run", "--quiet", "--no-compare", *given, "name=mine"), fedstride.runs / "mine")
    before, after = load_file(tmp_path / "start.safetensors"), load_file(fedstride.runs / "mine/model.safetensors")
    backbone = load_file(tmp_path / "backbone.safetensors")
    assert before["backbone.1.layer.weight"].tobytes() == backbone["1.weight"].tobytes()
    same = {name for name in before if before[name].tobytes() == after[name].tobytes()}
    assert same == {name for name in before if ".layer." in name} and len(same) == len(backbone) == 4
    row = json.loads((fedstride.runs / "mine/metrics.jsonl").read_text().splitlines()[-1])
    assert row["bytes/up"] < 3 * 4 * 1.2 * sum(before[name].size for name in before if name not in same)


@pytest.mark.slow
def test_a_figure_is_listed(fedstride: Command) -> None:
    listed = fedstride("list", "metrics", "--parts", "examples/own_metric.py")
    assert listed.returncode == 0, listed.stderr
    for name, words in (("cost", "Mean cost of a decision"), ("c_index", "C-index"), ("auroc", "ROC")):
        assert re.search(rf"^  {name} +.*{words}", listed.stdout, re.MULTILINE), name


@pytest.mark.slow
@chosen_alone
def test_it_is_listed_and_shown(name: str, fedstride: Command) -> None:
    mine = example(name)
    own = mine.part.rpartition("+")[2]
    listed = fedstride("list", mine.group, "--parts", mine.parts.removeprefix("parts="))
    assert listed.returncode == 0, listed.stderr
    assert re.search(rf"^  {own} +\S", listed.stdout, re.MULTILINE)
    others = [o for o in mine.overrides if not o.startswith((f"{mine.group}=", "initial="))]
    shown = fedstride("show", mine.part, *others)
    assert shown.returncode == 0, shown.stderr
    assert f"name: {own}\n" in shown.stdout
    key = OUT_OF_RANGE[name].partition("=")[0].partition(".")[2]
    assert re.search(rf"^  {key}:", shown.stdout, re.MULTILINE)


@pytest.mark.slow
def test_a_figure_that_is_none_is_refused_in_one_line(fedstride: Command) -> None:
    done = fedstride("run", *small(example("own_metric").overrides), OUT_OF_RANGE["own_metric"])
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and not fedstride.runs.exists()
    assert line.startswith("error: task.metrics = ['price'] is not allowed: ") and line.endswith(", cost")


@pytest.mark.slow
@chosen_alone
def test_a_value_out_of_its_range_is_refused_in_one_line(name: str, fedstride: Command, tmp_path: Path) -> None:
    key, _, _ = OUT_OF_RANGE[name].partition("=")
    done = fedstride("run", *small(with_files(name, tmp_path)), OUT_OF_RANGE[name])
    assert done.returncode == 2
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {key} = ") and " is not allowed: " in line
    assert not fedstride.runs.exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", SIMULATED)
def test_a_simulation_is_bit_identical_to_an_in_process_run(name: str, fedstride: Command) -> None:
    given = small([*example(name).overrides, "rounds=2", "evaluate_clients=true"])
    completed(fedstride("simulate", *given, "name=simulated"), fedstride.runs / "simulated")
    completed(fedstride("run", "--quiet", "--no-compare", *given, "name=desk"), fedstride.runs / "desk")
    simulated, desk = fedstride.runs / "simulated", fedstride.runs / "desk"
    assert weights(simulated) == weights(desk)
    assert table(simulated) == table(desk)
