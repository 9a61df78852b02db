"""Entry point of the command `fedstride`, in a clone and in the wheel: `fedstride ...`, `python -m fedstride ...`.

It checks that the packages of the extra `desk` are installed, then calls `lab/cli`.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

DESK = ("flwr_datasets", "hydra", "matplotlib", "mlxtend", "pandas", "rich", "safetensors", "torch", "typer")
"""Modules that come with `fedstride[desk]`."""


def main() -> None:
    """Run the command. Exit code 2 if packages of the extra `desk` are missing."""
    missing = [name for name in DESK if find_spec(name) is None]
    if missing:
        print(f"error: the command needs {', '.join(missing)}: pip install 'fedstride[desk]'", file=sys.stderr)
        sys.exit(2)
    from lab.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
