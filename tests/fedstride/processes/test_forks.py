"""A keeper ends whatever its work has started, however it, its parent or the work ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pids import gone

PROGRAM = """
import os, subprocess, sys, time
from fedstride.processes import forks

def work():
    # Three that outlive their work: one with a session of its own, one whose parent has ended, one that waits.
    code = "import os, sys, time; open(sys.argv[1] + str(os.getpid()), 'w').close(); time.sleep(600)"
    for session in (False, True):
        subprocess.Popen([sys.executable, "-c", code, sys.argv[2]], start_new_session=session)
    if os.fork() == 0:
        subprocess.Popen([sys.executable, "-c", code, sys.argv[2]], start_new_session=True)
        os._exit(0)
    os.wait()
    while len(os.listdir(sys.argv[2])) < 3:
        time.sleep(0.01)
    open(sys.argv[2] + "work" + str(os.getpid()), "w").close()
    if sys.argv[1] == "ends":
        return 7
    time.sleep(600)

sys.exit(forks.kept(os.getppid(), work))
"""

PARENT = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', *sys.argv[1:]]))"
"""A parent of the keeper, which can be killed."""


def started(folder: Path, how: str) -> tuple[subprocess.Popen[bytes], int, list[int]]:
    """The parent, the keeper, and all that is below it."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, PROGRAM, how, f"{folder}/"])
    while not (done := list(folder.glob("work*"))):
        assert parent.poll() is None
    keeper = int(Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text())
    return parent, keeper, [int(done[0].name[4:]), *(int(each.name) for each in folder.glob("[0-9]*"))]


@pytest.mark.skipif(sys.platform != "linux", reason="the system must tie a process to its parent")
@pytest.mark.parametrize("how", ["ends", "its parent is killed", "it is told to end"])
def test_nothing_is_left(tmp_path: Path, how: str) -> None:
    parent, keeper, below = started(tmp_path, how)
    assert len(below) == 4
    if how == "its parent is killed":
        parent.kill()
    elif how == "it is told to end":
        os.kill(keeper, signal.SIGTERM)
    assert gone(keeper, *below, seconds=30.0)
    assert parent.wait(30.0) == {"ends": 7, "its parent is killed": -signal.SIGKILL}.get(how, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="the system must tie a process to its parent")
def test_the_work_ends_with_a_keeper_that_is_killed(tmp_path: Path) -> None:
    parent, keeper, below = started(tmp_path, "waits")
    try:
        os.kill(keeper, signal.SIGKILL)
        assert gone(below[0], seconds=30.0)
    finally:
        for pid in below[1:]:
            os.kill(pid, signal.SIGKILL)
        parent.wait(30.0)
