"""The same work in other packages for federated learning: a round, and the time to the first result.

The work is the quickstart with FedAvg: the same examples of each client, initial weights, network (431,080
parameters) and SGD, all clients in each round, the mean weighted by examples, and an evaluation of the same
test set in each round. Each package has a script in `_rivals/`, which runs in an environment of its own, made
when it is first measured. A script writes a line when a round's result is known. Ours is the command; the lines
of its `metrics.jsonl` are its results. Both are timed from outside, in turn. A round is the median round after
the first. All have the number of threads that is their default. A package whose accuracy differs by more than
`CLOSE` does not do the same work, and is not compared.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import Measured
from benchmarks._command import Watched, files, watched
from benchmarks._environments import python
from benchmarks._plain import Work, work
from fedstride.errors import RunError
from server_app.config.compose import compose
from server_app.file_names import METRICS
from server_app.records.line_files import read_lines

FLOOR = "`fedstride run --no-compare strategy=fedavg`, doing the same work"
ROUNDS = 6
CLOSE = 0.1
"""The largest difference of the accuracy after the last round."""

LIMIT = 300.0
"""Seconds after which a rival is given up."""

SCRIPTS = Path(__file__).parent / "_rivals"
QUICKSTART = ["strategy=fedavg"]
TORCH = f"torch=={version('torch')}"


class Rival(NamedTuple):
    """A package, and how its work differs from ours."""

    name: str
    package: str
    others: tuple[str, ...]  # further packages of its environment
    differs: str
    python: str = "3.11"
    arguments: tuple[str, ...] = ()

    @property
    def environment(self) -> str:
        """The name of the environment and, after `run_`, of the script."""
        return self.package.partition("==")[0].partition("[")[0].partition("-")[0]

    @property
    def script(self) -> Path:
        """The script."""
        return SCRIPTS / f"run_{self.environment}.py"


ONE_PROCESS = "one process, one client after the other, torch's default of one thread for each core"
BLAZEFL = "two at a time, each with torch's default of one thread for each core"

DRJAX = Rival(
    "DrJAX",
    "drjax==0.2.1",
    ("jax==0.10.2", "jaxlib==0.10.2"),
    "one program for all clients, which have as many steps as the largest, empty ones included; XLA's threads",
)

RIVALS = (
    Rival(
        "Flower's simulation, FedAvg",
        f"flwr[simulation]=={version('flwr')}",
        (TORCH,),
        "Ray, one core and one thread for each client that trains; each process reads the data once",
    ),
    Rival(
        "pfl",
        "pfl==0.6.0",
        (TORCH,),
        f"{ONE_PROCESS}; its mini-batches are not drawn, so a client's examples are shuffled when loaded; in "
        "the first round it also evaluates each client's own examples before and after training",
    ),
    Rival("fluke", "fluke-fl==0.8.1", (TORCH,), f"{ONE_PROCESS}; it also computes precision, recall and F1"),
    Rival(
        "FLGo", "flgo==0.4.4", (TORCH,), "one process, one client after the other, FLGo's default of one thread"
    ),
    Rival(
        "FedLab",
        "fedlab==1.3.0",
        (TORCH,),
        f"{ONE_PROCESS}; its handler does not weight, so the script gives the weights to its aggregation",
    ),
    Rival(
        "BlazeFL, processes",
        "blazefl[reproducibility]==2.0.3",
        (TORCH, "tqdm==4.70.1"),
        f"new processes in each round, {BLAZEFL}",
        "3.12",
        ("processes",),
    ),
    Rival(
        "BlazeFL, threads",
        "blazefl[reproducibility]==2.0.3",
        (TORCH, "tqdm==4.70.1"),
        f"threads of a Python with a global lock, {BLAZEFL}",
        "3.12",
        ("threads",),
    ),
    DRJAX,
)
"""The pinned versions. Flower and torch are those of this environment. BlazeFL's version 3 needs Python 3.14."""


class Run(NamedTuple):
    """What was measured of one run."""

    round: float  # seconds: the median of the rounds after the first
    first: float  # seconds from the start of the process to the first round's result
    accuracy: float  # after the last round


