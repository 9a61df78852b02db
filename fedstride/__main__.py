"""The command `fedstride`, wherever the rooms lie: `fedstride ...` and `python -m fedstride ...`.

Knows what the command needs beside the strategies; does not know what it does (`lab/cli`).
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

DESK = ("flwr_datasets", "hydra", "matplotlib", "mlxtend", "pandas", "rich", "safetensors", "torch", "typer")
"""Modules that come with `fedstride[desk]`."""


def main() -> None:
    """Entry point; exit code 2 where only the strategies are installed."""
    missing = [name for name in DESK if find_spec(name) is None]
    if missing:
        print(f"error: the command needs {', '.join(missing)}: pip install 'fedstride[desk]'", file=sys.stderr)
        sys.exit(2)
    from lab.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
