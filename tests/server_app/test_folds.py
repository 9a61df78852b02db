"""Folds of the hold-out: several runs hold out each example once, at every client."""

from __future__ import annotations

from pathlib import Path

import pytest
from desk import play

from fedstride.errors import ConfigError
from lab.results.run_folders import load
from server_app.build import client_config
from server_app.config.compose import compose
from server_app.preparation import prepare

SMALL = ("clients=4", "evaluate_clients=true", "rounds=1", "client.local_steps=2", "best=local/loss")


@pytest.mark.slow
def test_each_example_is_held_out_once(tmp_path: Path) -> None:
    sizes = []
    for fold in range(4):
        folder = play(tmp_path, *SMALL, "holdout=0.25", f"fold={fold}", f"name=fold-{fold}").folder
        rows = [row for row in load(folder).clients.rows if row["round"] == 1]
        sizes.append([(row["num-examples"], row["local/num-examples"]) for row in rows])
    for client in zip(*sizes, strict=True):
        (whole,) = {trained + measured for trained, measured in client}
        assert sum(measured for _, measured in client) == whole


def test_the_first_fold_is_what_is_held_out_anyway() -> None:
    def said(*given: str) -> dict[str, object]:
        prepared = prepare(compose([*SMALL, "holdout=0.25", *given]))
        return dict(client_config(prepared.config, prepared.spec))

    assert said() == said("fold=0") and "fold" not in said()
    assert said("fold=3") == {**said(), "fold": 3}


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        (["holdout=0.2", "fold=5"], "0 to 4 with holdout = 0.2"),
        (["holdout=0.3", "fold=3"], "0 to 2 with holdout = 0.3"),
        (["holdout=0", "fold=1"], "0 with holdout = 0"),
        (["fold=1"], "0 with holdout = 0"),
        (["fold=5", "test_set=false"], "0 to 4 with holdout = 0.2"),
        (["holdout=0.2", "fold=-1"], "a whole number"),
    ],
)
def test_a_fold_that_the_share_does_not_have(given: list[str], allowed: str) -> None:
    with pytest.raises(ConfigError, match=rf"fold = -?\d is not allowed: .*{allowed}"):
        prepare(compose(given))
