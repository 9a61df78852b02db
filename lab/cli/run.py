"""`fedstride run`: train one federation, or a sweep of them, in this process."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedstride.errors import require

if TYPE_CHECKING:
    from server_app.config.schema import Config
    from server_app.rows import Row

    from ..engine.beside import Beside
    from ..engine.sweep import Ended, Job

OVERRIDES = typer.Argument(
    help="Hydra overrides, as in strategy=fedlws strategy.beta=0.05 client=fednlr rounds=5 seed=2.",
    show_default=False,
)


def run(
    overrides: Annotated[list[str] | None, OVERRIDES] = None,
    multirun: Annotated[
        bool, typer.Option("--multirun", "-m", help="Run every combination of listed values: seed=1,2,3.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at a time in a sweep; by default one a core.", min=1)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and run nothing.")] = False,
    compare: Annotated[
        bool, typer.Option(help="Run FedAvg beside it, with the same seed and budget, in a second process.")
    ] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")] = False,
) -> None:
    """Train one federation in this process and leave its folder (experiment quickstart if none is named).

    OVERRIDES are Hydra's, as in strategy=fedlws strategy.beta=0.05 client=fednlr rounds=5 seed=2.
    """
    from server_app.build import build_strategy
    from server_app.config.compose import compose

    console = Console()
    if multirun:
        sweep(overrides or [], console, workers=jobs, dry_run=dry_run)
        return
    config = compose(overrides or [])
    refuse_own_data(config)
    if dry_run or not quiet:
        say(console, title(config))
    if dry_run:
        build_strategy(config)
        return
    train(config, console, compare=compare, quiet=quiet)


def refuse_own_data(config: Config) -> None:
    """Nodes in this process have no data of their own; raises ConfigError where the run asks for them."""
    require(
        config.partition.name != "own",
        "partition",
        "own",
        "one that divides the task's data; nodes bring their own only in a deployment (fedstride submit)",
    )


def say(console: Console, text: str) -> None:
    """Print a line as it is: no markup, no highlighting, no breaking."""
    console.print(text, highlight=False, soft_wrap=True, markup=False)


# ---------------------------------------------------------------- one run


def train(config: Config, console: Console, *, compare: bool, quiet: bool) -> None:
    """Run in this process, with the view, Ctrl-C and the last lines."""
    from client_app.app import app
    from server_app import session

    from ..engine.beside import Beside, counterpart
    from ..engine.interrupt import GentleInterrupt
    from ..engine.live import LiveView
    from ..engine.local import LocalGrid

    logging.getLogger("flwr").setLevel(logging.WARNING)
    prepared = session.prepare(config)
    for note in prepared.notes:
        say(console, f"note: {note}")
    grid = LocalGrid(app, config.clients)
    beside: list[Beside] = []
    folders: list[Path] = []

    def on_folder(folder: Path) -> None:
        folders.append(folder)
        grid.keep_in(folder)
        other = counterpart(config, folder) if compare else None
        if other is not None:
            beside.append(Beside(other))

    try:
        with GentleInterrupt() as interrupt, LiveView(console, rounds=config.rounds, quiet=quiet) as view:
            outcome = session.run(grid, prepared, observers=[view, interrupt], on_folder=on_folder)
        if outcome.stopped:
            say(console, f"stopped early: {outcome.stopped}")
        _report(console, config, outcome.folder, outcome.rows, beside)
    except KeyboardInterrupt:
        for folder in folders:
            say(console, f"stopped; go on with: fedstride resume {folder}")
        raise
    finally:
        for process in beside:
            process.stop()


def title(config: Config) -> str:
    """One line that says what runs."""
    from server_app.config.schema import label

    return (
        f"{config.experiment}: {label(config)}, client {config.client.name}, {config.clients} clients "
        f"({config.cohort_size} a round), {config.rounds} rounds, seed {config.seed}"
    )


def _report(console: Console, config: Config, folder: Path, rows: list[Row], beside: list[Beside]) -> None:
    """The last lines: final accuracy, FedAvg's, the folder."""
    from server_app.config.schema import label
    from server_app.figures.curve import draw

    final = rows[-1]["test/accuracy"]
    name = label(config) + ("" if config.client.name == "sgd" else f" with {config.client.name}")
    say(console, f"{name:<28} final test accuracy {100 * final:6.2f} %")
    for other in beside:
        if not other.wait():
            say(console, f"fedavg: the run beside it failed; see {other.folder / 'status.json'}")
            continue
        other_rows = other.rows()
        fedavg = other_rows[-1]["test/accuracy"]
        same = "(run beside it: same seed, same budget)"
        say(console, f"{'fedavg':<28} final test accuracy {100 * fedavg:6.2f} %   {same}")
        say(console, f"{'difference':<28} {'':>19}{100 * (final - fedavg):+7.2f} points")
        draw([(name, rows), ("fedavg", other_rows)], folder / "curve.png", title=title(config))
    say(console, f"{'picture':<28} {folder / 'curve.png'}")
    say(console, f"{'folder':<28} {folder}")


# ---------------------------------------------------------------- a sweep


def sweep(overrides: list[str], console: Console, *, workers: int | None, dry_run: bool) -> None:
    """Run every combination; a failed run does not end the others, and is named at the end."""
    from server_app import session

    from ..engine.sweep import plan, play

    jobs = plan(overrides)
    for number, job in enumerate(jobs, start=1):
        if dry_run:
            say(console, f"[{number}/{len(jobs)}] fedstride run {' '.join(job.overrides)}")
    if dry_run:
        return
    session.prepare(jobs[0].config)  # data and partition are there before the workers ask for them
    count = min(workers or len(os.sched_getaffinity(0)), len(jobs))
    say(console, f"{len(jobs)} runs, {count} at a time, in {jobs[0].folder.parent}")
    numbers = {job.folder: number for number, job in enumerate(jobs, start=1)}

    def on_start(job: Job) -> None:
        say(console, f"[{numbers[job.folder]}/{len(jobs)}] begins     {job.folder.name}")

    ended = []
    for result in play(jobs, workers=count, on_start=on_start):
        ended.append(result)
        say(console, f"[{numbers[result.job.folder]}/{len(jobs)}] {_result(result)}")
    _summary(console, jobs, ended)


def _result(ended: Ended) -> str:
    name = ended.job.folder.name
    if ended.state == "completed":
        return f"completed  {name}: {100 * ended.accuracy:.2f} % in {ended.seconds:.0f} s"
    return f"{ended.state:<10} {name}: {ended.reason}"


def _summary(console: Console, jobs: list[Job], ended: list[Ended]) -> None:
    folder = jobs[0].folder.parent
    bad = [result for result in ended if result.state != "completed"]
    begun = {result.job.folder for result in ended}
    for result in bad:
        say(console, f"{result.state}: {result.job.folder.name}: {result.reason}")
    for job in jobs:
        if job.folder not in begun:
            say(console, f"not begun: fedstride run {' '.join(job.overrides)}")
    say(
        console,
        f"{len(ended) - len(bad)} of {len(jobs)} runs completed; compare them with: fedstride table {folder}",
    )
    if len(begun) < len(jobs):
        raise KeyboardInterrupt
    if bad:
        raise typer.Exit(1)
