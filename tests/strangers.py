"""Runs Python as a user without a name and without a home folder, as in a container with `--user 4321`.

The user's number is another one in a user namespace only, so it can read all that the tests can, and has
only the rights that the modes of files give to their owner.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

USER = 4321
UNNAMED = ("unshare", f"--map-user={USER}", f"--map-group={USER}")


@functools.cache
def _possible() -> bool:
    try:
        return subprocess.run([*UNNAMED, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def run(
    *arguments: str, cwd: Path, check: bool = False, **variables: str | None
) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments; it has no HOME. `variables`: of its environment, None for one to remove."""
    if not _possible():
        pytest.skip("this machine has no user namespaces, or no unshare that maps users")
    changed = {"HOME": None, "USER": None, "LOGNAME": None, "XDG_CACHE_HOME": None} | variables
    environment = {name: value for name, value in (os.environ | changed).items() if value is not None}
    return subprocess.run(
        [*UNNAMED, sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=check,
        timeout=100,
    )
