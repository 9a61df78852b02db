"""`fedstride.run`, `sweep`, `resume` and `results`: what the commands do, called from Python."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import torch

from client_app.app import app
from fedstride import homes, own
from fedstride.cores import cores
from fedstride.errors import ConfigError, RunError, require
from server_app import session
from server_app.checkpoint import valid_checkpoints
from server_app.config.compose import compose
from server_app.config.keys import label
from server_app.config.overrides import Override, parse, values_of, written
from server_app.config.variables import with_variables
from server_app.session import Prepared

from ..engine.engine import engine, uses_gpus
from ..engine.interrupt import InterruptHandler
from ..engine.plan import Job, Sweep, checked, plan
from ..engine.sweep import Ended, run_jobs
from ..results.runs import find_runs
from ..results.runs import load as load_run
from . import cells
from .given import Value, merged, several, single, swept
from .line import Line, Rounds
from .process import apart
from .result import Result
from .results import Results

Place = str | os.PathLike[str]


def run(settings: Mapping[str, Value] | None = None, /, *, quiet: bool = False, **keys: Value) -> Result:
    """Train one federation on this machine, as `fedstride run --no-compare` does: the same keys, folder and bits.

    Keys with a dot are given in the dict, all others there or as keywords. `quiet`: show no progress. Raises
    ConfigError before any work for what is not allowed, DataError, and RunError if the run fails. Ctrl-C ends it
    with its checkpoint, and raises KeyboardInterrupt with what to do next.
    """
    given = _read(single(merged(settings, keys)))
    parts = cells.chosen(given)
    text = cells.text_of(parts) if parts else None
    with apart(), Line(quiet=quiet) as line:
        if text is None:
            return _train(_prepared(given), line)
        with cells.as_file(text, given) as chosen:
            prepared = _prepared([*given, chosen])
        return _train(prepared, line)


def resume(
    folder: Place, settings: Mapping[str, Value] | None = None, /, *, quiet: bool = False, **keys: Value
) -> Result:
    """Go on with a run from its newest checkpoint, as `fedstride resume`; with the bits of an uninterrupted run.

    The keys are settings to change, such as rounds=40. Raises as `run` does.
    """
    given = _read(single(merged(settings, keys)))
    with apart(), Line(quiet=quiet) as line:
        return _train(_prepared([*given, written("resume", os.fspath(folder))]), line)


def results(*folders: Place) -> Results:
    """The runs in these folders: run folders, or folders that contain some. Raises ConfigError without any."""
    require(bool(folders), "folders", folders, "one or more run folders, or folders that contain run folders")
    return _found([homes.expanded(os.fspath(folder)) for folder in folders])


def _read(texts: Sequence[str]) -> list[Override]:
    return with_variables(parse(texts), os.environ)


def _prepared(given: Sequence[Override]) -> Prepared:
    try:
        return session.prepare(compose(given))
    except ConfigError as error:
        lists = [each for each in given if isinstance(each.value, list)]
        listed = next((each for each in lists if repr(each.text) in str(error)), None)
        if listed is None:
            raise
        raise several(listed.key) from error


def _train(prepared: Prepared, line: Line) -> Result:
    config, notes, folders = prepared.config, [*prepared.notes], list[Path]()
    title = f"{label(config)}, seed {config.seed}"
    line.show(f"{title}: begins")
    try:
        with engine(app, prepared) as desk:
            notes += desk.notes
            grid = desk.grid(config)

            def on_folder(folder: Path) -> None:
                folders.append(folder)
                grid.keep_client_states_in(folder)

            with InterruptHandler() as interrupt:
                outcome = session.run(
                    grid,
                    prepared,
                    evaluate=desk.evaluate(),
                    observers=[Rounds(line, config, title), interrupt],
                    on_folder=on_folder,
                )
    except KeyboardInterrupt as error:
        _stopped(folders, error)
    notes += [f"stopped early: {outcome.stopped}"] if outcome.stopped else []
    result = Result(load_run(outcome.folder), notes)
    line.show(f"{result.title}: {outcome.folder}")
    return result


def _stopped(folders: Sequence[Path], error: KeyboardInterrupt) -> NoReturn:
    then = [_next(folder) for folder in folders] or ["it has not begun"]
    raise KeyboardInterrupt(f"the run was stopped; {then[0]}") from error


def _next(folder: Path) -> str:
    if valid_checkpoints(folder):
        return f"go on with: fedstride.resume({str(folder)!r})"
    return f"no round was completed, so start it again; its folder: {folder}"


# ---------------------------------------------------------------- a sweep


def sweep(
    settings: Mapping[str, Value] | None = None,
    /,
    *,
    jobs: int | None = None,
    quiet: bool = False,
    **keys: Value,
) -> Results:
    """Make a run with each combination of listed values, as `fedstride run -m`: strategy=["fedavg", "fednnnn"].

    A tuple is one value, of a key that takes several. `jobs`: runs at a time, by default one for each core. A run
    that fails does not stop the others: a warning says so, and `failed` of the result why. Raises as `run` does;
    RunError if no run is completed.
    """
    require(jobs is None or jobs >= 1, "jobs", jobs, "a whole number of at least 1")
    texts = swept(merged(settings, keys))
    given = [override for text in texts for override in values_of(text)]
    parts = cells.chosen(given)
    text = cells.text_of(parts) if parts else None
    with apart(), Line(quiet=quiet) as line:
        if text is None:
            return _make(_planned(texts), jobs, line)
        with cells.as_file(text, with_variables(given, os.environ)) as chosen:
            planned = _planned([*texts, chosen.text])
        return _make(planned, jobs, line)


def _planned(texts: Sequence[str]) -> Sweep:
    planned = plan(texts)
    _check_copies(planned.jobs)
    return checked(planned)


def _make(planned: Sweep, at_once: int | None, line: Line) -> Results:
    jobs = planned.jobs
    ended: list[Ended] = []

    def say(job: Job | None = None) -> None:
        failed = sum(each.state != "completed" for each in ended)
        line.show(
            f"{len(ended)} of {len(jobs)} runs ended" + (f", {failed} of them not completed" if failed else "")
        )

    say()
    try:
        for each in run_jobs(jobs, at_once=min(at_once or cores(), len(jobs)), on_start=say):
            ended.append(each)
            say()
    except KeyboardInterrupt as error:
        then = [_next(each.job.folder) for each in ended if each.state == "interrupted"]
        done = sum(each.state == "completed" for each in ended)
        raise KeyboardInterrupt("; ".join([f"{done} of {len(jobs)} runs are completed", *then])) from error
    failed = {each.job.folder.name: f"{each.state}: {each.reason}" for each in ended if each.state != "completed"}
    if len(failed) == len(jobs):
        raise RunError(f"none of {len(jobs)} runs is completed; the first: {next(iter(failed.values()))}")
    if failed:
        warnings.warn(f"{len(failed)} of {len(jobs)} runs are not completed: see .failed", stacklevel=3)
    found = _found([job.folder for job in jobs if job.folder.is_dir()])
    return Results(list(found), [*planned.notes, *found.notes], failed)


@own.alone()
def _found(folders: Sequence[Path]) -> Results:
    runs, remarks = find_runs(folders)
    return Results([Result(each) for each in runs], remarks)


def _check_copies(jobs: Sequence[Job]) -> None:
    """Raise ConfigError if a run could not work in a copy of this process, which may have done anything before."""
    for config in (job.config for job in jobs):
        require(
            config.client.threads == 1,
            "client.threads",
            config.client.threads,
            "1 in fedstride.sweep, whose processes are copies of this one; or use the command fedstride run -m",
        )
        if uses_gpus(config) and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            raise ConfigError(
                "this process has used CUDA, so copies of it, in which fedstride.sweep makes its runs, cannot: "
                "restart it, or use the command fedstride run -m"
            )
