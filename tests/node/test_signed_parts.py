"""One configuration of every part is signed and run, and its nodes accept every message: what varies is complete."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from signing import WORD, CheckedGrid

from client_app import halves
from client_app.app import app
from fedstride import wire
from fedstride.errors import ConfigError
from server_app import session
from server_app.attacks import refuse_attack
from server_app.config.compose import compose
from server_app.config.schema import TABLES

pytestmark = pytest.mark.slow

SMALL = ("model=mlp", "clients=3", "rounds=3", "client.batch_size=20", "evaluate_every=1", "evaluate_clients=true")
STEPS = "client.local_steps=2"

NEEDS = {
    "strategy=fedlaw": ("task.proxy=test",),
    "strategy=trimmed_mean": ("strategy.beta=0.34",),
    "partition=shards": ("clients=5",),
    "partition=two_classes": ("clients=5",),
    "partition=one_class": ("clients=10",),
    "task=diabetes": ("partition=iid",),
    "privacy=local": ("evaluate_clients=false",),
    **dict.fromkeys((f"privacy={kind}" for kind in TABLES["privacy"]), ("best=test/accuracy",)),
}
"""What a part needs of other parts to be run at all."""

MORE = (
    "strategy=two_d_lrd strategy.window=0 strategy.attenuation=0.5",
    "strategy=two_d_lrd strategy.decay=all strategy.window=0",
    "strategy=scaffold+two_d_lrd",
    "strategy=feddisco cohort=2",
    "privacy=client_side privacy.adaptive=true privacy.noise_multiplier=0.01 best=test/accuracy",
    "privacy=local privacy.noise_seed=3 evaluate_clients=false best=test/accuracy",
    "train=[fc2.*]",
    "train=[fc2.*] calibration=ccvr",
)
"""Settings by which a part sends something else than by default."""

RESULTS: dict[str, set[str]] = {}
"""The halves that were asked for, by configuration."""


def choices() -> Iterator[str]:
    for group, table in TABLES.items():
        yield from (f"{group}={name}" for name in table)


def small(choice: str) -> list[str]:
    found = [each for each in SMALL if not choice.startswith(each.partition("=")[0] + "=")]
    needed = NEEDS.get(choice, ())
    if "two_d_lrd" not in choice:
        found.append(STEPS)
    return [*found, *choice.split(), *needed]


@pytest.mark.parametrize("choice", [*choices(), *MORE])
def test_the_messages_of_a_run_are_those_that_were_signed(choice: str, tmp_path: Path) -> None:
    try:
        config = compose([*small(choice), f"out='{tmp_path}'"])
        refuse_attack(config)
        prepared = session.prepare(config)
    except ConfigError as error:
        pytest.skip(str(error))
    grid = CheckedGrid(app, tmp_path / "nodes", prepared)
    outcome = session.run(grid, prepared, on_folder=grid.keep_client_states_in, word=WORD)
    assert outcome.rows[-1]["round"] == config.rounds and outcome.rows[-1]["clients"] == config.cohort_size
    assert grid.configs
    RESULTS[choice] = {half for each in grid.configs for half in each.get(wire.HALVES, [])}
    for checking in grid.nodes.values():
        known = checking.ledger._known[grid.terms.nonce]
        assert len(known.asked) <= grid.terms.messages


def test_every_half_was_asked_for() -> None:
    if len(RESULTS) < len([*choices()]) / 2:
        pytest.skip("the runs above were not all made in this process")
    assert set().union(*RESULTS.values()) == set(halves.known())
