"""Seconds a round and memory with 100, 1,000 and 10,000 clients, of which 100 train in a round.

The floor is the run with 100 clients. Every client trains on one mini-batch of 6 images of MNIST, so the time is
that around the training. Needs MNIST's files (FEDSTRIDE_DATA).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks import Measured
from benchmarks._command import Observed, fedstride

FLOOR = "the run with 100 clients"
COUNTS = (100, 1_000, 10_000)
IN_A_ROUND = 100
RUN = [
    *("run", "-q", "--no-compare", "task=mnist", "partition=iid", "strategy=fedavg", "model=mlp", "rounds=6"),
    *("client.local_steps=1", "client.batch_size=6", "evaluate_every=0", f"cohort={IN_A_ROUND}"),
]


def timings(repeats: int, only: str = "") -> Iterator[Measured]:
    """The runs in turn, `repeats` times: the median round after the first, the first result, and memory."""
    for _ in range(repeats):
        runs = {count: fedstride([*RUN, f"clients={count}"], memory=True) for count in COUNTS}
        floor = runs[COUNTS[0]]
        for count, run in runs.items():
            name = f"{count:,} clients"
            if only in name:
                yield Measured(f"{name}: a round", a_round(run), a_round(floor))
                yield Measured(f"{name}: first result", run.first, floor.first)
                yield Measured(f"{name}: memory", run.memory, floor.memory, "B")


def a_round(observed: Observed) -> float:
    """The median of the rounds after the first, in seconds."""
    return statistics.median(float(row["seconds/train"] + row["seconds/aggregate"]) for row in observed.rows[2:])
