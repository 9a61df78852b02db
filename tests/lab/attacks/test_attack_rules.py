"""The attacks as functions: against independent sums, ugly input, and who knows what."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, MessageType, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from fedstride.arrays.named import to_record, views
from fedstride.flower import identity
from fedstride.messages import wire
from lab.attacks.attackers import drawn_order
from lab.attacks.attacking_grid import replace, updates_in
from lab.attacks.rules import Attack, Present, z_max
from server_app.config.attacks import ATTACKS

PRESENT = Present(attackers=(1, 4), honest=(0, 2, 3), order=(4, 3, 1, 0, 2))
NUMBERS = st.floats(-1e15, 1e15, allow_nan=False)


def made(name: str, **settings: Any) -> Attack:
    attack: Attack = ATTACKS.make(ATTACKS.config(name)(**settings))
    return attack


def rows(*values: list[float]) -> list[np.ndarray]:
    return [np.array(each, dtype=np.float64) for each in values]


OWN, KNOWN = np.array([1.0, -2.0]), rows([1.0, -2.0], [3.0, 2.0])


@pytest.mark.parametrize(
    ("attack", "expected"),
    [
        (made("sign_flip"), [-1.0, 2.0]),
        (made("scaled", factor=-30.0), [-30.0, 60.0]),
        (made("alie", z=0.5), [2.0 - 0.5 * 1.0, 0.0 - 0.5 * 2.0]),
        (made("alie", z=2.0, knowledge="honest"), [0.0, -4.0]),
        (made("ipm", epsilon=0.25), [-0.5, 0.0]),
        (made("mimic"), [1.0, -2.0]),
        (made("label_flip"), [1.0, -2.0]),
        (made("many_examples"), [1.0, -2.0]),
    ],
)
def test_by_hand(attack: Attack, expected: list[float]) -> None:
    assert attack.update(OWN, KNOWN, PRESENT).tolist() == expected


@given(st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=1, max_size=6), st.floats(1e-3, 10))
def test_alie_is_the_mean_minus_z_population_deviations(updates: list[list[float]], z: float) -> None:
    got = made("alie", z=z).update(np.zeros(3), rows(*updates), PRESENT)
    for j, value in enumerate(got):
        column = [each[j] for each in updates]
        mean = math.fsum(column) / len(column)
        deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in column) / len(column))
        assert value == pytest.approx(mean - z * deviation, rel=1e-9, abs=1e-9 * max(map(abs, column)))


@given(st.lists(NUMBERS, min_size=4, max_size=4), st.integers(1, 5))
def test_identical_updates(update: list[float], count: int) -> None:
    """Of identical clients, alie and mimic are honest, and ipm is a reversed step."""
    known = rows(*[update] * count)
    scale = 1e-9 * max(map(abs, update))
    assert made("alie", z=2.0).update(known[0], known, PRESENT) == pytest.approx(update, abs=scale)
    assert made("mimic").update(known[0], known, PRESENT).tolist() == update
    assert made("ipm").update(known[0], known, PRESENT) == pytest.approx(-0.5 * np.array(update), abs=scale)


@given(st.permutations(range(4)), st.lists(st.lists(NUMBERS, min_size=2, max_size=2), min_size=4, max_size=4))
def test_the_order_of_the_known_ones_does_not_matter(order: list[int], updates: list[list[float]]) -> None:
    scale = 1e-9 * max(abs(x) for row in updates for x in row)
    for name in ("alie", "ipm"):
        plain = made(name).update(OWN, rows(*updates), PRESENT)
        assert made(name).update(OWN, rows(*[updates[i] for i in order]), PRESENT) == pytest.approx(
            plain, abs=scale
        )


@pytest.mark.parametrize(
    ("clients", "attackers", "share"), [(50, 12, 24 / 38), (50, 24, 24 / 26), (10, 3, 4 / 7), (11, 5, 5 / 6)]
)
def test_z_max(clients: int, attackers: int, share: float) -> None:
    """The normal distribution is below z with this probability."""
    assert 0.5 * (1 + math.erf(z_max(clients, attackers) / math.sqrt(2))) == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize(("clients", "attackers"), [(10, 2), (5, 1), (1, 1), (4, 4), (6, 5)])
def test_z_max_is_zero_if_no_positive_z_exists(clients: int, attackers: int) -> None:
    assert z_max(clients, attackers) == 0.0
    present = Present(tuple(range(attackers)), tuple(range(attackers, clients)), ())
    assert made("alie", z=0.0).update(OWN, KNOWN, present).tolist() == [2.0, 0.0]


def test_who_is_known() -> None:
    assert made("alie").known(PRESENT) == (1, 4) == made("ipm", knowledge="attackers").known(PRESENT)
    assert made("ipm").known(PRESENT) == (0, 2, 3) == made("alie", knowledge="honest").known(PRESENT)
    assert made("mimic").known(PRESENT) == [3]
    assert made("mimic").known(Present((1,), (), (0, 1))) == []
    assert not made("sign_flip").known(PRESENT)


def test_the_attackers_depend_on_the_seed_only() -> None:
    assert sorted(drawn_order(1, 20)) == list(range(20))
    assert drawn_order(1, 20) == drawn_order(1, 20) != drawn_order(2, 20)


# ---------------------------------------------------------------- a reply


def exchanged(arrays: dict[str, Any], **others: Any) -> tuple[Message, Message]:
    """A message with a model of zeros and ones, and its reply."""
    start = {name: np.ones_like(array) for name, array in arrays.items()}
    sent = Message(RecordDict({wire.ARRAYS: to_record(start)}), dst_node_id=2, message_type=MessageType.TRAIN)
    identity.stamp(sent)
    content = RecordDict(
        {wire.ARRAYS: to_record(arrays), **{key: to_record(each) for key, each in others.items()}}
    )
    content[wire.METRICS] = MetricRecord({wire.NUM_EXAMPLES: 40, "train/loss": 0.5})
    return sent, Message(content=content, reply_to=sent)


MODEL = {
    "w": np.float32([3.0, 0.0]),
    "bn.running_var": np.float32([7.0, 8.0]),
    "bn.num_batches_tracked": np.array(5),
}


def crafted(attack: Attack, known: Any = ()) -> Message:
    identity.set_identity()
    sent, reply = exchanged(MODEL, **{"half.delta": {"w": np.float32([4.0, 6.0])}})
    return replace(attack, sent, reply, updates_in(sent, reply), known, PRESENT)


def test_a_reply_keeps_buffers_dtypes_and_metrics_and_its_other_records_are_attacked_too() -> None:
    reply = crafted(made("scaled", factor=-2.0))
    arrays = views(reply.content.array_records[wire.ARRAYS])
    assert list(arrays) == list(MODEL)
    assert arrays["w"].tolist() == [1.0 - 2.0 * 2.0, 1.0 + 2.0] and arrays["w"].dtype == np.float32
    assert all((arrays[name] == MODEL[name]).all() for name in MODEL if name != "w")
    assert views(reply.content.array_records["half.delta"])["w"].tolist() == [-8.0, -12.0]
    assert dict(reply.content.metric_records[wire.METRICS]) == {wire.NUM_EXAMPLES: 40, "train/loss": 0.5}


def test_a_lie_about_examples_changes_nothing_else() -> None:
    reply = crafted(made("many_examples", factor=12.5))
    assert reply.content.metric_records[wire.METRICS][wire.NUM_EXAMPLES] == 500
    assert (views(reply.content.array_records[wire.ARRAYS])["w"] == MODEL["w"]).all()


@pytest.mark.parametrize("name", ["alie", "ipm", "mimic"])
def test_if_nothing_is_known_the_reply_is_honest(name: str) -> None:
    reply = crafted(made(name))
    assert (views(reply.content.array_records[wire.ARRAYS])["w"] == MODEL["w"]).all()


def test_huge_updates_become_infinite_and_raise_nothing() -> None:
    identity.set_identity()
    sent, reply = exchanged({"w": np.float32([3e38, 0.0])})
    with np.errstate(over="ignore"):
        got = replace(made("scaled", factor=1e3), sent, reply, updates_in(sent, reply), (), PRESENT)
    assert views(got.content.array_records[wire.ARRAYS])["w"].tolist()[0] == math.inf
