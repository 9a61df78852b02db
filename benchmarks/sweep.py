"""A sweep of 24 short runs of the quickstart: 8 methods with 3 seeds.

The floor is the training alone: the seconds that all clients of all runs report for it, divided by the number of
cores. So the ratio contains imports, evaluation, aggregation, records and whatever time a core waits.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import Measured
from benchmarks._command import fedstride
from fedstride.processes.cores import cores

FLOOR = "the training of all clients, divided by the cores"
METHODS = ["strategy=fedavg,fednnnn,fedalr,fedavg+fedlws", "client=sgd,fednlr"]
CASES = {f"24 runs of {rounds} rounds": [f"rounds={rounds}"] for rounds in (3, 20)}


def timings(repeats: int, only: str = "") -> Iterator[Measured]:
    """Each sweep, `repeats` times."""
    for _ in range(repeats):
        for name, rounds in CASES.items():
            if only in name:
                sweep = fedstride(["run", "-m", *METHODS, "seed=1,2,3", *rounds])
                training = sum(row["seconds/train"] for run in sweep.clients for row in run)
                yield Measured(name, sweep.seconds, training / cores())
