"""`fedstride compare`: a model of all sites together, of each site alone, and of all rows at one place."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedstride.processes import unix_signals

from ..terminal import block, say
from .run import OVERRIDES

if TYPE_CHECKING:
    from ..comparison.compare import PlannedComparison
    from ..comparison.comparison_runs import ComparedRun
    from ..engine.sweep import EndedRun


def compare(
    overrides: Annotated[list[str] | None, OVERRIDES] = None,
    seeds: Annotated[str, typer.Option(help="The seeds of training; the held-out rows stay the same.")] = "1,2,3",
    folds: Annotated[
        int | None,
        typer.Option(
            help="Cross-validation: each row is held out once in so many folds; default: the run's own hold-out.",
            min=2,
            max=100,
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at a time; by default one per core.", min=1, show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The new folder of it all; by default below the folder of runs.", show_default=False),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the comparison in --out: complete runs are kept, those begun resumed.",
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")] = False,
) -> None:
    """Compare what sites get together with what each would have alone, and with all rows at one place.

    OVERRIDES are those of `fedstride run`; a list of values, as in strategy=fedavg,fednnnn, compares several
    federations. Each model is measured on the same held-out rows of each site, with intervals. All rows must be on
    this machine.
    """
    from ..comparison import page, whole_comparison
    from ..reproduction.cells import seeds_in
    from ..reproduction.page import shown
    from ..results.output_files import refuse_standard_output

    unix_signals.outlast_the_terminal()
    refuse_standard_output(out, "--out", "a folder")
    console, progress = Console(), Console(quiet=quiet)
    numbers, place = itertools.count(1), list[Path]()
    wanted = whole_comparison.asked(overrides or [], seeds_in(seeds), folds or 0)

    def begins(planned: PlannedComparison, folder: Path, complete: int) -> None:
        place.append(folder)
        for _ in range(complete):
            next(numbers)
        rows = ", ".join(f"{name} {held} of {count}" for name, count, held in planned.counts())
        say(progress, f"rows that are measured: {rows}")
        say(progress, f"{len(planned.runs)} runs in {shown(folder)}")
        if complete:
            say(progress, f"{complete} of them {'is' if complete == 1 else 'are'} complete already")

    def on_end(planned: PlannedComparison, run: ComparedRun, ended: EndedRun) -> None:
        state = f"{ended.state} in {ended.seconds:.0f} s"
        say(progress, f"[{next(numbers)}/{len(planned.runs)}] {run.folder.name}: {state}")

    try:
        with unix_signals.handled(unix_signals.RaiseOnce()):  # whenever it is ended, no copy of a row stays
            made = whole_comparison.make(
                wanted, out, jobs, named="--out", resume=resume, begins=begins, on_end=on_end
            )
    except unix_signals.STOPPED:
        where = f"; go on with the same command, --resume and --out {shlex.quote(str(place[0]))}" if place else ""
        say(console, f"stopped{where}")
        raise
    block(page.text_of(made.measured, made.main, console.width if console.is_terminal else None))
    for note in made.notes:
        say(console, note)
    say(console, f"all figures, the picture, and how they were found: {shown(made.page)}")
