"""STUB, replaced at the merge: says that the state of a node is not known."""

from __future__ import annotations

from pathlib import Path


def report(path: Path | None) -> tuple[int, str]:
    """The exit code and the text of `fedstride node-status`."""
    return 1, f"{path or 'the node'}: its state is not known"
