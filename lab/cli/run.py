"""`fedstride run`: trains one federation, or a sweep of them, in this process."""

from __future__ import annotations

import logging
import math
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedstride.processes import unix_signals
from fedstride.processes.cores import cores
from fedstride.processes.unix_signals import STOPPED

from ..terminal import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from server_app.config.schema import Config
    from server_app.session import Outcome

    from ..engine.fedavg_comparison import ComparisonRun
    from ..engine.sweep import EndedRun
    from ..engine.sweep_combinations import PlannedRun, Sweep

OVERRIDES = typer.Argument(
    help="Hydra overrides, as in strategy=fedlws strategy.beta=0.05 client=fednlr rounds=5 seed=2; "
    "method=feddyn+fednlr names all parts of a method, and method=all (with -m) each method alone.",
    show_default=False,
)


def run(
    overrides: Annotated[list[str] | None, OVERRIDES] = None,
    multirun: Annotated[
        bool, typer.Option("--multirun", "-m", help="Run every combination of listed values: seed=1,2,3.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Runs of a sweep at a time; by default one per core. Fewer runs get several cores each.",
            min=1,
        ),
    ] = None,
    on: Annotated[
        str, typer.Option(help="Where the runs of a sweep run: local, or ray (the Ray cluster at RAY_ADDRESS).")
    ] = "local",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run, without running it; a single run is checked.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the sweep in out=FOLDER: complete runs are kept, those begun resumed.",
        ),
    ] = False,
    compare: Annotated[bool, typer.Option(help="Also run FedAvg with the same seed and budget.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")] = False,
) -> None:
    """Train one federation on this machine and save its run folder (default: experiment=quickstart).

    OVERRIDES are Hydra overrides, as in strategy=fedlws strategy.beta=0.05 client=fednlr rounds=5 seed=2.
    """
    from fedstride.errors import require
    from server_app import preparation
    from server_app.config.compose import compose
    from server_app.config.overrides import parse
    from server_app.config.variables import with_variables
    from server_app.records.run_folder import check_name

    unix_signals.outlast_the_terminal()
    console = Console()
    require(on in ("local", "ray"), "--on", on, "local or ray")
    require(multirun or on == "local", "--on", on, "local without -m; for the clients of one run, use engine=ray")
    require(multirun or jobs is None, "--jobs", jobs, "given with -m; a single run has no other beside it")
    require(not (multirun and quiet), "--quiet", True, "given without -m; a sweep prints one line for each run")
    require(multirun or not resume, "--resume", True, "a sweep (-m); for one run, use fedstride resume FOLDER")
    if multirun:
        sweep(overrides or [], console, at_once=jobs, on=on, dry_run=dry_run, resume=resume)
        return
    config = compose(with_variables(parse(overrides or []), os.environ))
    if dry_run or not quiet:
        say(console, title(config))
    if dry_run:
        from ..engine.engine import check_files

        prepared = preparation.prepare(config)
        for note in prepared.notes:
            say(console, f"note: {note}")
        check_name(config)
        check_files(prepared.config)
        return
    train(config, console, compare=compare, quiet=quiet)


# ---------------------------------------------------------------- one run


def train(config: Config, console: Console, *, compare: bool, quiet: bool) -> None:
    """Run in this process, with the live view, handling of Ctrl-C and the summary lines."""
    from client_app.app import app
    from fedstride.errors import counted
    from server_app import preparation, session

    from ..attacks.membership import audit
    from ..engine.engine import engine
    from ..engine.fedavg_comparison import ComparisonRun, counterpart
    from ..engine.interrupt import InterruptHandler, how_to_resume
    from ..engine.progress_display import LiveView

    logging.getLogger("flwr").setLevel(logging.WARNING)
    prepared = preparation.prepare(config)
    comparisons: list[ComparisonRun] = []
    folders: list[Path] = []
    try:
        with engine(app, prepared) as desk:
            for note in (*prepared.notes, *desk.notes):
                say(console, f"note: {note}")
            if prepared.checkpoint is not None and prepared.checkpoint.server_round == config.rounds:
                say(console, f"nothing to do: the run has done its {counted(config.rounds, 'round')}")
            grid = desk.grid(prepared)

            def on_folder(folder: Path) -> None:
                folders.append(folder)
                grid.keep_client_states_in(folder)
                other = counterpart(prepared.config, folder) if compare else None
                if other is not None:
                    comparisons.append(ComparisonRun(desk, other, prepared))

            try:
                with (
                    InterruptHandler() as interrupt,
                    LiveView(console, rounds=config.rounds, metric=prepared.config.headline, quiet=quiet) as view,
                ):
                    outcome = session.run(
                        grid,
                        prepared,
                        evaluate=desk.evaluate(),
                        observers=[view, interrupt],
                        on_folder=on_folder,
                        audit=audit,
                    )
                if outcome.stopped:
                    say(console, f"stopped early: {outcome.stopped}")
                for known in outcome.medians:
                    say(console, f"note: {known}")
                _report(console, prepared.config, outcome, comparisons)
            except STOPPED as error:
                for comparison in comparisons:
                    comparison.stop(type(error))
                raise
            finally:
                for comparison in comparisons:
                    comparison.stop()
    except STOPPED:
        for folder in folders:
            say(console, f"stopped; {how_to_resume(folder)}")
        raise
    finally:
        for comparison in comparisons:
            comparison.wait()


