"""The process of a message, in a real fork."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORK = """
import os, sys, weakref
from node.processes import worker

class Made: pass

kept = [Made()]
weakref.finalize(kept[0], os.write, 1, b"template ")
if (pid := os.fork()) == 0:
    worker._separate()
    kept.append(Made())
    weakref.finalize(kept[1], os.write, 1, b"fork ")
    worker._end(3)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
"""


@pytest.mark.slow
def test_a_fork_ends_what_it_has_made_and_not_what_the_template_has() -> None:
    ended = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "fork template "
