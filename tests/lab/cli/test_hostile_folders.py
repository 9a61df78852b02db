"""Every command that reads a run's folder, on folders of somebody else: it works, or it says why in one line.

A small real run is copied; one of its files is damaged, also so that all digests are right again; and a command is
called in this process. The commands are those of the command line that have an argument for a run.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from damage import Damage, kinds, summed_again
from desk import play
from folders import Call

from lab.cli import main as cli
from lab.cli.resume import resume
from lab.cli.runs import WHERE
from lab.cli.table import RUNS
from lab.cli.target import RUN
from lab.plots import KINDS
from server_app.records.checkpoint import FOLDER, SUMS

SMALL = (
    *("clients=2", "client.local_steps=1", "rounds=2", "strategy=fedlws", "client=fednlr"),
    *("evaluate_clients=true", "objective=moon"),
)
SECONDS = 100.0
"""Of one command, on a machine that does much else."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that is completed."""
    return play(tmp_path_factory.mktemp("base"), *SMALL).folder


# ---------------------------------------------------------------- commands

Arguments = Callable[[Path, Path], list[object]]
"""The arguments of a command for this run, and for a folder where it may write."""

BY_ARGUMENT: dict[int, Arguments] = {
    id(RUNS): lambda run, to: [run],
    id(RUN): lambda run, to: [run],
    id(WHERE): lambda run, to: [run.parent],
}
MORE: dict[str, list[Arguments]] = {
    "report": [lambda run, to: [run, "-o", to / "r.html"]],
    "plot": [lambda run, to, kind=kind: [kind, run, "-o", to / "p.png"] for kind in KINDS],  # type: ignore[misc]
    "table": [
        *(lambda run, to: [run], lambda run, to: [run, "--best"], lambda run, to: [run, "--format", "csv"]),
        *(lambda run, to: [run, "--metric", "train/loss"], lambda run, to: [run, "--target", "0.1"]),
    ],
    "logs": [lambda run, to: [run], lambda run, to: [run, "--follow"]],
    "show": [lambda run, to: ["quickstart", f"resume={run}"]],
    "resume": [lambda run, to: [run], lambda run, to: [run, "rounds=2", "-q"]],
}
"""Commands with arguments of their own, and options that lead to other code."""


def reading() -> dict[str, list[Arguments]]:
    """The commands that read the folder of a run, with the arguments to try."""
    found: dict[str, list[Arguments]] = {"show": MORE["show"]}
    for command in cli.app.registered_commands:
        assert command.callback is not None and command.name is not None
        hints = get_type_hints(command.callback, include_extras=True)
        marks = {
            id(mark) for hint in hints.values() if get_origin(hint) is Annotated for mark in get_args(hint)[1:]
        }
        takes = [BY_ARGUMENT[mark] for mark in marks & set(BY_ARGUMENT)]
        if command.callback is resume or takes:
            found[command.name] = MORE.get(command.name, takes)
    return found


COMMANDS = [(name, each) for name, several in reading().items() for each in several]
"""The name of a command, and what makes its arguments."""


def test_the_commands_are_those_of_the_command_line() -> None:
    """`fetch` reads no folder; it takes a run that another machine has."""
    assert set(reading()) >= {"table", "plot", "report", "runs", "watch", "logs", "stop", "resume", "show"}


# ---------------------------------------------------------------- files and kinds of damage


def damages(base: Path) -> Iterator[tuple[Path, str, Damage]]:
    """Each file of the run, and each kind of damage."""
    for file in sorted(path for path in base.rglob("*") if path.is_file()):
        for what, act in kinds(file).items():
            yield file.relative_to(base), what, act


def problem(
    call: Call, base: Path, work: Path, file: Path, act: Damage, command: tuple[str, Arguments]
) -> str | None:
    """What is wrong with how the command ends; None if nothing is."""
    name, arguments = command
    run, to = work / "runs/run", work / "to"
    shutil.rmtree(work, ignore_errors=True)
    to.mkdir(parents=True)
    shutil.copytree(base, run)
    act(run / file)
    if file.parts[0] == FOLDER and len(file.parts) == 3 and file.name != SUMS:
        summed_again((run / file).parent)
    began = time.monotonic()
    try:
        code, out, err = call(name, *arguments(run, to))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if code not in (0, 1, 2):
        return f"exit code {code}"
    lines = [line for line in err.splitlines() if not line.startswith("note: ") and "WARNING" not in line]
    if len(lines) > (code != 0):
        return f"{len(lines)} lines of errors: {err[:300]}"
    if "Traceback" in out + err or not all(char.isprintable() or char == "\n" for char in out + err):
        return f"a traceback or characters that terminals act on: {(out + err)[:300]!r}"
    return "it took too long" if time.monotonic() - began > SECONDS else None


def tried(call: Call, base: Path, work: Path, every: int) -> tuple[int, list[str]]:
    """How many were tried, and what was wrong. Of `every` kinds of damage one, with a command in turn."""
    turns = itertools.cycle(COMMANDS)
    wrong, count = [], 0
    for number, (file, what, act) in enumerate(damages(base)):
        command = next(turns)
        if number % every:
            continue
        count += 1
        found = problem(call, base, work, file, act, command)
        if found is not None:
            arguments = " ".join(map(str, command[1](Path("run"), Path("to"))))
            wrong.append(f"{command[0]} {arguments}; {file}: {what}: {found}")
    return count, wrong


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_damaged_folders_are_read_or_refused_in_one_line(call: Call, base: Path, tmp_path: Path) -> None:
    """All of them (`every=1`) take half an hour."""
    count, wrong = tried(call, base, tmp_path / "work", every=41)
    assert count > 50
    assert wrong == []


WORST = ["metrics.jsonl", "status.json", "config.yaml", ".lock"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("file", WORST)
def test_no_command_waits_for_a_pipe(call: Call, base: Path, tmp_path: Path, file: str) -> None:
    act: Any = kinds(base / file)["a pipe"]
    plain = list({each[0]: each for each in COMMANDS if each[0] in ("watch", "stop", "resume")}.values())
    wrong = [problem(call, base, tmp_path / "work", Path(file), act, each) for each in plain]
    assert [each for each in wrong if each is not None] == []
