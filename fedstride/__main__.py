"""Entry point of the command `fedstride`, in a clone and in the wheel: `fedstride ...`, `python -m fedstride ...`.

It checks that the packages of the extra `desk` are installed, then calls `lab/cli`. The commands of a site need
only those of the extra `node`: they are in `node/commands.py`, which does not import `lab`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NoReturn

OF_A_NODE = ("node", "node-log", "node-status", "node-check", "node-approve", "node-forget")
"""The commands of a site: those of `node/commands.py`, which a test compares."""

NODE = ("cryptography", "httpx", "safetensors", "torch", "typer", "yaml")
"""Modules that come with `fedstride[node]`, and with all extras that have a command."""

DESK = ("flwr_datasets", "hydra", "matplotlib", "mlxtend", "pandas", "rich")
"""Modules that come with `fedstride[desk]` in addition."""


def main() -> None:
    """Run the command. Exit code 2 if packages of its extra are missing."""
    if sys.argv[1:] and sys.argv[1] in OF_A_NODE:
        missing = _missing(NODE)
        if missing:
            _refuse(f"{missing}: pip install 'fedstride[node]', or 'fedstride[node-http]' for the newest Flower")
        from node.commands import main as command
    else:
        missing = _missing((*DESK, *NODE))
        if missing:
            here = "" if _missing(NODE) else f"; without it there are {', '.join(OF_A_NODE)}"
            _refuse(f"{missing}: pip install 'fedstride[desk]'{here}")
        from lab.cli.main import main as command
    command()


def _missing(modules: Sequence[str]) -> str:
    return ", ".join(sorted(name for name in modules if find_spec(name) is None))


def _refuse(reason: str) -> NoReturn:
    print(f"error: the command needs {reason}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
