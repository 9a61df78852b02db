"""STUB, replaced at the merge by the node's own loop: calls today's `lab/node/supernode.py`, except for --help."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

HELP = """Usage: fedstride node [OPTIONS]

  --superlink HOST:PORT
  --root-certificates FILE, or --insecure
  --auth-supernode-private-key FILE
  --node-config 'KEY=VALUE ...'"""


def run(arguments: Sequence[str]) -> None:
    """Run a node with these arguments until it ends with SystemExit."""
    if "--help" in arguments:
        print(HELP)
        raise SystemExit(0)
    above = __name__.split(".")[:-2]  # in the wheel: fedstride
    import_module(".".join([*above, "lab", "node", "supernode"])).run(arguments)
