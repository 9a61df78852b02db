"""Runs with attackers: bits with workers and on resume, what reaches the server, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from desk import play, table, weights, whole_and_resumed
from flwr.app import Context, RecordDict

from fedstride.errors import ConfigError
from lab.attacks.attackers import attackers_of
from lab.engine.sweep_combinations import plan
from server_app.app import main as server_main
from server_app.config.attacks import ATTACKS
from server_app.config.compose import compose, from_yaml, to_yaml
from server_app.records.line_files import read_lines

FIVE = ("clients=5", "rounds=2", "client.local_steps=2")
SETTINGS = {"alie": ("attack.clients=2",), "scaled": ("attack.factor=3",), "worst": ("attack.lengths=2",)}
ALL = [name for name in ATTACKS if name != "none"]


def used(folder: Path) -> list[tuple[int, str]]:
    return [(row["client"], row["status"]) for row in read_lines(folder / "clients.jsonl")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_the_bits_do_not_depend_on_the_workers(name: str, tmp_path: Path) -> None:
    given = (*FIVE, f"attack={name}", *SETTINGS.get(name, ()), "strategy=scaffold")
    runs = [play(tmp_path, *given, f"name={n}", workers=n).folder for n in (0, 2)]
    assert weights(runs[0]) == weights(runs[1])
    assert table(runs[0]) == table(runs[1])
    assert used(runs[0]) == used(runs[1])
    honest = play(tmp_path, *FIVE, "strategy=scaffold", "name=honest").folder
    # SCAFFOLD's mean is uniform, so only this lie has no effect on it.
    assert (weights(runs[0]) == weights(honest)) == (name == "many_examples")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ipm", "label_flip"])
def test_a_resumed_run_has_the_same_bits(name: str, tmp_path: Path) -> None:
    whole, resumed = whole_and_resumed(tmp_path, f"attack={name}", "clients=5", "rounds=4", "cohort=3")
    assert weights(whole) == weights(resumed)
    assert table(whole) == table(resumed)


@pytest.mark.slow
def test_the_first_round_by_hand(tmp_path: Path) -> None:
    """FedAvg with equal sizes: the mean of three honest updates and two reversed ones."""
    one = ("clients=5", "rounds=1", "partition=iid", "strategy=fedavg", "screening.factor=1e6")
    honest = arrays(play(tmp_path, *one, "name=honest").folder)
    flipped = arrays(play(tmp_path, *one, "attack=sign_flip", "attack.clients=2", "name=flip").folder)
    ipm = arrays(play(tmp_path, *one, "attack=ipm", "attack.clients=2", "name=ipm").folder)
    start = arrays(play(tmp_path, *one, "client.lr=1e-30", "name=start").folder)
    config = compose(["clients=5"])
    assert len(attackers_of(compose(["clients=5", "attack=sign_flip", "attack.clients=2"]))) == 2
    assert attackers_of(config) == []
    for key, w in start.items():
        whole, with_flip = 5 * (honest[key] - w), 5 * (flipped[key] - w)
        of_attackers = (whole - with_flip) / 2  # their honest updates
        of_honest = whole - of_attackers
        assert 5 * (ipm[key] - w) == pytest.approx(of_honest - 2 * 0.5 * of_honest / 3, abs=1e-6), key


def arrays(folder: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return {key: array.astype(np.float64) for key, array in load_file(folder / "model.safetensors").items()}


def test_the_screening_rejects_a_scaled_update_as_in_real_life(tmp_path: Path) -> None:
    given = ["attack=scaled", "attack.factor=1e6", "strategy=fedavg", *FIVE]
    folder = play(tmp_path, *given).folder
    (attacker,) = attackers_of(compose(given))
    rejected = {client for client, status in used(folder) if status == "rejected"}
    assert rejected == {attacker}


@pytest.mark.slow
def test_a_part_of_the_clients_and_no_attacker_in_a_round(tmp_path: Path) -> None:
    rows = play(tmp_path, "clients=6", "cohort=1", "rounds=4", "attack=mimic", "attack.clients=3").rows
    assert [row["clients"] for row in rows[1:]] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["attack=sign_flip", "attack.clients=4"], r"attack\.clients = 4 .*at most 3.*at least one is honest"),
        (["attack=alie", "attack.clients=1"], r"attack\.clients = 1 .*at least 2 for alie"),
        (["attack=sign"], r"unknown attack 'sign'.*'sign_flip'"),
        (["attack=ipm", "attack.epsilon=0"], r"attack\.epsilon = 0"),
        (["attack=none", "attack.clients=2"], r"attack\.clients"),
    ],
)
def test_mistakes(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compose(["clients=4", *overrides])


def test_a_task_without_classes_has_no_labels_to_flip(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="attack = 'label_flip' is not allowed"):
        play(tmp_path, "task=diabetes", "attack=label_flip")


@pytest.mark.slow
def test_a_sweep_names_its_runs_by_the_attack(tmp_path: Path) -> None:
    jobs = plan([f"out={tmp_path}", "attack=none,sign_flip,scaled", "seed=1,2"]).jobs
    assert len({job.folder for job in jobs}) == 6
    assert [job.config.attack.name for job in jobs[::2]] == ["none", "sign_flip", "scaled"]
    assert "sign_flip" in jobs[2].folder.name


def test_a_configuration_from_before_has_no_attack() -> None:
    text = to_yaml(compose())
    start = text.index("attack:\n")
    end = text.index("\n", text.index("name: none", start)) + 1
    assert from_yaml(text[:start] + text[end:]) == compose()


class NoGrid:
    """Fails at every use."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_flower_runs_have_no_attackers(tmp_path: Path, call: Any) -> None:
    said = "attack = 'ipm' is not allowed: attack must be none here"
    context = Context(1, 1, {}, RecordDict(), {"attack": "ipm", "out": str(tmp_path)})
    with pytest.raises(ConfigError, match=said):
        server_main(NoGrid(), context)
    for command in (["simulate"], ["submit", "--address", "127.0.0.1:1", "--insecure"]):
        code, out, err = call(*command, "attack=ipm", f"out={tmp_path}")
        assert code == 2 and said in out + err
    assert not any(tmp_path.iterdir())
