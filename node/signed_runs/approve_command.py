"""`fedstride node-approve`: a person at the node says which signed run it may answer."""

from __future__ import annotations

from typing import Annotated

import typer


def node_approve(
    number: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Of the approval, as the list says.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Show what a signed run asks of this machine's node, and let the node answer it; without ID, list what waits.

    For a node with approve = "ask" in its policy. An approval ends when the policy or the data change.
    """
    from fedstride.files import user_folders

    from .. import own_files
    from .approvals import approve, find, in_words, waiting

    folder = user_folders.flower() / own_files.APPROVALS
    if number is None:
        runs = waiting(folder)
        for run in runs:
            typer.echo(f"{run.id}  {run.signer!r}, {run.terms.rounds} rounds, app {run.terms.app[:12]}")
        if not runs:
            typer.echo("no run waits for an approval")
        return
    asking = find(folder, number)
    for line in in_words(folder, asking):
        typer.echo(line)
    if not yes and not typer.confirm(f"May the node answer this run of {asking.signer!r} ({asking.id})?"):
        typer.echo("not approved")
        raise typer.Exit(1)
    approve(folder, asking)
    typer.echo(f"approved {asking.id}")
