"""The examples of user-defined parts: they are short, listed, shown and checked, and their commands run.

Each command runs in a separate process, because a parts file stays loaded in the process that has read it.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from desk import table, weights

ROOT = Path(__file__).resolve().parents[1]
FILES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
SMALL = ("rounds=1", "model=mlp", "clients=3")
SIMULATED = "own_wrapper"  # its file contains a client half, so clients need the file too

OUT_OF_RANGE = {
    "own_client": "client.first=0",
    "own_model": "model.width=0",
    "own_objective": "objective.epsilon=1",
    "own_partition": "partition.ratio=0",
    "own_strategy": "strategy.longest=0",
    "own_task": "task.noise=-1",
    "own_wrapper": "strategy.size=-1",
}

each = pytest.mark.parametrize("name", FILES)


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
def test_its_command_runs(name: str, fedstride: Command) -> None:
    done = fedstride("run", "--quiet", "--no-compare", *small(example(name).overrides), "name=mine")
    completed(done, fedstride.runs / "mine")


@pytest.mark.slow
@each
def test_it_is_listed_and_shown(name: str, fedstride: Command) -> None:
    mine = example(name)
    own = mine.part.rpartition("+")[2]
    listed = fedstride("list", mine.group, "--parts", mine.parts.removeprefix("parts="))
    assert listed.returncode == 0, listed.stderr
    assert re.search(rf"^  {own} +\S", listed.stdout, re.MULTILINE)
    shown = fedstride("show", mine.part, *(o for o in mine.overrides if not o.startswith(f"{mine.group}=")))
    assert shown.returncode == 0, shown.stderr
    assert f"name: {own}\n" in shown.stdout
    key = OUT_OF_RANGE[name].partition("=")[0].partition(".")[2]
    assert re.search(rf"^  {key}: ", shown.stdout, re.MULTILINE)


@pytest.mark.slow
@each
def test_a_value_out_of_its_range_is_refused_in_one_line(name: str, fedstride: Command) -> None:
    key, _, _ = OUT_OF_RANGE[name].partition("=")
    done = fedstride("run", *small(example(name).overrides), OUT_OF_RANGE[name])
    assert done.returncode == 2
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {key} = ") and " is not allowed: " in line
    assert not fedstride.runs.exists()


@pytest.mark.slow
def test_a_simulation_is_bit_identical_to_an_in_process_run(fedstride: Command) -> None:
    given = small([*example(SIMULATED).overrides, "rounds=2"])
    completed(fedstride("simulate", *given, "name=simulated"), fedstride.runs / "simulated")
    completed(fedstride("run", "--quiet", "--no-compare", *given, "name=desk"), fedstride.runs / "desk")
    simulated, desk = fedstride.runs / "simulated", fedstride.runs / "desk"
    assert weights(simulated) == weights(desk)
    assert table(simulated) == table(desk)
