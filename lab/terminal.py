"""Prints to the terminal: the one way on which a text gets there.

Texts of others are in nearly every line: a log, a reason, the name of a run or node. A terminal acts on some
characters: it moves, colours, changes its title, or reverses what follows. So each line is printed with a space
for every character that is not printable.
"""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import typer

from fedstride.errors import printable

if TYPE_CHECKING:
    from rich.console import Console


def line(text: str, *, err: bool = False) -> None:
    """Print one line, to standard error with `err`."""
    typer.echo(printable(text), err=err)


def block(text: str, *, err: bool = False) -> None:
    """Print the lines of a text that this program has put together, such as a table; see `line`."""
    typer.echo("\n".join(map(printable, text.rstrip("\n").split("\n"))), err=err)


def content(text: str) -> None:
    """Print the content of a file as it is; a terminal gets it as `block` prints it."""
    if sys.stdout.isatty():
        block(text)
    else:
        typer.echo(text.encode(), nl=False)


def say(console: Console, text: str) -> None:
    """Print one line above what `console` shows: no markup, no highlighting, no line wrapping."""
    console.print(printable(text), highlight=False, soft_wrap=True, markup=False)


def redraw(text: str) -> None:
    """Print this line to standard error in place of the one before; a line break ends it."""
    width = shutil.get_terminal_size().columns - 1
    typer.echo(text if text == "\n" else f"\r{printable(text)[:width]:<{width}}", nl=False, err=True)
