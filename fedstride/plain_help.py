"""A program whose help is plain text: typer marks brackets for rich also where rich does not print the help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
import typer
from typer.core import TyperCommand

Called = TypeVar("Called", bound=Callable[..., Any])


class PlainCommand(TyperCommand):
    """A command whose help has no marks for rich."""

    def get_help(self, ctx: click.Context) -> str:
        """The help as text: `[required]`, not `\\[required]`."""
        return super().get_help(ctx).replace("\\[", "[")


class PlainProgram(typer.Typer):
    """A program, or a group of commands, with such commands and without anything else of rich."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, rich_markup_mode=None)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Called], Called]:
        """As `typer.Typer.command`."""
        return super().command(name, **{"cls": PlainCommand, **settings})
