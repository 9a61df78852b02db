"""The program of one ServerApp: reads its order from the standard input, confines itself, and runs the app."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path
from typing import Any

import confinement
import fedstride

OPEN_FILES = 1024

NOT_CONFINED = 78
"""The exit code of a process that could not be confined, and so has not started the app."""


def main() -> None:
    """Run the ServerApp of the order, and end this process."""
    order = json.loads(sys.stdin.buffer.read())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    confinement.close_all_but({0, 1, 2})
    scratch = os.open(order["scratch"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(scratch, fcntl.LOCK_SH)  # until this process ends: see `serverapp_access.ServerFolders.tidy`
    if order["confine"]:
        try:
            confinement.confine(domain(order))
        except confinement.ConfinementError as error:
            print(f"the ServerApp is not started: {error}", flush=True)
            sys.exit(NOT_CONFINED)
    sys.argv = ["flwr-serverapp"]
    from fedstride.flower.for_superlinks import serverapp_process  # imports numpy, which starts threads

    forget()
    ca = order["ca"]
    serverapp_process.run(order["address"], order["token"], None if ca is None else ca.encode(), order["parent"])


def forget() -> None:
    """Remove this project from the imported packages: an app brings its own version of it."""
    project = {name.partition(".")[0] for name in (fedstride.__name__, confinement.__name__, str(__package__))}
    for name in [name for name in sys.modules if name.partition(".")[0] in project]:
        del sys.modules[name]


def domain(order: dict[str, Any]) -> confinement.Domain:
    """What the process may use: the order, Python and its packages, those of this project that start an app."""
    packages = {
        Path(str(module.__file__)).parent for module in (fedstride, confinement, sys.modules[str(__package__)])
    }
    return confinement.Domain(
        read=(*confinement.basics(), *sorted(packages), *map(Path, order["read"])),
        write=tuple(map(Path, order["write"])),
        listed=tuple(sorted({package.parent for package in packages})),
        ports=tuple(order["ports"]),
        devices=tuple(map(Path, order["devices"])),
        open_files=OPEN_FILES,
    )


if __name__ == "__main__":
    main()
