"""`fedstride list` and `fedstride show`: what there is to choose, and what a choice composes to."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from .run import OVERRIDES

PLURALS = {
    "strategies": "strategy",
    "clients": "client",
    "objectives": "objective",
    "tasks": "task",
    "models": "model",
    "partitions": "partition",
    "privacies": "privacy",
    "experiments": "experiment",
}


class Format(StrEnum):
    """How a listing is written."""

    TEXT = "text"
    JSON = "json"


FORMAT = typer.Option("--format", help="text or json.")


def list_choices(
    what: Annotated[
        str | None, typer.Argument(help=f"One of {', '.join(PLURALS)}; all if none.", show_default=False)
    ] = None,
    form: Annotated[Format, FORMAT] = Format.TEXT,
) -> None:
    """List what can be chosen, a line each, with the paper."""
    from fedstride.errors import unknown
    from server_app.config.compose import choices, describe

    if what is not None and what not in PLURALS and what not in PLURALS.values():
        raise unknown("group", what, PLURALS)
    groups = [group for plural, group in PLURALS.items() if what in (None, plural, group)]
    found = {group: {name: describe(group, name) for name in choices(group)} for group in groups}
    if form is Format.JSON:
        typer.echo(json.dumps(found, indent=2))
        return
    for group, names in found.items():
        typer.echo(f"{group}=")
        for name, text in names.items():
            typer.echo(f"  {name:<14} {text}")


def show(
    name: Annotated[str, typer.Argument(help="An experiment, strategy, client rule, ... by name.")],
    overrides: Annotated[list[str] | None, OVERRIDES] = None,
    form: Annotated[Format, FORMAT] = Format.TEXT,
) -> None:
    """Show the whole configuration that a choice composes to."""
    from fedstride.errors import unknown
    from server_app.config.compose import choices, compose, from_yaml, to_yaml
    from server_app.config.overrides import GROUPS

    base = name.partition("+")[0]
    group = next((group for group in GROUPS if base in choices(group)), None)
    if group is None:
        raise unknown("name", name, [known for group in GROUPS for known in choices(group)])
    text = to_yaml(compose([f"{group}={name}", *(overrides or [])]))
    if form is Format.JSON:
        from dataclasses import asdict

        text = json.dumps(asdict(from_yaml(text)), indent=2)
    typer.echo(text.rstrip("\n"))
