"""`fedstride watch`: follows one run in the terminal, on this machine or deployed."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

from rich.console import Console

from .target import ADDRESS, CONNECTION_OF_A_RUN, INSECURE, ROOT_CERTIFICATES, RUN, folder_of, superlink_of


def watch(
    run: Annotated[str, RUN],
    connection: Annotated[str | None, CONNECTION_OF_A_RUN] = None,
    address: Annotated[str | None, ADDRESS] = None,
    root_certificates: Annotated[Path | None, ROOT_CERTIFICATES] = None,
    insecure: Annotated[bool, INSECURE] = False,
) -> None:
    """Follow a run: its rounds, the curve of its main figure, and how each client stands in the round.

    Exit code 0 if the run completes, otherwise 1. Ctrl-C ends the watching, not the run.
    """
    from fedstride.errors import RunError

    from ..flower.superlink_requests import control
    from ..watch import deployed, local
    from ..watch.view import show

    console = Console()
    folder = folder_of(run)
    with contextlib.ExitStack() as stack:
        if folder is not None:
            last = show(console, local.looks(folder))
        else:
            target = superlink_of("watch", run, connection, address, root_certificates, insecure)
            last = show(console, deployed.follow(stack.enter_context(control(target)), run))
    if last.state != "completed":
        raise RunError(f"{last.name}: {last.state}" + (f" ({last.reason})" if last.reason else ""))