def title(config: Config) -> str:
    """One line that describes the run."""
    from fedstride.errors import counted
    from server_app.config.keys import label

    data = f"{config.task.name}, {config.partition.name}, {config.model.name}"
    attackers = getattr(config.attack, "clients", 0)
    attack = f", {attackers} of them with {config.attack.name}" if attackers else ""
    return (
        f"{data}: {label(config)}, client {config.client.name}, {counted(config.clients, 'client')} "
        f"({config.cohort_size} per round{attack}), {counted(config.rounds, 'round')}, seed {config.seed}"
    )


def _report(console: Console, config: Config, outcome: Outcome, comparisons: list[ComparisonRun]) -> None:
    """Print the summary lines: the final figure, that of FedAvg, the plot and the run folder."""
    from fedstride.figures.metrics import as_text, fact, shown
    from server_app.config.keys import label
    from server_app.file_names import CURVE, STATUS
    from server_app.reports.curve import drawn
    from server_app.reports.unmeasured import measured_metric, why_not_measured

    folder, rows = outcome.folder, outcome.rows
    if why := why_not_measured(config, rows, outcome.sites):
        say(console, why)
    metric = measured_metric(config, rows)
    known, final = fact(metric), rows[-1].get(metric)
    name = label(config) + ("" if config.client.name == "sgd" else f" with {config.client.name}")
    say(console, f"{name:<28} final {shown(metric)} {as_text(metric, final):>8}")
    for other in comparisons:
        _wait_for(other, console, config.rounds)
        if not other.completed:
            say(console, f"fedavg: the comparison run failed; see {other.folder / STATUS}")
            continue
        other_rows = other.rows
        fedavg = other_rows[-1].get(metric)
        same = "(comparison run: same seed, same budget)"
        say(console, f"{'fedavg':<28} final {shown(metric)} {as_text(metric, fedavg):>8}   {same}")
        if final is not None and fedavg is not None:
            difference = 0.0 if math.isclose(final, fedavg, rel_tol=1e-9) else final - fedavg
            points = f"{100 * difference:+7.2f} points" if known.unit == "%" else f"{difference:+9.4f}"
            say(console, f"{'difference':<28} {'':>{len(shown(metric)) + 6}}{points}")
        drawn([(name, rows), ("fedavg", other_rows)], folder / CURVE, title=title(config), metric=metric)
    if (folder / CURVE).exists():
        say(console, f"{'plot':<28} {folder / CURVE}")
    say(console, f"{'folder':<28} {folder}")


def _wait_for(other: ComparisonRun, console: Console, rounds: int) -> None:
    """Wait for the end of a comparison run; on a terminal, show its round."""
    with console.status("fedavg, the comparison run") as status:
        while not other.wait(seconds=0.5):
            done = other.rows[-1]["round"] if other.rows else 0
            status.update(f"fedavg, the comparison run: round {done + 1} of {rounds}")


# ---------------------------------------------------------------- a sweep


def sweep(
    overrides: list[str], console: Console, *, at_once: int | None, on: str, dry_run: bool, resume: bool
) -> None:
    """Run every combination. A failed run does not stop the others; the summary names it."""
    from ..engine.sweep_combinations import checked, plan

    planned = plan(overrides, resume=resume)
    if dry_run:
        for number, job in enumerate(planned.jobs, start=1):
            say(console, f"[{number}/{len(planned.jobs)}] fedstride run {shlex.join(job.overrides)}")
    else:
        planned = checked(planned, here=on == "local")
    for note in planned.notes:
        say(console, f"note: {note}")
    if dry_run:
        return
    ended: list[EndedRun] = []
    try:
        for result in _ended(planned, console, at_once, on):
            ended.append(result)
    finally:
        _summary(console, planned, ended)
    if any(result.state != "completed" for result in ended):
        raise typer.Exit(1)


def _ended(planned: Sweep, console: Console, at_once: int | None, on: str) -> Iterator[EndedRun]:
    """Run what is not complete; how each run ended, when it does."""
    jobs = planned.jobs
    if not jobs:
        return
    runs: Callable[..., Iterator[EndedRun]]
    if on == "ray":
        from ..engine.ray_jobs import run_jobs as runs

        where = "on the Ray cluster"
    else:
        from ..engine.sweep import run_jobs as runs

        at_once = min(at_once or cores(), len(jobs))
        where = f"{at_once} at a time"
    say(console, f"{len(jobs)} runs, {where}, in {planned.folder}")
    numbers = {job.folder: number for number, job in enumerate(jobs, start=1)}

    def on_start(job: PlannedRun) -> None:
        say(console, f"[{numbers[job.folder]}/{len(jobs)}] started    {job.folder.name}")

    for result in runs(jobs, at_once=at_once, on_start=on_start):
        say(console, f"[{numbers[result.job.folder]}/{len(jobs)}] {_result(result)}")
        yield result


def _result(ended: EndedRun) -> str:
    name = ended.job.folder.name
    if ended.state == "completed":
        return f"completed  {name}: {ended.figure} in {ended.seconds:.0f} s"
    return f"{ended.state:<10} {name}: {ended.reason}"


def _summary(console: Console, planned: Sweep, ended: list[EndedRun]) -> None:
    failed = [result for result in ended if result.state != "completed"]
    started = {result.job.folder for result in ended}
    for result in failed:
        say(console, f"{result.state}: {result.job.folder.name}: {result.reason}")
    for job in planned.jobs:
        if job.folder not in started:
            say(console, f"not started: fedstride run {shlex.join(job.overrides)}")
    if len(started) < len(planned.jobs) or any(result.state != "failed" for result in failed):
        say(console, f"go on with the same command, --resume and out={shlex.quote(str(planned.folder))}")
    done = len(planned.complete) + len(ended) - len(failed)
    say(
        console,
        f"{done} of {len(planned.runs)} runs completed; compare them with: fedstride table {planned.folder}",
    )
