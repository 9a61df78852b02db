"""`fedstride.run`, `sweep`, `compare`, `resume` and `results`: what the commands do, called from Python."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import torch

from client_app.app import app
from fedstride import user_parts
from fedstride.errors import ConfigError, RunError, require
from fedstride.files import user_folders
from fedstride.processes.cores import cores
from server_app import preparation, session
from server_app.config.compose import compose
from server_app.config.keys import label
from server_app.config.overrides import Override, parse, values_of, written
from server_app.config.schema import Config
from server_app.config.variables import with_variables
from server_app.preparation import Prepared

from ..attacks.membership import audit
from ..comparison import whole_comparison
from ..comparison.compare import PlannedComparison
from ..comparison.comparison_runs import ComparedRun
from ..engine.engine import engine, uses_gpus
from ..engine.interrupt import InterruptHandler, next_step
from ..engine.sweep import EndedRun, run_jobs
from ..engine.sweep_combinations import PlannedRun, Sweep, checked, plan
from ..results.run_folders import find_runs
from ..results.run_folders import load as load_run
from . import notebook_parts
from .beginning import beginning
from .comparison import Comparison
from .keys_as_overrides import Value, merged, several, single, swept
from .run_result import Result
from .several_results import Results
from .status_line import Rounds, StatusLine
from .user_process import apart

Place = str | os.PathLike[str]


def run(settings: Mapping[str, Value] | None = None, /, *, quiet: bool = False, **keys: Value) -> Result:
    """Train one federation on this machine, as `fedstride run --no-compare` does: the same keys, folder and bits.

    Keys with a dot are given in the dict, all others there or as keywords. `quiet`: show no progress. Raises
    ConfigError before any work for what is not allowed, DataError, and RunError if the run fails. Ctrl-C ends it
    with its checkpoint, and raises KeyboardInterrupt with what to do next.
    """
    given = _read(single(merged(settings, keys)))
    parts = notebook_parts.chosen(given)
    text = notebook_parts.text_of(parts) if parts else None
    with apart(), StatusLine(quiet=quiet) as line:
        if text is None:
            return _train(_prepared(given), line)
        with notebook_parts.as_file(text, given) as chosen:
            prepared = _prepared([*given, chosen])
        return _train(prepared, line)


def resume(
    folder: Place, settings: Mapping[str, Value] | None = None, /, *, quiet: bool = False, **keys: Value
) -> Result:
    """Go on with a run from its newest checkpoint, as `fedstride resume`; with the bits of an uninterrupted run.

    The keys are settings to change, such as rounds=40. Raises as `run` does.
    """
    given = _read(single(merged(settings, keys)))
    with apart(), StatusLine(quiet=quiet) as line:
        return _train(_prepared([*given, written("resume", os.fspath(folder))]), line)


def results(*folders: Place) -> Results:
    """The runs in these folders: run folders, or folders that contain some. Raises ConfigError without any."""
    require(bool(folders), "folders", folders, "one or more run folders, or folders that contain run folders")
    return _found([user_folders.expanded(os.fspath(folder)) for folder in folders])


def _read(texts: Sequence[str]) -> list[Override]:
    return with_variables(parse(texts), os.environ)


@beginning()
def _prepared(given: Sequence[Override]) -> Prepared:
    try:
        return preparation.prepare(compose(given))
    except ConfigError as error:
        lists = [override for override in given if isinstance(override.value, list)]
        listed = next((override for override in lists if repr(override.text) in str(error)), None)
        if listed is None:
            raise
        raise several(listed.key) from error


def _train(prepared: Prepared, line: StatusLine) -> Result:
    config, notes, folders = prepared.config, [*prepared.notes], list[Path]()
    title = f"{label(config)}, seed {config.seed}"
    line.show(f"{title}: begins")
    try:
        with engine(app, prepared) as desk:
            notes += desk.notes
            grid = desk.grid(prepared)

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
                    audit=audit,
                )
    except KeyboardInterrupt as error:
        _stopped(folders, error)
    notes += outcome.medians
    notes += [f"stopped early: {outcome.stopped}"] if outcome.stopped else []
    result = Result(load_run(outcome.folder), notes)
    line.show(f"{result.title}: {outcome.folder}")
    return result


def _stopped(folders: Sequence[Path], error: KeyboardInterrupt) -> NoReturn:
    steps = (next_step(folder, f"go on with: fedstride.resume({str(folder)!r})") for folder in folders)
    then = [*steps] or ["it has not begun"]
    raise KeyboardInterrupt(f"the run was stopped; {then[0]}") from error


# ---------------------------------------------------------------- a sweep


def sweep(
    settings: Mapping[str, Value] | None = None,
    /,
    *,
    jobs: int | None = None,
    resume: bool = False,
    quiet: bool = False,
    **keys: Value,
) -> Results:
    """Make a run with each combination of listed values, as `fedstride run -m`: strategy=["fedavg", "fednnnn"].

    A tuple is one value, of a key that takes several. `jobs`: runs at a time, by default one for each core.
    `resume`: go on with the sweep in the folder `out`; complete runs are kept, those begun resumed. A run that
    fails does not stop the others: a warning says so, and `failed` of the result why. Raises as `run` does;
    RunError if no run is completed.
    """
    require(jobs is None or jobs >= 1, "jobs", jobs, "a whole number of at least 1")
    texts = swept(merged(settings, keys))
    given = [override for text in texts for override in values_of(text)]
    parts = notebook_parts.chosen(given)
    text = notebook_parts.text_of(parts) if parts else None
    with apart(), StatusLine(quiet=quiet) as line:
        if text is None:
            return _make(_planned(texts, resume), jobs, line)
        with notebook_parts.as_file(text, with_variables(given, os.environ)) as chosen:
            planned = _planned([*texts, chosen.text], resume)
        return _make(planned, jobs, line)


@beginning()
def _planned(texts: Sequence[str], resume: bool) -> Sweep:
    planned = plan(texts, resume=resume)
    _check_copies([job.config for job in planned.jobs])
    return checked(planned)


def _make(planned: Sweep, at_once: int | None, line: StatusLine) -> Results:
    jobs = planned.jobs
    ended: list[EndedRun] = []

    def say(job: PlannedRun | None = None) -> None:
        failed = sum(ended_run.state != "completed" for ended_run in ended)
        line.show(
            f"{len(ended)} of {len(jobs)} runs ended" + (f", {failed} of them not completed" if failed else "")
        )

    say()
    try:
        for ended_run in run_jobs(jobs, at_once=min(at_once or cores(), len(jobs)), on_start=say) if jobs else ():
            ended.append(ended_run)
            say()
    except KeyboardInterrupt as error:
        done = sum(ended_run.state == "completed" for ended_run in ended) + len(planned.complete)
        then = f"go on with the same call, resume=True and out={str(planned.folder)!r}"
        raise KeyboardInterrupt(f"{done} of {len(planned.runs)} runs are completed; {then}") from error
    failed = {
        ended_run.job.folder.name: f"{ended_run.state}: {ended_run.reason}"
        for ended_run in ended
        if ended_run.state != "completed"
    }
    if len(failed) == len(planned.runs):
        raise RunError(f"none of {len(jobs)} runs is completed; the first: {next(iter(failed.values()))}")
    if failed:
        warnings.warn(f"{len(failed)} of {len(jobs)} runs are not completed: see .failed", stacklevel=3)
    all_results = _found([job.folder for job in planned.runs if job.folder.is_dir()])
    return Results(list(all_results), [*planned.notes, *all_results.notes], failed)


# ---------------------------------------------------------------- a comparison


def compare(
    settings: Mapping[str, Value] | None = None,
    /,
    *,
    seeds: Sequence[int] = (1, 2, 3),
    folds: int | None = None,
    jobs: int | None = None,
    out: Place | None = None,
    resume: bool = False,
    quiet: bool = False,
    **keys: Value,
) -> Comparison:
    """Compare what sites get together with what each would have alone, and with pooled rows: `fedstride compare`.

    The keys are as in `sweep`: a list, as in strategy=["fedavg", "fednnnn"], compares several federations, and a
    tuple is one value of a key that takes several. The other arguments are the command's options; `out` is a new
    or empty folder, or with `resume` that of an ended comparison, which goes on. All rows must be on this machine;
    copies of them are removed at the end. Raises as `run` does.
    """
    require(jobs is None or jobs >= 1, "jobs", jobs, "a whole number of at least 1")
    require(folds is None or 2 <= folds <= 100, "folds", folds, "None, or a whole number from 2 to 100")
    chosen = list(seeds)
    require(len(set(chosen)) == len(chosen) > 0, "seeds", chosen, "one or more different whole numbers")
    given = merged(settings, keys)
    texts = swept(given)
    parts = notebook_parts.chosen([override for text in texts for override in values_of(text)])
    with apart(), StatusLine(quiet=quiet) as line:
        if not parts:
            return _compared(texts, given, line, chosen, folds, jobs, out, resume)
        overrides = with_variables([override for text in texts for override in values_of(text)], os.environ)
        with notebook_parts.as_file(notebook_parts.text_of(parts), overrides) as file:
            return _compared([*texts, file.text], given, line, chosen, folds, jobs, out, resume)


def _compared(
    texts: Sequence[str],
    given: Mapping[str, Value],
    line: StatusLine,
    seeds: Sequence[int],
    folds: int | None,
    jobs: int | None,
    out: Place | None,
    resume: bool,
) -> Comparison:
    wanted = _asked(texts, given, seeds, folds)
    _check_copies(list(wanted.configs.values()))
    ended, place = list[EndedRun](), list[Path]()

    def begins(planned: PlannedComparison, folder: Path, complete: int) -> None:
        place.append(folder)
        line.show(f"0 of {len(planned.runs) - complete} runs ended")

    def on_end(planned: PlannedComparison, run: ComparedRun, ended_run: EndedRun) -> None:
        ended.append(ended_run)
        line.show(f"{len(ended)} of {len(planned.runs)} runs ended")

    folder = None if out is None else Path(os.fspath(out))
    try:
        made = whole_comparison.make(
            wanted, folder, jobs, named="out", resume=resume, begins=begins, on_end=on_end
        )
        return Comparison(made)
    except KeyboardInterrupt as error:
        where = f"; go on with the same call, resume=True and out={str(place[0])!r}" if place else ""
        raise KeyboardInterrupt(f"the comparison was stopped{where}") from error


@beginning()
def _asked(
    texts: Sequence[str], given: Mapping[str, Value], seeds: Sequence[int], folds: int | None
) -> whole_comparison.ComparisonRequest:
    try:
        return whole_comparison.asked(texts, seeds, folds or 0)
    except ConfigError as error:
        listed = next((key for key, value in given.items() if isinstance(value, list) and key in str(error)), None)
        if listed is None:
            raise
        raise ConfigError(
            f"{error}; a list of {listed} compares a federation with each value, and a tuple is one value",
            key=listed,
        ) from error


@user_parts.alone()
def _found(folders: Sequence[Path]) -> Results:
    runs, remarks = find_runs(folders)
    return Results([Result(loaded_run) for loaded_run in runs], remarks)


def _check_copies(configs: Sequence[Config]) -> None:
    """Raise ConfigError if a run could not work in a copy of this process, which may have done anything before."""
    for config in configs:
        require(
            config.client.threads == 1,
            "client.threads",
            config.client.threads,
            "1 here, since runs are made in copies of this process; or use the command",
        )
        if uses_gpus(config) and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            raise ConfigError(
                "this process has used CUDA, so copies of it, which would make the runs, cannot: restart it, or "
                "use the command"
            )
