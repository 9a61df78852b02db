"""The commands of a site: `fedstride node` and `fedstride node-*`. They need the extra `node` only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fedstride.plain_help import PlainProgram
from fedstride.processes import exits

from .log.command import node_log
from .signed_runs.approve_command import node_approve

# Set before Flower is imported: by default, Flower reports usage over the network.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

_PASSED_ON = {"ignore_unknown_options": True, "help_option_names": []}
"""All options of `fedstride node`, also --help, are read by the node's own parser."""


def node(
    arguments: Annotated[list[str] | None, typer.Argument(help="--help lists them.", show_default=False)] = None,
) -> None:
    """Start a node: it trains on this machine's data for a SuperLink, and keeps a log of what it does.

    It answers a message in a fraction of a second, where flower-supernode takes several seconds.
    """
    from .node_command import run

    run(arguments or [])


def node_status(
    path: Annotated[Path | None, typer.Option(help="The node's file of its state.", show_default=False)] = None,
) -> None:
    """Say what this machine's node does; exit code 0 if its SuperLink answers it, 1 if not, 2 if no node runs."""
    from .health import report

    code, text = report(path)
    typer.echo(text)
    raise typer.Exit(code)


def node_check(
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Those of fedstride node.", show_default=False)
    ] = None,
) -> None:
    """Say what a node with these options allows, and read its data as it would; it does not connect.

    What of the data is not as the data file says is printed with line and column. Exit code 0 if a node would
    start, 2 if not.
    """
    from .check_command import run

    run(arguments or [], typer.echo)


def node_forget(
    word: Annotated[str, typer.Argument(help="The word of the run, as fedstride node-log has it.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Those of fedstride node.", show_default=False)
    ] = None,
) -> None:
    """End a study at a node with these options: remove what its clients keep and what its apps cached.

    Replies that were kept for repeated messages of a signed run go too, and its approvals; the rows of the site
    (node-rows) stay, and so do the lines of the ledger. The node must be stopped before. Its log says what was
    removed.
    """
    from .forget_command import forget
    from .settings import read

    for name in forget(word, read(arguments or [])):
        typer.echo(f"removed {name}")


def add_to(app: typer.Typer) -> None:
    """Add the commands to a program, in the order in which its help lists them."""
    app.command("node", context_settings=_PASSED_ON)(node)
    app.command("node-log")(node_log)
    app.command("node-status")(node_status)
    app.command("node-check", context_settings=_PASSED_ON)(node_check)
    app.command("node-approve")(node_approve)
    app.command("node-forget", context_settings={"ignore_unknown_options": True})(node_forget)


def main() -> None:
    """Entry point of these commands alone. The exit codes are those of `exits.run`."""
    app = PlainProgram(name="fedstride", add_completion=False, pretty_exceptions_enable=False)
    add_to(app)
    exits.run(app)
