"""Every combination of base strategy, wrappers and client rule, by configuration only."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from desk import play

from fedstride.figures import metrics

BASES = ("fedavg", "fednnnn", "fedalr", "fedadam")
COMBINATIONS = list(itertools.product(BASES, ("", "+fedlws"), ("", "+two_d_lrd"), ("sgd", "fednlr")))
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("base", "shrink", "decay", "client"), COMBINATIONS)
def test_three_rounds(tmp_path: Path, base: str, shrink: str, decay: str, client: str) -> None:
    steps = ["strategy.local_steps=3", "strategy.window=0"] if decay else []
    outcome = play(tmp_path, f"strategy={base}{shrink}{decay}", f"client={client}", "rounds=3", *steps)
    rows = outcome.rows[1:]
    assert [row["round"] for row in rows] == [1, 2, 3]
    assert all(metrics.declared(key) for row in rows for key in row if "/" in key)
    assert all(row["clients"] == 4 and row["screening/rejected"] == 0 for row in rows)
    assert all(math.isfinite(row["test/loss"]) and row["norms/step"] > 0 for row in rows)
    assert ("fedlws/gamma/fc1" in rows[0]) == bool(shrink)
    assert ("two_d_lrd/d" in rows[0]) == bool(decay)
    assert ("fednlr/rate_max/fc1" in rows[0]) == (client == "fednlr")


@pytest.mark.parametrize(
    ("strategy", "others"),
    [
        ("fednova", ("client=fednlr", "client.momentum=0.5", "objective=fedprox")),
        ("scaffold", ("client=fednlr",)),
        ("l_dawa+fedlws", ("objective=fedprox",)),
        ("feddisco+fedlws", ("client=fednlr",)),
        ("feddyn+fedlws", ("client=fednlr",)),
        ("fedavg+adadecay+fedlws", ()),
        ("q_fedavg+two_d_lrd", ("strategy.local_steps=3",)),
    ],
)
def test_combinations_of_baselines_and_methods(tmp_path: Path, strategy: str, others: tuple[str, ...]) -> None:
    outcome = play(tmp_path, f"strategy={strategy}", *others, "rounds=3", "cohort=2")
    rows = outcome.rows[1:]
    assert all(row["clients"] == 2 and row["screening/rejected"] == 0 for row in rows)
    assert all(metrics.declared(key) for row in rows for key in row if "/" in key)
    assert all(row.get("screening/not_done", 0) == 0 for row in rows)
    assert all(math.isfinite(row["test/loss"]) and row["norms/step"] > 0 for row in rows)
