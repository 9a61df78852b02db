"""The files of this project, as its pages name them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOP = [ROOT / ".ci", *ROOT.glob("[a-z]*")]
FILES = {path.relative_to(ROOT).as_posix() for top in TOP for path in [top, *top.rglob("*.*")]}


def is_there(name: str) -> bool:
    """Whether a file has this path, or a path that ends with it."""
    return any(f"/{path}".endswith(f"/{name}") for path in FILES)
