"""How long honest updates are, in units of the screening's reference length. Prints the figures of security.md.

    uv run python tests/faults/honest_lengths.py

About 200 runs of 15 to 40 rounds, about 15 minutes on two cores.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from client_app.app import app
from fedstride.arrays.float64_sums import norm
from fedstride.arrays.named import views
from fedstride.errors import DataError
from lab.engine.local_grid import LocalGrid
from server_app import preparation, session
from server_app.config.compose import compose
from server_app.records.line_files import read_lines
from strategies.replies.length_bounds import reference
from strategies.replies.update_lengths import STEADY

FACTORS = (3.0, 4.0, 5.0, 6.0, 8.0)
BASE = ("model=mlp", "rounds=40", "checkpoint_every=0", "evaluate_every=0", "screening.factor=null")
PARTITIONS = (
    ("partition=iid",),
    *(("partition=dirichlet", f"partition.alpha={alpha}") for alpha in (1, 0.3, 0.1, 0.05)),
    ("partition=pathological",),
)
METHODS = (
    *(("strategy=" + name,) for name in ("fednnnn", "momentum", "fedalr", "fedlws", "feddyn", "fedadam")),
    *(("strategy=" + name,) for name in ("fedavgm", "norm_norm", "fedmedian", "fedavg+two_d_lrd")),
    ("strategy=scaffold", "client.lr=0.02"),
    *(
        ("strategy=fedavg", setting)
        for setting in (
            *("client=fednlr", "client.local_epochs=5", "client.local_steps=10"),
            *("client.lr=0.2", "client.momentum=0.9", "fraction=0.3"),
        )
    ),
)


def runs() -> Iterator[tuple[str, ...]]:
    """The settings of each run: FedAvg on all partitions, all methods on three of them and on the quickstart."""
    for partition in PARTITIONS:
        for clients in (2, 5, 10, 40):
            for seed in (1, 2, 3):
                yield (*partition, f"clients={clients}", "strategy=fedavg", f"seed={seed}")
    for partition in PARTITIONS[2:5]:
        for method in METHODS:
            for clients in (5, 10):
                yield (*partition, f"clients={clients}", *method)
    for method in METHODS:  # on the quickstart: its partition and network
        yield ("model=cnn_mnist", "rounds=20", *method)
    for partition in PARTITIONS[2:5:2]:
        for clients in (5, 10):
            yield (*partition, f"clients={clients}", "strategy=fedavg", "model=cnn_mnist", "rounds=15")


def updates(settings: tuple[str, ...], folder: Path) -> Iterator[tuple[int, int, float]]:
    """Round, client and length / reference length of each update of a run."""
    config = compose([*BASE, f"out={folder}", *settings])
    grid = LocalGrid(app, config.clients)
    prepared = preparation.prepare(config)
    outcome = session.run(grid, prepared, on_folder=grid.keep_client_states_in)
    scale = norm(views(prepared.evaluation.initial))
    rows = read_lines(outcome.folder / "clients.jsonl")
    learnt = None
    for server_round in range(1, config.rounds + 1):
        in_round = [row for row in rows if row["round"] == server_round]
        learnt = reference([row["norm"] for row in in_round], learnt, scale)
        if learnt:
            yield from ((server_round, row["client"], row["norm"] / learnt) for row in in_round)


def measured(settings: tuple[str, ...]) -> list[tuple[int, int, float]]:
    """The updates of a run; empty if the data cannot be divided in this way: a client would have too few."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        try:
            return list(updates(settings, Path(folder)))
        except DataError:
            return []


def rejected(run: list[tuple[int, int, float]], factor: float, burst: float) -> int:
    """How many updates of an honest run the screening rejects: `update_lengths.py`, on numbers."""
    within: Counter[int] = Counter()
    count = 0
    for _, client, ratio in run:
        count += ratio > (max(factor, burst) if within[client] >= STEADY else factor)
        within[client] = within[client] + 1 if ratio <= factor else 0
    return count


def main() -> None:
    """Print the distribution, and how many honest updates each factor rejects."""
    found = []
    with ProcessPoolExecutor() as pool:
        for number, (settings, run) in enumerate(zip(runs(), pool.map(measured, runs()), strict=True)):
            largest = f"{max(ratio for *_, ratio in run):.2f}" if run else "no such partition"
            print(f"{number} {largest} {' '.join(settings)}", file=sys.stderr, flush=True)
            found += [run] if run else []
    ratios = [ratio for run in found for *_, ratio in run]
    print(f"{len(ratios)} honest updates in {len(found)} of {number + 1} runs, length / reference length:")
    for share in (0.5, 0.9, 0.99, 0.999, 0.9999, 1.0):
        print(f"  quantile {share:g}: {np.quantile(ratios, share):.2f}")
    print(f"  largest in the first five rounds: {max(r for run in found for n, _, r in run if n <= 5):.2f}")
    for factor in FACTORS:
        counts = [sum(rejected(run, factor, burst) for run in found) for burst in (factor, 2 * factor)]
        shares = [f"{count} ({count / len(ratios):.1e})" for count in counts]
        print(f"  rejected with factor {factor:g}: {shares[0]}; and burst {2 * factor:g}: {shares[1]}")


if __name__ == "__main__":
    main()
