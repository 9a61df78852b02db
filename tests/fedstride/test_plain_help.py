"""The help of every command is plain text, without marks for rich."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
import typer
from typer.testing import CliRunner

from fedstride.plain_help import PlainProgram
from lab.cli.main import app


def commands(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, *path, name)


OWN_PARSER = {"node", "node-check", "superlink"}
"""Their help is that of another parser."""

ALL = [path for path in commands(typer.main.get_command(app)) if not OWN_PARSER & set(path)]


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_the_help_of_each_command_has_no_backslash(path: tuple[str, ...]) -> None:
    found = CliRunner().invoke(app, [*path, "--help"])
    assert found.exit_code == 0 and "\\[" not in found.output


def test_defaults_ranges_and_required_values_are_in_brackets() -> None:
    program = PlainProgram()

    @program.command()
    def act(place: str, count: int = typer.Option(3, min=1), name: str = typer.Option("[x]")) -> None:
        """Act."""

    text = CliRunner().invoke(program, ["--help"]).output
    for part in ("[required]", "[default: 3; x>=1]", "[default: [x]]"):
        assert part in text
    assert "\\" not in text
