"""One short round of a preset for each distinct task, model, partition and method whose data are at hand.

A round has two clients and one mini-batch of at most eight examples; the clients evaluate, on what they hold out.
A whole round of the largest networks takes an hour on a CPU. The data may be subsets, in which a Dirichlet draw
gives some clients fewer examples than usual.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from desk import play
from real_data import REAL

from fedstride.tasks import data
from fedstride.tasks.registry import TASKS
from server_app.config.presets.computed_settings import names, preset

SHORT = ["rounds=1", "cohort=2", "client.local_steps=1", "client.batch_size=8", "client.device=cpu"]
SHORT += ["test_set=false", "task.proxy=none", "checkpoint_every=0"]  # a proxy set needs the test set


def distinct() -> list[str]:
    found: dict[tuple[str, ...], str] = {}
    for name in names():
        made = preset(name)
        choices = tuple(made.values[group].value for group in ("task", "model", "partition"))
        found.setdefault((*choices, made.method.label), name)
    return list(found.values())


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason=f"the data sets are not at {REAL}")
@pytest.mark.parametrize("name", distinct())
def test_a_preset_trains(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSTRIDE_DATA", str(REAL))
    task = preset(name).values["task"].value
    try:
        data.load(TASKS.unflatten({"task.name": task}))
    except Exception as error:
        pytest.skip(f"the data of {task} are not at {REAL}: {error}")
    steps = ["strategy.local_steps=1"] if "two_d_lrd" in preset(name).method.strategies else []
    sizes = ["partition.min_size=2"] if preset(name).values["partition"].value == "dirichlet" else []
    outcome = play(tmp_path, f"experiment={name}", *SHORT, *steps, *sizes, small=False)
    last = outcome.rows[-1]
    assert (last["round"], last["clients"]) == (1, 2)
    assert math.isfinite(last["train/loss"])
