"""The bundle of an app (Flower calls it a FAB)."""

from __future__ import annotations

from pathlib import Path


def bundle(folder: Path) -> bytes:
    """The bundle that `flwr run` makes of an app's folder (1.39 to 1.42). Raises ValueError if it cannot."""
    from flwr.cli.build import build_fab_from_disk

    return bytes(build_fab_from_disk(folder))