def timings(repeats: int, only: str = "") -> Iterator[Measured | str]:
    """Each rival next to ours, `repeats` times; then how its work differs, or why it was not measured."""
    chosen = [rival for rival in RIVALS if only in rival.name]
    remarks = {rival.name: f"{rival.name} ({rival.package}): {rival.differs}." for rival in chosen}
    with tempfile.TemporaryDirectory(prefix="fedstride-rivals-") as temporary:
        folder = Path(temporary)
        write(folder / "work.npz")
        for _ in range(repeats):
            for rival in list(chosen):
                try:
                    yield from compared(rival, folder)
                except RunError as error:
                    remarks[rival.name] = f"{rival.name} ({rival.package}) was not measured: {error}"
                    chosen.remove(rival)
    yield from remarks.values()


def compared(rival: Rival, folder: Path) -> list[Measured]:
    """Ours and then the rival, once. Raises RunError if it cannot run or does not do the same work."""
    interpreter = interpreter_of(rival)
    floor = ours(folder)
    rival_run = theirs(rival, interpreter, folder)
    same_work(rival_run.accuracy, floor.accuracy)
    return [
        Measured(f"{rival.name}: a round", rival_run.round, floor.round),
        Measured(f"{rival.name}: first result", rival_run.first, floor.first),
        Measured(f"{rival.name}: accuracy", rival_run.accuracy, floor.accuracy, "1"),
    ]


def interpreter_of(rival: Rival) -> Path:
    """The Python of the rival's environment, which is made if there is none. Raises RunError if that fails."""
    return python(rival.environment, rival.python, [rival.package, *rival.others])


def same_work(accuracy: float, expected: float) -> None:
    """Raises RunError if these accuracies are not close."""
    if not abs(accuracy - expected) <= CLOSE:  # also if one is NaN
        raise RunError(
            f"its accuracy after {ROUNDS} rounds is {accuracy:.3f} and ours {expected:.3f}, more than {CLOSE} "
            "apart: it does not do the same work"
        )


def ours(folder: Path) -> Run:
    """The command."""
    command = [sys.executable, "-m", "fedstride", "run", "-q", "--no-compare", *QUICKSTART, f"rounds={ROUNDS}"]
    with tempfile.TemporaryDirectory(dir=folder) as place:
        seen = watched([*command, f"out={place}/runs"], Path(place), METRICS)
        (rows,) = files(place, METRICS)
        return run(seen, read_lines(rows), before=1)  # the first row is that of the initial weights


def theirs(rival: Rival, interpreter: Path, folder: Path) -> Run:
    """The rival's script, in a folder of its own."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        results = Path(place) / "results.jsonl"
        given = [str(folder / "work.npz"), str(results), str(ROUNDS), *rival.arguments]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
            "FLWR_HOME": place
        }
        command = [str(interpreter), str(rival.script), *given]
        seen = watched(command, Path(place), results.name, limit=LIMIT, cwd=place, env=environment)
        lines = results.read_text().splitlines() if results.exists() else []
        return run(seen, [json.loads(line) for line in lines], before=0)


def run(seen: Watched, rows: list[dict[str, object]], before: int) -> Run:
    """The figures of a run that wrote `before` rows before the first round. Raises RunError if rounds lack."""
    if len(rows) != before + ROUNDS:
        raise RunError(f"it reported {len(rows) - before} rounds instead of {ROUNDS}")
    results = seen.results[before:]
    steady = statistics.median(later - earlier for earlier, later in pairwise(results))
    return Run(steady, results[0], float(str(rows[-1]["test/accuracy"])))


def write(path: Path) -> None:
    """The work as a file that needs no package of ours to be read: `_rivals/given.py`."""
    config = compose(QUICKSTART)
    save(path, work(config), config.client.local_epochs, config.client.batch_size, config.client.lr)


def save(path: Path, work: Work, epochs: int, batch_size: int, lr: float) -> None:
    """Write this work. Without test examples, nothing is evaluated."""
    clients, test, network = work
    np.savez(
        path,
        x=np.concatenate([client.x.numpy() for client in clients]),
        y=np.concatenate([client.y.numpy() for client in clients]),
        ends=np.cumsum([len(client.y) for client in clients]),
        test_x=test.x.numpy(),
        test_y=test.y.numpy(),
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        **{f"weights/{name}": value.numpy() for name, value in network.state_dict().items()},
    )
