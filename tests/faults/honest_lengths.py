"""How long honest updates are, in units of the screening's reference length. Prints the figures of security.md.

    uv run python tests/faults/honest_lengths.py

About 180 runs of 15 or 40 rounds, about 20 minutes.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from client_app.app import app
from fedstride.arrays import norm, views
from lab.engine.local import LocalGrid
from server_app import session
from server_app.config.compose import compose
from server_app.lines import read_lines
from strategies.outliers import reference

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
    """The settings of each run: FedAvg on all partitions, all methods on three of them, and a larger network."""
    for partition in PARTITIONS:
        for clients in (2, 5, 10, 40):
            for seed in (1, 2, 3):
                yield (*partition, f"clients={clients}", "strategy=fedavg", f"seed={seed}")
    for partition in PARTITIONS[2:5]:
        for method in METHODS:
            for clients in (5, 10):
                yield (*partition, f"clients={clients}", *method)
    for partition in PARTITIONS[2:5:2]:
        for clients in (5, 10):
            yield (*partition, f"clients={clients}", "strategy=fedavg", "model=cnn_mnist", "rounds=15")


def ratios(settings: tuple[str, ...], folder: Path) -> list[float]:
    """The length of each update of a run, divided by the reference length of its round."""
    config = compose([*BASE, f"out={folder}", *settings])
    grid = LocalGrid(app, config.clients)
    prepared = session.prepare(config)
    outcome = session.run(grid, prepared, on_folder=grid.keep_client_states_in)
    scale = norm(views(prepared.evaluation.initial))
    rows = read_lines(outcome.folder / "clients.jsonl")
    found: list[float] = []
    learnt = None
    for server_round in range(1, config.rounds + 1):
        lengths = [row["norm"] for row in rows if row["round"] == server_round]
        learnt = reference(lengths, learnt, scale)
        if learnt:
            found += [length / learnt for length in lengths]
    return found


def main() -> None:
    """Print the distribution, and how often honest updates are longer than each factor allows."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        found = [ratio for settings in runs() for ratio in ratios(settings, Path(folder))]
    print(f"{len(found)} honest updates in {len(list(runs()))} runs, length / reference length:")
    for share in (0.5, 0.9, 0.99, 0.999, 0.9999, 1.0):
        print(f"  quantile {share:g}: {np.quantile(found, share):.2f}")
    for factor in FACTORS:
        longer = sum(ratio > factor for ratio in found)
        print(f"  longer than {factor:g}: {longer} ({longer / len(found):.1e})")


if __name__ == "__main__":
    main()
