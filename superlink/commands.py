"""The command of the server's operator: `fedstride superlink`."""

from __future__ import annotations

from typing import Annotated

import typer

_PASSED_ON = {"ignore_unknown_options": True, "help_option_names": []}
"""All options, also --help, are read by the SuperLink's own parser."""


def superlink(
    arguments: Annotated[list[str] | None, typer.Argument(help="--help lists them.", show_default=False)] = None,
) -> None:
    """Start a SuperLink: Flower's, behind a guard that asks for keys and tokens and bounds every request.

    Commands of this project find its token on this machine; see fedstride superlink --help.
    """
    from .server import run

    run(arguments or [])


def add_to(app: typer.Typer) -> None:
    """Add the command to a program."""
    app.command("superlink", context_settings=_PASSED_ON)(superlink)
