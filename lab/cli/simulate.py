"""`fedstride simulate`: trains one federation in Flower's simulation."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.console import Console

from fedstride.errors import require
from fedstride.processes import unix_signals

from ..terminal import line, say
from .run import OVERRIDES, title


def simulate(
    overrides: Annotated[list[str] | None, OVERRIDES] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show Flower's complete log.")] = False,
) -> None:
    """Train one federation in Flower's simulation, with a Ray of its own; a failed run has exit code 1.

    OVERRIDES are Hydra overrides, as in strategy=fedlws strategy.beta=0.05 client=fednlr rounds=5 seed=2.
    """
    from fedstride.figures.metrics import shown
    from server_app import preparation
    from server_app.config.attacks import refuse_attack
    from server_app.config.compose import compose
    from server_app.config.keys import label
    from server_app.config.overrides import parse
    from server_app.config.variables import with_variables

    from ..flower.simulation import run_simulation

    unix_signals.outlast_the_terminal()
    given = with_variables(parse(overrides or []), os.environ)  # the server in the simulation replaces none
    config = compose(given)
    require(
        config.partition.name != "own",
        "partition",
        "own",
        "one that divides the task's data: nodes of a simulation have no data of their own; use fedstride run "
        "with partition.files, or fedstride submit",
    )
    refuse_attack(config)
    console = Console()
    say(console, f"{title(config)}, in Flower's simulation")
    prepared = preparation.prepare(config)  # refuses an invalid run before any process starts
    for note in prepared.notes:
        say(console, f"note: {note}")
    done = run_simulation(prepared.config, given, show=lambda line: say(console, line), verbose=verbose)
    if not done.completed:
        line(f"error: the run failed: {done.reason}", err=True)
        raise typer.Exit(1)
    say(console, f"{label(config):<28} final {shown(prepared.config.headline)} {done.final:>8}")
    say(console, f"{'folder':<28} {done.folder}")
