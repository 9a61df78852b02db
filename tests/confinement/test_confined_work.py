"""What an app must still be able to do in a confined process, on the newest and the oldest Landlock."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from works import WORKS

from confinement import level, support

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch_trains", "safetensors_are_kept", "numba_compiles", "tables_are_read", "a_client_app"}
WITH_A_PORT = {"a_connection", "names", "programs", "modules_of_python"}

pytestmark = pytest.mark.skipif(not support().possible, reason=f"missing here: {', '.join(support().missing())}")


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def errors(scratch: Path, landlock: int, only: set[str], ports: tuple[int, ...] = ()) -> dict[str, str]:
    """The works that failed in one confined process, with their errors."""
    if landlock > level():
        pytest.skip(f"this kernel has Landlock {level()}")
    asked = {
        "scratch": str(scratch),
        "ports": ports,
        "landlock": landlock,
        "only": [n for n in WORKS if n in only],
    }
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("works.py")), json.dumps(asked)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0 and done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == only
    return {name: error for name, error in found.items() if error}


@pytest.mark.parametrize("landlock", [7, 4, 1])
def test_python_works(landlock: int, tmp_path: Path) -> None:
    assert errors(tmp_path, landlock, set(WORKS) - HEAVY - {"a_connection"}) == {}


@pytest.mark.parametrize("landlock", [7, 4, 1])
def test_a_domain_with_a_port_connects_to_it(landlock: int, tmp_path: Path, listening: socket.socket) -> None:
    assert errors(tmp_path, landlock, WITH_A_PORT, (listening.getsockname()[1],)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("landlock", [7, 1])
def test_training_works(landlock: int, tmp_path: Path) -> None:
    assert errors(tmp_path, landlock, HEAVY) == {}
