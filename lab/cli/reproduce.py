"""`fedstride reproduce`: repeats a paper's table or figure within a budget of time."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedstride.processes import unix_signals

from ..terminal import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..reproduction.planning import BudgetPlan
    from ..reproduction.run_times import Pace
    from ..reproduction.running import CellRun


def reproduce(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PAPER/TABLE",
            help="A table, a figure or an experiment, as fednnnn/table2.",
            show_default=False,
        ),
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="For all runs, as in rounds=30; each is a difference.")
    ] = None,
    columns: Annotated[
        str, typer.Option(help="Columns, or patterns, in their order: mnist_noniid_b,cifar10_*")
    ] = "",
    methods: Annotated[str, typer.Option(help="Methods, as the paper's table names them: fedavg,fednnnn")] = "",
    seeds: Annotated[str, typer.Option(help="The seeds.")] = "1,2,3",
    budget: Annotated[str, typer.Option(help="Time for all of it, as in 8h or 90min; all by default.")] = "",
    out: Annotated[
        Path | None, typer.Option(help="The folder of it all; by default below the folder of runs.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, without running it.")] = False,
) -> None:
    """Repeat a paper's table: from its presets, one run after the other, in the order that decides most.

    The first round of each run is measured; then it is said what each takes, and which are done within the budget.
    Ended in the middle, the same command goes on where it was, with the same bits.
    """
    from server_app.config.compose import compose
    from server_app.records.run_folder import runs_dir

    from ..reproduction.cells import cells, seeds_in
    from ..reproduction.page import shown
    from ..reproduction.run_times import seconds_in
    from ..reproduction.running import places
    from ..results.output_files import refuse_standard_output

    unix_signals.outlast_the_terminal()
    refuse_standard_output(out, "--out", "a folder")
    console, more = Console(), overrides or []
    seconds = seconds_in(budget) if budget else None
    table_cells, absent = cells(target, _words(columns), _words(methods), seeds_in(seeds))
    folder = (out or runs_dir(compose(more)) / f"reproduce-{target.replace('/', '-')}").expanduser().absolute()
    here = places(table_cells, folder, more)
    say(console, f"{target}: {len(here)} runs, one after the other, in {shown(folder)}")
    for note in absent:
        say(console, f"note: {note}")
    if dry_run:
        for place in here:
            say(console, f"  fedstride run {shlex.join([*place.cell.overrides, *more])}")
        return
    options = {"--columns": columns, "--methods": methods, "--seeds": seeds, "--budget": budget}
    named = [part for option, value in options.items() if value for part in (option, value)]
    command = shlex.join(["fedstride", "reproduce", target, *more, *named])
    try:
        _reproduce(console, target, command, folder, here, absent, seconds)
    except unix_signals.STOPPED:
        say(console, "stopped; the same command goes on here")
        raise


def _words(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _reproduce(
    console: Console,
    target: str,
    command: str,
    folder: Path,
    here: Sequence[CellRun],
    absent: Sequence[str],
    budget: float | None,
) -> None:
    from ..reproduction.page import shown, write_page
    from ..reproduction.running import completed

    planned, failures = _planned(console, here, budget)
    absent = [*absent, *failures]
    chosen, left = [run.what for run in planned.chosen], [run.what for run in planned.left]
    page, failed = write_page(folder, target, command, chosen, left, absent), False
    for number, place in enumerate(chosen, start=1):
        for ended in completed(place):
            failed |= ended.state != "completed"
            how = f"{ended.state}: {ended.reason}" if ended.reason else f"{ended.figure} in {ended.seconds:.0f} s"
            say(console, f"[{number}/{len(chosen)}] {place.cell}: {how}")
            write_page(folder, target, command, chosen, left, absent)
    say(console, f"the table, the picture, and what differs from the paper: {shown(page)}")
    if failed:
        raise typer.Exit(1)


def _planned(console: Console, here: Sequence[CellRun], budget: float | None) -> tuple[BudgetPlan, list[str]]:
    """Measure, and say what the runs take and which of them are done; and what cannot be run here."""
    from ..reproduction.planning import measure, plan
    from ..reproduction.run_times import written

    began = time.monotonic()
    failures: list[str] = []

    def on_measured(place: CellRun, pace: Pace | str) -> None:
        name = f"{place.cell.column}, {place.cell.line.label}"
        if isinstance(pace, str):
            failures.append(f"{name}: {pace}")
            say(console, f"  {name}: left out: {pace}")
        else:
            whole = written(pace.of(place.config))
            say(console, f"  {name}: a round {pace.round:.1f} s, {place.config.rounds} rounds {whole}")

    say(console, "measured on this machine, on one round of each:")
    measured = measure(here, on_measured)
    planned = plan(here, measured, None if budget is None else budget - (time.monotonic() - began))
    limit = "" if budget is None else f" of {written(budget)}"
    say(console, f"{len(planned.chosen)} runs in this order, {written(planned.seconds)}{limit}:")
    for number, run in enumerate(planned.chosen, start=1):
        say(console, f"  {number}. {run.what.cell}: {written(run.seconds) if run.seconds else 'complete'}")
    for run in planned.left:
        say(console, f"  not: {run.what.cell}, which would take {written(run.seconds)}")
    return planned, failures
