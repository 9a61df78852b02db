"""`fedstride compare`: a model of all sites together, of each site alone, and of all rows at one place."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedstride import signals

from ..terminal import block, say
from .run import OVERRIDES

if TYPE_CHECKING:
    from fedstride.tasks.comparison import At
    from server_app.config.schema import Config

    from ..comparison.compare import Planned
    from ..comparison.runs import Trained
    from ..engine.sweep import Ended


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
) -> None:
    """Compare what sites get together with what each would have alone, and with all rows at one place.

    OVERRIDES are those of `fedstride run`; a list of values, as in strategy=fedavg,fednnnn, compares several
    federations. Each model is measured on the same held-out rows of each site, with intervals. All rows must be on
    this machine.
    """
    from fedstride.errors import require
    from server_app.config.schema import Config
    from server_app.folder import runs_dir

    from ..comparison import compare as comparison
    from ..comparison import page
    from ..reproduction.cells import seeds_in
    from ..reproduction.page import shown

    signals.outlast_the_terminal()
    console, given, numbers = Console(), overrides or [], seeds_in(seeds)
    configs = _federations(given)
    folder = (out or runs_dir(Config()) / f"compare-{time.strftime('%Y%m%d-%H%M%S')}").expanduser().absolute()
    new = not folder.exists()
    require(
        new or _is_empty(folder), "--out", str(folder), "a folder that is new or empty; nothing is overwritten"
    )
    try:
        with signals.handled(signals.RaiseOnce()):  # whenever it is ended, no copy of a row stays
            planned = comparison.plan(configs, numbers, folder, folds or 0)
            found = _found(console, planned, folder, jobs)
    except signals.STOPPED:
        say(console, f"stopped; the runs that are complete are in {shown(folder)}")
        raise
    finally:
        shutil.rmtree(folder / comparison.ROWS, ignore_errors=True)
        if new and _is_empty(folder):
            folder.rmdir()
    options = ["--seeds", seeds, *(["--folds", str(folds)] if folds else [])]
    command = shlex.join(["fedstride", "compare", *given, *options])
    what = _what(next(iter(configs.values())), folds)
    path = page.write(folder, found, command=command, seeds=numbers, what=what)
    main = next(iter(found[0].enough))
    block(page.text_of(found, main, console.width if console.is_terminal else None))
    for note in page.notes(found, main, numbers):
        say(console, note)
    say(console, f"all figures, the picture, and how they were found: {shown(path)}")


def _found(console: Console, planned: Planned, folder: Path, jobs: int | None) -> list[At]:
    """Train and measure, and say how far it is."""
    from fedstride.cores import cores

    from ..comparison import compare as comparison
    from ..reproduction.page import shown

    runs = len(planned.runs)
    numbers = itertools.count(1)
    rows = ", ".join(f"{name} {held} of {count}" for name, count, held in planned.counts())
    say(console, f"rows that are measured: {rows}")
    say(console, f"{runs} runs in {shown(folder)}")

    def on_end(run: Trained, ended: Ended) -> None:
        state = f"{ended.state} in {ended.seconds:.0f} s"
        say(console, f"[{next(numbers)}/{runs}] {run.folder.name}: {state}")

    comparison.train(planned, min(jobs or cores(), runs), on_end)
    return comparison.measure(planned)


def _federations(overrides: list[str]) -> dict[str, Config]:
    """The configurations of the federations, by what they differ in. Raises ConfigError."""
    from fedstride.errors import ConfigError
    from server_app.build import build_strategy
    from server_app.config.compose import compose
    from server_app.config.keys import label
    from server_app.config.variables import with_variables

    from ..engine.plan import expand

    rows = expand(overrides)
    differ = [column for column in range(len(overrides)) if len({row[column].text for row in rows}) > 1]
    found: dict[str, Config] = {}
    for row in rows:
        config = compose(with_variables([value.override for value in row], os.environ))
        build_strategy(config)
        values = [row[column].text for column in differ]
        named = values[0].partition("=")[2] if len(values) == 1 else " ".join(values) or label(config)
        if named in found:
            raise ConfigError(f"the comparison has {named} twice: remove one")
        found[named] = config
    return found


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _what(config: Config, folds: int | None) -> list[str]:
    """What the runs have in common, in words."""
    steps, passes = config.client.local_steps, config.client.local_epochs
    local = f"{steps} steps" if steps else f"{passes} {'pass' if passes == 1 else 'passes'} over the rows"
    cross = [
        f"each row is measured once, by the models of the fold of {folds} that holds it out; for figures of "
        "ranks, scores of different folds are ranked together"
    ]
    return [
        *(cross if folds else []),
        f"{config.rounds} rounds, {local} a round, batches of {config.client.batch_size}, "
        f"rate {config.client.lr:g}",
        "alone takes as many steps as the site does in the federation; pooled as many as all sites together",
        "alone and pooled are trained by stochastic gradient descent, with the rate of the federation",
    ]
