"""A server process that is killed with SIGKILL at a chosen point of a round, so that it cannot clean up.

As a program it reads commands, one JSON line each, and forks a child process for each. So imports are done only
once.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desk import play, resume

ROUND = 3  # the round in which the process dies, of 5


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(real: Callable[..., Any], *args: Any, **options: Any) -> Any:
    die()


def after(real: Callable[..., Any], *args: Any, **options: Any) -> Any:
    real(*args, **options)
    die()


def half(real: Callable[..., Any], descriptor: int, content: bytes) -> Any:
    """Write only half of the content, then die."""
    real(descriptor, content[: len(content) // 2])
    die()


def cut(real: Callable[..., Any], descriptor: int) -> Any:
    """Truncate the file instead of syncing it, then die."""
    os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
    die()


def part(real: Callable[..., Any], folder: Path, **options: Any) -> Any:
    """Delete only one file of the folder, then die."""
    sorted(folder.iterdir())[0].unlink()
    die()


@dataclass(frozen=True)
class Point:
    """The point at which a run dies: at one call of a function in round `ROUND`."""

    function: str  # MODULE:NAME
    how: Callable[..., Any]
    which: Callable[..., bool] = lambda *args, **options: True  # which calls are counted, by their arguments
    call: int = 1  # the number of the call in the round, among those that are counted

    def install(self) -> None:
        """Wrap the function, and wrap the rounds to know the number of the current round."""
        server_round = 0
        rounds = importlib.import_module("server_app.rounds")
        begin = rounds.Federation._one_round

        @functools.wraps(begin)
        def one_round(federation: Any, number: int, last: Any) -> Any:
            nonlocal server_round
            server_round = number
            return begin(federation, number, last)

        rounds.Federation._one_round = one_round
        owner, name = self._found()
        real = getattr(owner, name)
        calls = 0

        @functools.wraps(real)
        def wrapped(*args: Any, **options: Any) -> Any:
            nonlocal calls
            if server_round == ROUND and self.which(*args, **options):
                calls += 1
                if calls == self.call:
                    return self.how(real, *args, **options)
            return real(*args, **options)

        setattr(owner, name, wrapped)

    def _found(self) -> tuple[Any, str]:
        module, _, path = self.function.partition(":")
        *owners, name = path.split(".")
        return functools.reduce(getattr, owners, importlib.import_module(module)), name


def lines_of(name: str) -> Callable[..., bool]:
    return lambda lines, new: lines.path.name == name and bool(new)


def file_called(name: str) -> Callable[..., bool]:
    return lambda path, *rest: path.name.startswith(name)


def below(folder: str) -> Callable[..., bool]:
    """Whether an open file is below a folder whose path contains this."""
    return lambda descriptor, *rest: f"/{folder}" in os.readlink(f"/proc/self/fd/{descriptor}")


def a_clients(descriptor: int) -> bool:
    """Whether an open file is a client's state."""
    return "/clients/" in os.readlink(f"/proc/self/fd/{descriptor}")


def checkpoint_of(server_round: int) -> Callable[..., bool]:
    return lambda path, *rest, **options: path.name == f"round-{server_round:06}"


POINTS = {
    "before the cohort is drawn": Point("server_app.exchange.roster:Roster.cohort", before),
    "after the cohort is drawn": Point("server_app.exchange.roster:Roster.cohort", after),
    "before sending": Point("lab.engine.local_grid:LocalGrid.push_messages", before),
    "after sending": Point("lab.engine.local_grid:LocalGrid.push_messages", after),
    "before a client keeps its state": Point("client_app.state.saved_states:OnDisk.save", before, call=2),
    "a client's state is cut short": Point("os:fsync", cut, a_clients),
    "before a client's state is renamed": Point(
        "pathlib:Path.replace", before, file_called(f".round-{ROUND:06}.")
    ),
    "after a client has kept its state": Point("client_app.state.saved_states:OnDisk.save", after),
    "before the first reply": Point("lab.engine.local_grid:LocalGrid.pull_messages", before),
    "after the second of three replies": Point("lab.engine.local_grid:LocalGrid.pull_messages", after, call=2),
    "after the last reply": Point("lab.engine.local_grid:LocalGrid.pull_messages", after, call=3),
    "before aggregating": Point("strategies.norm_analysis:NormAnalysis.aggregate_train", before),
    "after aggregating": Point("strategies.norm_analysis:NormAnalysis.aggregate_train", after),
    "after evaluating": Point("server_app.evaluation.central:CentralEvaluation.__call__", after),
    "before the clients' lines": Point(
        "server_app.records.line_files:LineFile.append", before, lines_of("clients.jsonl")
    ),
    "half of the clients' lines": Point("os:write", half, call=1),
    "between the clients' lines and the round's": Point(
        "server_app.records.line_files:LineFile.append", before, lines_of("metrics.jsonl")
    ),
    "half of the round's line": Point("os:write", half, call=2),
    "after the round's line": Point(
        "server_app.records.line_files:LineFile.append", after, lines_of("metrics.jsonl")
    ),
    "half of the table's line": Point("os:write", half, call=3),
    "half of the second copy of the round's line": Point("os:write", half, call=4),
    "before the best model is renamed": Point("pathlib:Path.replace", before, file_called(".best.safetensors")),
    "after the best model": Point("server_app.run_files:save_model", after, file_called("best.safetensors")),
    "before the checkpoint": Point("server_app.run_files:write_checkpoint", before),
    "its folder is empty": Point("server_app.records.checkpoint:_fill", before),
    "its first file is cut short": Point("os:fsync", cut, below("checkpoint/.round-")),
    "its first file is written, the others are not": Point("os:fsync", after, below("checkpoint/.round-")),
    "its second file is written, the last is not": Point("os:fsync", after, below("checkpoint/.round-"), call=2),
    "its last file is cut short": Point("os:fsync", cut, below("checkpoint/.round-"), call=4),
    "its files are written": Point("server_app.records.checkpoint:_fill", after),
    "before the checkpoint is renamed": Point("pathlib:Path.rename", before),
    "after the checkpoint is renamed": Point("pathlib:Path.rename", after),
    "before an old checkpoint is dropped": Point("shutil:rmtree", before, checkpoint_of(ROUND - 2)),
    "while an old checkpoint is dropped": Point("shutil:rmtree", part, checkpoint_of(ROUND - 2)),
    "after the checkpoint": Point("server_app.run_files:write_checkpoint", after),
}


def execute(command: dict[str, Any]) -> None:
    """Start or resume a run, and die at the point."""
    POINTS[command["point"]].install()
    if "resume" in command:
        resume(Path(command["resume"]))
    else:
        play(Path(command["out"]), *command["overrides"])


def main() -> None:
    """Fork a child process for each command, and print its exit code."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                execute(json.loads(line))
            except BaseException:
                traceback.print_exc()
            os._exit(1)  # it should have died
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    from client_app.app import app  # noqa: F401  imports everything that a child process needs

    main()
