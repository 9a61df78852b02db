"""Environments for measurements of other packages: made once with uv, in a cache folder. Knows no package."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from fedstride.errors import RunError


def folder() -> Path:
    """Where the environments are."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedstride-benchmarks"


def python(name: str, version: str, packages: Sequence[str]) -> Path:
    """The interpreter of an environment with these packages, made if there is none or if it has others.

    Python itself is not downloaded. Raises RunError if the environment cannot be made.
    """
    place = folder() / name
    interpreter, made = place / "bin/python", place / "made"
    state = hashlib.sha256("\n".join([version, *packages]).encode()).hexdigest()
    if not (made.exists() and made.read_text() == state and interpreter.exists()):
        _uv("venv", "--clear", "--no-python-downloads", "--python", version, str(place))
        _uv("pip", "install", "--python", str(interpreter), *packages)
        made.write_text(state)
    return interpreter


def _uv(*arguments: str) -> None:
    """Call uv. Raises RunError with the first line of its error."""
    if shutil.which("uv") is None:
        raise RunError("the command uv was not found; install it with `pip install uv`")
    folder().mkdir(parents=True, exist_ok=True)
    done = subprocess.run(  # not in this project, whose pinned versions would apply
        ["uv", "-q", *arguments], cwd=folder(), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        raise RunError(f"uv {arguments[0]} failed: {' '.join(done.stderr.split())[:300]}")
