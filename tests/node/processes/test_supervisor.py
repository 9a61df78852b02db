"""The supervisor of a message: it ends all that its child has started, in real forks, with and without
Landlock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pids import gone

from confinement import support

MINDED = """
import os, signal, subprocess, sys, time
from pathlib import Path
from node.processes import supervisor
from node.processes.internal_messages import Channel, Free, Start, pair

if sys.argv[1] == "swept":  # as on a kernel whose Landlock cannot scope signals
    supervisor._scope = lambda outside: False
pids, how = Path(sys.argv[2]), sys.argv[3]

def note(name):
    (pids / name).symlink_to(str(os.getpid()))  # at once: who sees the name can read the number

def work(connection, output):
    note("child")
    if os.fork() == 0:
        os.setsid()
        for generation in range(3):  # each ends, and leaves the next
            if os.fork():
                os._exit(0)
        note("orphan")
        time.sleep(600)
    if os.fork() == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
        note("deaf")
        time.sleep(600)
    if os.fork() == 0:
        note("stopped")
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)
    while len(list(pids.iterdir())) < 4:
        time.sleep(0.01)
    if how == "hangs":
        (pids / "ready").touch()
        time.sleep(600)
    os._exit(3)

bystander = subprocess.Popen(["sleep", "600"])
ours, theirs = pair()
template = os.getpid()
pid = os.fork()
if pid == 0:
    ours.close()
    supervisor.serve(Channel(theirs), template, work)
theirs.close()
line = Channel(ours)
while "SigBlk:\\t0000000000014000" not in Path(f"/proc/{pid}/status").read_text():
    time.sleep(0.01)
os.kill(pid, signal.SIGTERM)  # meant for the process before, which has ended
line.send(Start(1, {"limits": {}, "folders": [], "scratch": ""}, 600.0), *os.pipe())
if how == "hangs":
    while not (pids / "ready").exists():
        time.sleep(0.01)
    os.kill(pid, signal.SIGTERM)
print(line.receive()[0].reason)
assert isinstance(line.receive()[0], Free)
line.close()
assert os.waitpid(pid, 0)[1] == 0
assert bystander.poll() is None, "a process that the supervisor has not started was ended"
bystander.kill()
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["scoped", "swept"])
@pytest.mark.parametrize(("how", "said"), [("ends", "exit code 3"), ("hangs", "signal 9 (SIGKILL)")])
def test_a_supervisor_ends_all_that_its_child_has_started_and_nothing_else(
    tmp_path: Path, way: str, how: str, said: str
) -> None:
    if way == "scoped" and support().landlock < 6:
        pytest.skip("this kernel's Landlock cannot scope signals")
    command = [sys.executable, "-c", MINDED, way, str(tmp_path), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == f"{said}\n", done.stderr
    assert done.returncode == 0, done.stderr
    pids = [int(os.readlink(tmp_path / name)) for name in ("child", "orphan", "deaf", "stopped")]
    assert gone(*pids)
