"""The worst update that is accepted: its candidates, its bound, what it leaves alone, that it is the worst."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from desk import play, table, weights
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedstride.errors import ConfigError
from lab.attacks.attackers import attackers_of, drawn_order
from lab.attacks.judge import Judge
from lab.attacks.worst_update import WITHIN_THE_BOUND, KnownToAttackers, WorstUpdate, directions, longest
from server_app.config.attacks import ATTACKS
from server_app.config.compose import compose
from server_app.records.line_files import read_lines
from strategies.replies.screening_settings import Screening
from strategies.replies.update_lengths import MODEL, STEADY, WITHIN

VECTORS = arrays(np.float64, 6, elements=st.floats(-10, 10, width=32))
SMALL_RUN = ("task=mnist5k", "model=mlp", "model.width=8", "clients=5", "rounds=3", "attack=worst")


def known(seed: int = 0, size: int = 6, clients: int = 3) -> KnownToAttackers:
    rng = np.random.default_rng(seed)
    own, running, random, *honest = rng.standard_normal((3 + clients, size))
    return KnownToAttackers(own, list(honest), running, random)


# ---------------------------------------------------------------- candidates


def test_lengths_fall_by_a_ratio_and_directions_have_both_signs() -> None:
    given_lengths = ATTACKS.make(ATTACKS.config("worst")(lengths=4))
    found = given_lengths.candidates(known(), 2.0)
    assert len(found) == 13 * 4
    sizes = np.array([np.linalg.norm(each) for each in found]).reshape(13, 4)
    assert sizes[:9] == pytest.approx(np.tile([2.0 / 1.5**i for i in range(4)], (9, 1)))
    assert np.all(sizes <= 2.0 * (1 + 1e-12))
    for one, other in ((0, 1), (2, 3), (4, 5), (6, 7)):
        assert np.array_equal(found[4 * one], -found[4 * other])
    assert found[0] == pytest.approx(2.0 * known().update / np.linalg.norm(known().update))


def test_the_other_directions_are_beside_the_mean_and_a_little_along_it() -> None:
    mean = np.mean(known().honest, axis=0)
    for each in directions(known())[9:]:
        assert float(each @ mean) / np.linalg.norm(mean) == pytest.approx(0.1 / np.sqrt(1.01))


@pytest.mark.slow
@given(VECTORS, VECTORS, VECTORS, VECTORS)
def test_every_direction_has_length_one(own: Any, other: Any, running: Any, random: Any) -> None:
    found = directions(KnownToAttackers(own, [other], running, random))
    assert all(np.linalg.norm(each) == pytest.approx(1.0) for each in found)
    assert len(found) <= 13 and all(np.isfinite(each).all() for each in found)


def test_no_direction_of_length_zero() -> None:
    zero = np.zeros(3)
    assert directions(KnownToAttackers(zero, [zero, zero], zero, zero)) == []
    assert len(directions(KnownToAttackers(np.ones(3), [zero], zero, zero))) == 2


# ---------------------------------------------------------------- the bound


@pytest.mark.parametrize(
    ("screening", "learnt", "honest", "attackers", "expected"),
    [
        (
            Screening(),
            {},
            [1.0, 2.0, 3.0, 4.0],
            [7],
            5 * 3.0,
        ),  # the median of five, the attacker's being the longest
        (Screening(), {MODEL: 3.5}, [1.0, 2.0, 3.0, 4.0], [7], 5 * 3.5),
        (Screening(), {MODEL: 1.0}, [1.0, 2.0, 3.0, 4.0], [7], 5 * 2.0),  # it at most doubles
        (Screening(), {MODEL: 3.5, f"{WITHIN}7": STEADY}, [1.0, 2.0, 3.0, 4.0], [7], 10 * 3.5),
        (Screening(), {MODEL: 3.5, f"{WITHIN}7": STEADY}, [1.0, 2.0, 3.0, 4.0], [7, 8], 5 * 3.5),
        (Screening(factor=2.0, burst=1.5), {MODEL: 3.5, f"{WITHIN}7": STEADY}, [1.0], [7], 2 * 3.5),
        (Screening(factor=None), {}, [1.0, 2.0, 3.0, 4.0], [7], 5 * 3.0),
        (Screening(), {}, [1.0], [7, 8, 9], 5 * 1.0),  # most attack: the longest honest one
    ],
)
def test_the_longest(screening: Any, learnt: Any, honest: Any, attackers: Any, expected: float) -> None:
    assert longest(screening, learnt, honest, attackers, 0.0) == pytest.approx(WITHIN_THE_BOUND * expected)


# ---------------------------------------------------------------- runs


@pytest.mark.slow
def test_no_candidate_is_rejected_and_it_is_worse_than_a_reversed_update(tmp_path: Path) -> None:
    found = play(tmp_path, *SMALL_RUN, "name=worst", small=False)
    flipped = play(tmp_path, *SMALL_RUN, "attack=sign_flip", "name=flip", small=False)
    honest = play(tmp_path, *SMALL_RUN, "attack=none", "name=none", small=False)
    assert all(row["status"] == "used" for row in read_lines(found.folder / "clients.jsonl"))
    losses = [each.rows[-1]["test/loss"] for each in (found, flipped, honest)]
    assert losses == sorted(losses, reverse=True) and losses[0] > 1.2 * losses[2]


class Tried(Judge):
    """Says what it found, and looks whether anything of the strategy has changed."""

    found: list[float] = []  # noqa: RUF012

    def loss(self, server_round: int, replies: Any) -> float:
        before = copy.deepcopy(self.strategy.state_dict())
        loss = super().loss(server_round, replies)
        after = self.strategy.state_dict()
        assert before.keys() == after.keys()
        assert all(np.array_equal(before[key], after[key]) for key in before)
        self.found.append(loss)
        return loss


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["fednnnn", "fedmedian", "fedavg+fedlws+two_d_lrd"])
def test_the_round_gives_what_was_found_and_trying_changes_nothing(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.attacks.attacked.Judge", Tried)
    monkeypatch.setattr(Tried, "found", [])
    given_run = (*SMALL_RUN, f"strategy={strategy}", "attack.lengths=2", "evaluate_every=1", "rounds=2")
    last = play(tmp_path, *given_run, small=False).rows[-1]
    half = len(Tried.found) // 2
    assert half > 10 and "screening/rejected" in last and last["screening/rejected"] == 0
    if strategy != "fednnnn":  # it evaluates another model than the one that it sends
        assert last["test/loss"] == max(Tried.found[half:])


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["scaffold", "fednnnn"])
def test_the_bits_do_not_depend_on_the_workers(strategy: str, tmp_path: Path) -> None:
    given_run = (*SMALL_RUN, f"strategy={strategy}", "attack.lengths=2", "rounds=2")
    runs = [play(tmp_path, *given_run, f"name={n}", workers=n, small=False).folder for n in (0, 2)]
    assert weights(runs[0]) == weights(runs[1]) and table(runs[0]) == table(runs[1])


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["attack=worst", "privacy=server_side"], r"attack = 'worst' .*with privacy"),
        (["attack=worst", "attack.clients=2", "attack.place=3"], r"attack\.place = 3 .*at most 2 with 2 of 4"),
        (["attack=sign_flip", "attack.place=4"], r"attack\.place = 4 .*at most 3"),
        (["attack=worst", "attack.lengths=0"], r"attack\.lengths = 0"),
    ],
)
def test_mistakes(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compose(["clients=4", *overrides])


def test_it_needs_a_test_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"attack = 'worst' .*no test set"):
        play(tmp_path, "attack=worst", "test_set=false")


def test_places_are_other_clients() -> None:
    chosen = [attackers_of(compose(["clients=6", "attack=mimic", f"attack.place={place}"])) for place in range(6)]
    assert [client for (client,) in chosen] == drawn_order(compose([]).seed, 6)


def test_worst_is_its_class() -> None:
    assert isinstance(ATTACKS.make(ATTACKS.config("worst")()), WorstUpdate)
