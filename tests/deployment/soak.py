"""A thousand messages to one `fedstride node`: its processes, open files and memory on the way.

Every tenth message's client leaves a process, a thread, open files and allocated memory behind, and every
hundredth crashes. Printed are the numbers of the SuperNode ("node") and of the process from which its executors
are forked ("template"), ten times, when no message is being worked on. At the end: how much they grew from the
first time to the last.

    uv run python tests/deployment/soak.py [--messages 1000]
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from processes import WARM, Deployment, Link, of_messages, until

from lab.flower.flower_command import free_port
from node.policy.resource_limits import children
from server_app.records.line_files import read_lines

LEAKING = '''
import os, subprocess, threading, time
from dataclasses import dataclass
from fedstride import Method, Plan, part

kept = []

@part(client="leaking")
@dataclass
class Leaking(Method):
    """Leaves something behind in every tenth round, and crashes in every hundredth."""

    def begin(self, job, received, state):
        if job.server_round % 10 == 0:
            subprocess.Popen(["sleep", "3600"])
            threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
            kept.extend([bytearray(2**24), *(os.open("/dev/null", os.O_RDONLY) for _ in range(100))])
        if job.server_round % 100 == 0:
            os.abort()
        return Plan()
'''

WORK = ("model=mlp", "client.local_steps=1", "client.batch_size=20", "client.device=cpu", "clients=1")
RECORDS = ("evaluate_every=100", "checkpoint_every=100", "max_empty_rounds=2", "screening.quorum=1")


class Sample(NamedTuple):
    """What the processes of a node have, after so many messages."""

    messages: int
    processes: int  # below the node
    node_files: int
    template_files: int
    node_mib: float
    template_mib: float


def main() -> None:
    """Submit one run with a round for each message, and print ten lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=1000, help="at least 10; 1000 by default")
    messages = parser.parse_args().messages
    with tempfile.TemporaryDirectory(prefix="fedstride-soak-") as temporary:
        samples = soaked(Path(temporary), messages)
    first, last = samples[0], samples[-1]
    print(f"growth from message {first.messages} to message {last.messages}:")
    for name, early, late in zip(Sample._fields[1:], first[1:], last[1:], strict=True):
        print(f"  {name:<16}{late - early:+.1f}")


def soaked(root: Path, messages: int) -> list[Sample]:
    """Samples during a run with so many training messages to one node."""
    (root / "leaking.py").write_text(LEAKING)
    control, fleet = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with Deployment(root) as deployment:
        place = ("--host", "127.0.0.1", "--port", control.rpartition(":")[2], "--fleet-api-address", fleet)
        superlink = deployment.start("superlink", "flower-superlink", "--insecure", *place)
        until(lambda: True if "Application startup complete" in superlink.log() else None, "SuperLink")
        link = Link(superlink, control, fleet, root)
        config = "partition-id=0 num-partitions=1"
        node = deployment.supernode("node", link.fleet, "--insecure", node_config=config, program=WARM)
        until(node.joined, "joining of the node")
        overrides = [f"parts={root / 'leaking.py'}", "client=leaking", *WORK, *RECORDS, f"rounds={messages}"]
        command = ["submit", "--address", control, "--insecure", *overrides, "node_ids=any", "name=soak"]
        submitting = deployment.start("desk", *WARM[:3], *command)
        rows = superlink.folder / "runs/soak/metrics.jsonl"
        print(f"{'messages':>10}" + "".join(f"{name:>16}" for name in Sample._fields[1:]))
        samples: list[Sample] = []
        for done in range(messages // 10, messages + 1, messages // 10):
            until(lambda done=done: reached(rows, done, submitting.ended()), f"message {done}", 3600.0)
            samples.append(sample(node.process.pid, done))
            print(
                "".join(f"{value:>{10 if i == 0 else 16}.0f}" for i, value in enumerate(samples[-1])), flush=True
            )
        assert until(submitting.ended, "end of the run", 60.0) == 0, submitting.log()
        return samples


def reached(rows: Path, done: int, ended: int | None) -> bool | None:
    """True when this round is over; None before."""
    over = rows.is_file() and len(read_lines(rows)) > done
    assert over or not ended, f"the run ended with exit code {ended}"
    return True if over else None


def sample(node: int, done: int) -> Sample:
    """The numbers at a moment at which no message has a process."""
    until(lambda: None if of_messages(node) else True, "pause", 60.0, 0.005)
    below = children(node)
    both = (node, below[0])
    files = [len(os.listdir(f"/proc/{pid}/fd")) for pid in both]
    return Sample(done, len(below), files[0], files[1], resident(both[0]), resident(both[1]))


def resident(pid: int) -> float:
    """The resident memory of a process, in MiB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


if __name__ == "__main__":
    main()
