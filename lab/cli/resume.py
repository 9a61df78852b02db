"""`fedstride resume`: resumes a run that was interrupted or killed, or that needs more rounds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedstride.processes import unix_signals

from ..terminal import say
from .run import title, train


def resume(
    folder: Annotated[Path, typer.Argument(help="The run folder.", show_default=False)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="Settings to change, as in rounds=40 target=0.95 patience=5 checkpoint_every=5.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")] = False,
) -> None:
    """Resume a run from its newest checkpoint; the result is bit-identical to an uninterrupted run.

    OVERRIDES are the settings to change, as in rounds=40 target=0.95 patience=5. docs/settings.md says
    which settings may change.
    """
    from server_app.config.compose import compose
    from server_app.config.overrides import parse, written
    from server_app.config.variables import with_variables

    from ..engine import fedavg_comparison

    unix_signals.outlast_the_terminal()
    config = compose([*with_variables(parse(overrides or []), os.environ), written("resume", str(folder))])
    console = Console()
    if not quiet:
        say(console, title(config))
    train(config, console, compare=False, quiet=quiet)
    if behind := fedavg_comparison.left_behind(folder, config.rounds):
        say(console, f"note: {behind}")
