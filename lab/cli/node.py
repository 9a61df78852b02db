"""`fedstride node`: a SuperNode whose processes for messages start warm."""

from __future__ import annotations

from typing import Annotated

import typer

PASSED_ON = {"ignore_unknown_options": True, "help_option_names": []}
"""All options, also --help, are read by Flower's own parser."""


def node(arguments: Annotated[list[str] | None, typer.Argument(help="As for flower-supernode.")] = None) -> None:
    """Start a SuperNode whose processes for messages start warm; same arguments as flower-supernode.

    It answers a message in a fraction of a second, where flower-supernode takes several seconds.
    """
    from ..node.supernode import run

    run(arguments or [])
