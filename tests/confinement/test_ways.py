"""Every way out of a confined process that was thought of, on each level of Landlock, as root and as another user.

A way counts only if it works unconfined in the same trial. `trials.py` says how a way is tried; the ways are in
`ways_of_files.py`, `ways_of_processes.py` and `ways_of_the_kernel.py`, each with the row of the list of attacks
that it comes from, or + for those that were closed from the start.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from run_ways import WAYS
from trials import Way

from confinement import level, support

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
LEVELS = sorted({min(each, level()) for each in (7, 4, 1)} - {0}, reverse=True)
"""As far as this kernel has them."""

USERS = {"root": 0, "another": NOBODY} if os.getuid() == 0 else {"own": os.getuid()}

pytestmark = pytest.mark.skipif(not support().possible, reason=f"missing here: {', '.join(support().missing())}")


def combinations() -> list[object]:
    """The present user at the newest level is a fast test, the others are slow ones."""
    made: list[object] = []
    for user, uid in USERS.items():
        for each in LEVELS:
            fast = uid == os.getuid() and each == LEVELS[0]
            name = f"{user}-{each}"
            made.append(pytest.param(uid, each, id=name, marks=() if fast else pytest.mark.slow))
    return made


ANSWERS = {
    "Operation not permitted",
    "Permission denied",
    "Function not implemented",
    "Operation not supported",
    "Invalid cross-device link",  # to move or link a file out of its folder's rules
    "answered as if done",
}
ANSWERS_OF_A_ROW = {
    ("3", "no capabilities"),
    ("10", "no harm; Bad file descriptor"),
    ("17", f"ended with status {int(signal.SIGSYS)}"),
    ("27", "not executed"),
    ("28", "ValueError: not allowed to raise maximum limit"),
    ("28", f"no harm; ended with status {int(signal.SIGABRT)}"),
}
"""What a closed way must say, so that a way which fails for a reason of the test does not count as closed."""

Trial = tuple[bool, str]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run of the tests have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def tried(folder: Path, uid: int, landlock: int) -> dict[str, tuple[Trial, Trial]]:
    """What became of each way, unconfined and confined. The first test that asks runs them all."""
    place = folder / f"ways-{uid}-{landlock}.json"
    with (folder / f"ways-{uid}-{landlock}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            script = Path(__file__).with_name("run_ways.py")
            done = subprocess.run(
                [sys.executable, str(script), str(uid), str(landlock)],
                capture_output=True,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
            )
            assert done.returncode == 0 and done.stdout, done.stderr
            place.write_text(done.stdout)
        return {name: (free, held) for _, name, free, held in json.loads(place.read_text())}


@pytest.mark.slow
@pytest.mark.parametrize("each", [pytest.param(each, id=f"{each.row}: {each.name}") for each in WAYS])
@pytest.mark.parametrize(("uid", "landlock"), combinations())
def test_a_way_out_is_closed(each: Way, uid: int, landlock: int, shared: Path) -> None:
    if landlock < each.since:
        pytest.skip(f"{each.name}: closed from Landlock {each.since} on")
    free, held = tried(shared, uid, landlock)[each.name]
    assert "the trial itself failed" not in free[1] + held[1]
    assert not held[0], held[1]
    assert held[1].removeprefix("no harm; ") in ANSWERS or (each.row, held[1]) in ANSWERS_OF_A_ROW
    if not free[0]:
        pytest.skip(f"{each.name}: does not work unconfined either: {free[1].removeprefix('no harm; ')}")


def test_another_user_is_tried_too() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    assert set(USERS.values()) == {0, NOBODY}


def test_the_names_of_ways_are_different() -> None:
    assert len({each.name for each in WAYS}) == len(WAYS)
