"""`fedstride node-log`: shows a node's log, and verifies that nothing is missing or changed."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fedstride.errors import ConfigError, printable

from . import places
from .journal import files, read

COLUMNS = (
    "number",
    "time",
    "event",
    "run",
    "task",
    "round",
    "strategy",
    "privacy",
    "examples",
    "bytes_out",
    "seconds",
)


class Format(StrEnum):
    """Output formats of the command."""

    TEXT = "text"
    JSON = "json"


def node_log(
    log: Annotated[
        Path | None, typer.Argument(help="The log; default: node-log.jsonl in FLWR_HOME.", show_default=False)
    ] = None,
    last: Annotated[int | None, typer.Option(help="Only the last lines.", min=0, show_default=False)] = None,
    form: Annotated[Format, typer.Option("--format", help="Output format: text or json.")] = Format.TEXT,
) -> None:
    """Show what a node did with its data, and verify its log; exit code 1 if lines are missing or changed."""
    path = (log or places.home() / places.LOG).expanduser().absolute()
    if not files(path):
        raise ConfigError(
            f"{path} does not exist: name the node's log, as in fedstride node-log /srv/fl/node-log.jsonl"
        )
    try:
        found = read(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); its owner can read it") from error
    rows = found.rows if last is None else found.rows[len(found.rows) - last :] if last else []
    if form is Format.JSON:
        typer.echo(json.dumps({"log": str(path), "rows": rows, "faults": found.faults, "newest": found.newest}))
    else:
        _show(rows)
        typer.echo(f"{len(found.rows)} lines in {path}, newest {found.newest or 'none'}")
    for fault in found.faults:
        typer.echo(f"error: {printable(fault)}", err=True)
    if found.faults:
        raise typer.Exit(1)
    if form is Format.TEXT:
        typer.echo("verified: no line is missing or changed")


def _show(rows: list[dict[str, Any]]) -> None:
    table = [list(COLUMNS), *([_cell(row.get(column)) for column in COLUMNS] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells, row in zip(table, [{}, *rows], strict=True):
        text = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        more = row.get("reason") or (f"app {row['app_hash'][:12]}" if "app_hash" in row else row.get("name", ""))
        typer.echo(f"{text}  {printable(str(more))}".rstrip())


def _cell(value: Any) -> str:
    return "" if value is None else printable(str(value))
