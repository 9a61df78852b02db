"""From the command to the first round's result, and memory, of a run with its comparison run and without.

The floor of the time is a process that imports torch and Flower and does nothing else. That of the memory is such
a process, too. The memory is the largest sum over all processes of the command, of which shared pages count once;
pages of files (torch's libraries) are included. Looking at it takes time, so it is another run of the command.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from benchmarks import Measured, seconds
from benchmarks._command import fedstride, held

FLOOR = "a process that imports torch and Flower's two apps"
IMPORTS = "import torch, flwr.clientapp, flwr.serverapp"
LARGE = ["rounds=2", "--no-compare", "clients=100", "client.local_steps=1"]
CASES = {
    "quickstart": ["rounds=2"],
    "quickstart without comparison": ["rounds=2", "--no-compare"],
    "quickstart, workers=0": ["rounds=2", "--no-compare", "workers=0"],
    "MNIST, 100 clients": [*LARGE, "task=mnist"],
    "Fashion-MNIST, 100 clients": [*LARGE, "task=fashion_mnist"],
}


def timings(repeats: int, only: str = "") -> Iterator[Measured]:
    """Each case, `repeats` times, each time next to the floor."""
    for _ in range(repeats):
        for name, arguments in CASES.items():
            if only in name:
                floor, memory = seconds(imports), floor_memory()
                command = ["run", "-q", *arguments]
                yield Measured(f"{name}: first result", fedstride(command).first, floor)
                yield Measured(f"{name}: memory", fedstride(command, memory=True).memory, memory, "B")


def imports() -> None:
    """The floor."""
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)


def floor_memory() -> int:
    """What the process of the floor holds at its end."""
    command = [sys.executable, "-c", f"{IMPORTS}; print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdin
        process.stdout.readline()
        memory = held(process.pid)
        process.stdin.write("\n")
    return memory
