"""`fedstride node-log`: shows a node's log, verifies it, and says what it proves."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedstride.errors import ConfigError, printable
from fedstride.files import user_folders
from fedstride.files.chained_lines import OWN

from .. import own_files
from .log_file import LogHead, files, parsed
from .verification import in_words, read

if TYPE_CHECKING:
    from ..keys import PublicKey

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
    key: Annotated[
        list[Path] | None,
        typer.Option(help="The node's public key (.pub), or each it had: verify signatures.", show_default=False),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(help="A head that was kept elsewhere, NUMBER:SHA256: it must be in it.", show_default=False),
    ] = None,
    last: Annotated[int | None, typer.Option(help="Only the last lines.", min=0, show_default=False)] = None,
    form: Annotated[Format, typer.Option("--format", help="Output format: text or json.")] = Format.TEXT,
) -> None:
    """Show what a node did with its data, and verify its log; exit code 1 if lines are missing or changed.

    It says what the log proves, and what not, and prints the newest head: keep it on another machine.
    """
    path = Path(os.path.realpath((log or user_folders.flower() / own_files.LOG).expanduser()))
    kept = None if head is None else _kept(head)
    if not files(path):
        raise ConfigError(
            f"{path} does not exist: name the node's log, as in fedstride node-log /srv/fl/node-log.jsonl"
        )
    try:
        checked = read(path, _keys(key or []), kept)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"{path} cannot be read ({reason}); its owner can read it") from error
    lines = checked.lines if last is None else checked.lines[len(checked.lines) - last :] if last else []
    newest = "none" if checked.head is None else str(checked.head)
    if form is Format.JSON:
        shown = {"log": str(path), "rows": [{**line.row, OWN: line.digest} for line in lines], "head": newest}
        typer.echo(json.dumps({**shown, "faults": checked.faults, "remarks": checked.remarks}))
    else:
        _show([line.row for line in lines])
        typer.echo(f"{len(checked.lines)} lines in {path}; the newest, to keep elsewhere for --head:\n{newest}")
    for fault in checked.faults:
        typer.echo(f"error: {printable(fault)}", err=True)
    if checked.faults:
        raise typer.Exit(1)
    if form is Format.TEXT:
        for text in [*checked.remarks, *in_words(checked)]:
            typer.echo(printable(text))


def _kept(text: str) -> LogHead:
    head = parsed(text.strip())
    if head is None:
        raise ConfigError(
            f"--head {text[:80]!r} is not allowed: it must be NUMBER:SHA256, as fedstride node-log prints it"
        )
    return head


def _keys(paths: list[Path]) -> list[PublicKey]:
    from ..keys import public_key

    return [public_key(path) for path in paths]


def _show(rows: list[dict[str, Any]]) -> None:
    table = [list(COLUMNS), *([_cell(row.get(column)) for column in COLUMNS] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells, row in zip(table, [{}, *rows], strict=True):
        text = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        more = row.get("reason") or (f"app {row['app_hash'][:12]}" if "app_hash" in row else row.get("name", ""))
        more = f"{more}, described its data" if row.get("description") and not row.get("reason") else more
        typer.echo(f"{text}  {printable(str(more))}".rstrip())


def _cell(value: Any) -> str:
    return "" if value is None else printable(str(value))
