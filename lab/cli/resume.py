"""`fedstride resume`: go on with a run that was interrupted, killed or is to be longer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .run import say, title, train


def resume(
    folder: Annotated[Path, typer.Argument(help="The run's folder.", show_default=False)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="What may change: rounds=40, target=0.95, patience=5, checkpoint_every=5.", show_default=False
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")] = False,
) -> None:
    """Go on with a run from its newest checkpoint, to the bits of an unbroken one.

    OVERRIDES: what may change, as in rounds=40, target=0.95, patience=5.
    """
    from server_app.config.compose import compose
    from server_app.config.overrides import quote

    config = compose([*(overrides or []), f"resume={quote(folder)}"])
    console = Console()
    if not quiet:
        say(console, title(config))
    train(config, console, compare=False, quiet=quiet)
