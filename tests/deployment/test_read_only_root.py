"""A machine whose root file system is read-only, as of a container with `--read-only`: what must be writable."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from desk import SMALL

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow

MOUNTS = 'mount -o remount,bind,ro /; for each in $WRITABLE; do mount -t tmpfs none "$each"; done; cd /; exec "$@"'
ONLY_READ = ("unshare", "--map-root-user", "--mount", "sh", "-ec", MOUNTS, "sh")


@cache
def mounts_are_possible() -> bool:
    try:
        return subprocess.run([*ONLY_READ, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def fedstride(
    *arguments: str, writable: str = "/tmp /dev/shm", **variables: str
) -> subprocess.CompletedProcess[str]:
    """A command where only these folders can be written. `variables`: of its environment."""
    if not mounts_are_possible():
        pytest.skip("this machine has no namespaces of mounts")
    named = {name: text for name, text in os.environ.items() if not name.startswith(("FEDSTRIDE_", "FLWR_"))}
    command = [*ONLY_READ, sys.executable, "-m", "lab.cli.main", *arguments]
    environment = named | {"PYTHONPATH": str(ROOT), "WRITABLE": writable, "HOME": "/"} | variables
    return subprocess.run(
        command, cwd="/", env=environment, capture_output=True, text=True, timeout=300, check=False
    )


RUN = ("run", *SMALL, "rounds=1", "clients=2", "name=here", "--no-compare")
NODE = ("node", "--superlink", "127.0.0.1:9", "--insecure", "--allow-root")
IN_TMP = {"FEDSTRIDE_RUNS": "/tmp/runs", "FEDSTRIDE_CACHE": "/tmp/cache"}


def test_a_run_needs_three_folders() -> None:
    done = fedstride(*RUN, **IN_TMP)
    assert done.returncode == 0, done.stderr
    assert "/tmp/runs/here" in done.stdout


def test_a_node_needs_three_folders_too() -> None:
    """It gets as far as the SuperLink, which is not there: its lock and its log are written."""
    done = fedstride(*NODE, FLWR_HOME="/tmp/home", FEDSTRIDE_STATE="/tmp/state", FEDSTRIDE_CACHE="/tmp/cache")
    assert "this node's log: /tmp/home/node-log.jsonl" in done.stderr
    assert "cannot join the SuperLink" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "variables", "writable", "said"),
    [
        (
            RUN,
            {"FEDSTRIDE_CACHE": "/tmp/cache"},
            "/tmp",
            "the run's folder /runs/here cannot be created (Read-only",
        ),
        (
            RUN,
            {"FEDSTRIDE_RUNS": "/tmp/runs"},
            "/tmp",
            "/.cache/fedstride is not writable (Read-only file system); set",
        ),
        (RUN, IN_TMP, "", "no folder for temporary files can be written: set TMPDIR"),
        (
            NODE,
            {"FEDSTRIDE_CACHE": "/tmp/cache"},
            "/tmp",
            "cannot write to its folder /.flwr (Read-only file system)",
        ),
    ],
)
def test_a_folder_that_is_missing_is_named(
    command: tuple[str, ...], variables: dict[str, str], writable: str, said: str
) -> None:
    done = fedstride(*command, writable=writable, **variables)
    assert done.returncode in (1, 2)
    assert said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("error: ") == 1
