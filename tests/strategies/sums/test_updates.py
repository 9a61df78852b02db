"""The sums over the clients' updates: the fast ones have the bits of the plain ones, and need little memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import federation as fed
import numpy as np
import pytest
from federation import OPEN
from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Model

from fedstride.arrays.float64_sums import BLOCK, LANES, squared_norm
from fedstride.arrays.named import to_record, views
from fedstride.messages import wire
from strategies import (
    Fedalr,
    FedAvg,
    FedDyn,
    FedLWS,
    FedNNNN,
    Momentum,
    NormAnalysis,
    TwoDLRD,
    fedalr,
    fedavg,
    fedlws,
    fednnnn,
)
from strategies.replies.screening import screen
from strategies.sums import blocks
from strategies.sums.fast_updates import KnownUpdates, Models
from strategies.sums.updates import Updates, updates_of

SIZES = [(), (0,), (1,), (7, 3), (LANES,), (LANES + 1,), (BLOCK - 1,), (BLOCK,), (3, BLOCK + 5)]
SCALES = [0.0, 1e-300, 1e-40, 1.0, 1e30, 1e200]
SPECIAL = [np.nan, np.inf, -np.inf, -0.0]


@st.composite
def ugly(draw: st.DrawFn) -> fed.AnyCohort:
    """Models of all shapes, dtypes, memory orders and magnitudes; some or all clients leave some arrays alone."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    m = draw(st.integers(1, 4))
    forms = draw(st.lists(st.tuples(st.sampled_from(SIZES), st.sampled_from("efd")), min_size=1, max_size=4))
    models: list[Model] = [{} for _ in range(m + 1)]
    for number, (shape, kind) in enumerate(forms):
        scale = draw(st.sampled_from(SCALES))
        still = draw(st.sets(st.integers(1, m)))
        for k, model in enumerate(models):
            with np.errstate(over="ignore"):
                array = np.asarray(scale * rng.standard_normal(shape)).astype(kind)
            if k in still:
                array = models[0][f"layer{number}.weight"].copy()
            if array.size and draw(st.integers(0, 9)) == 0:
                array.flat[draw(st.integers(0, array.size - 1))] = draw(st.sampled_from(SPECIAL))
            model[f"layer{number}.weight"] = np.asarray(array, order=draw(st.sampled_from("CF")))
    examples = draw(st.lists(st.integers(1, 100), min_size=m, max_size=m))
    return fed.AnyCohort(models[0], models[1:], [n / sum(examples) for n in examples])


def all_sums(updates: Updates, shares: Sequence[float]) -> dict[str, Any]:
    """Everything that rules ask for, as bits."""
    with np.errstate(all="ignore"):
        vector = {name: np.asarray(array) for name, array in updates.summed(shares).items()}
        numbers = {
            "squares": [updates.squares(name) for name in updates.names],
            "products": updates.products(vector),
            "distances": [updates.distances(name) for name in updates.names],
        }
        changed = [updates.is_changed(name) for name in updates.names]
    return {"summed": fed.bits(vector), "changed": changed} | {
        name: np.array(values).tobytes() for name, values in numbers.items()
    }


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(ugly())
def test_fast_sums_have_the_bits_of_the_plain_ones(cohort: fed.AnyCohort) -> None:
    sent, models, shares = cohort
    assert all_sums(KnownUpdates(sent, models), shares) == all_sums(Updates(sent, models), shares)


@settings(max_examples=30, deadline=None, database=None, derandomize=True)
@given(ugly())
def test_what_one_pass_reads_is_what_two_read(cohort: fed.AnyCohort) -> None:
    sent, models, shares = cohort
    read = KnownUpdates(sent, models)
    read.read(shares)
    assert all_sums(read, shares) == all_sums(KnownUpdates(sent, models), shares)


def large(m: int = 3, blocks_in_it: int = 14) -> fed.AnyCohort:
    """A model of so many blocks that three threads are used, and some small arrays."""
    rng = np.random.default_rng(0)

    def model() -> Model:
        body = rng.standard_normal((blocks_in_it, BLOCK), np.float32)
        return {"body.weight": body, "body.bias": rng.standard_normal(100), "scale": np.array(1.5)}

    return fed.AnyCohort(model(), [model() for _ in range(m)], [1.0 / m] * m)


def test_no_sum_depends_on_the_number_of_threads() -> None:
    sent, models, shares = large()
    one, two, three = (all_sums(KnownUpdates(sent, models, threads=n), shares) for n in (1, 2, 3))
    assert one == two == three == all_sums(Updates(sent, models), shares)


def test_as_many_threads_work_as_are_asked_for() -> None:
    """Otherwise the test above compares one thread with itself."""
    sent, *_ = large()
    seen: list[int] = []
    todo = blocks.blocks_of(sent, list(sent))
    blocks.on_threads(lambda mine: seen.append(len(list(mine))), todo, 3)
    assert len(seen) == 3
    assert sum(seen) == len(todo)


def test_threads_need_enough_values_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, *_ = large()
    todo = blocks.blocks_of(sent, list(sent))
    monkeypatch.setattr(blocks, "cores", lambda: 4)
    for values_a_thread, arrays, threads in (
        (2**40, 1, 1),
        (len(todo) * BLOCK // 4, 1, 3),
        (len(todo) * BLOCK, 2, 1),
    ):
        monkeypatch.setattr(blocks, "VALUES_A_THREAD", values_a_thread)
        seen: list[int] = []
        blocks.on_threads(lambda mine, seen=seen: seen.append(len(list(mine))), todo, arrays=arrays)
        assert len(seen) == threads


def test_a_block_is_summed_in_lanes() -> None:
    rng = np.random.default_rng(0)
    array = rng.standard_normal(2 * BLOCK + LANES + 3)
    want = 0.0
    for start in range(0, array.size, BLOCK):
        products = [x * x for x in array[start : start + BLOCK]]
        lanes = products[:LANES]
        for i, product in enumerate(products[LANES:]):
            lanes[i % LANES] += product
        want += float(np.add.reduce(np.array(lanes)))
    assert squared_norm(array) == want
    assert squared_norm(array) == pytest.approx(float(np.sum(array.astype(np.longdouble) ** 2)), rel=1e-14)


# ---------------------------------------------------------------- what is known of a cohort


def test_a_sum_is_read_only() -> None:
    sent, models, shares = large(2, 1)
    with pytest.raises(ValueError, match="read-only"):
        KnownUpdates(sent, models).summed(shares)["body.weight"] += 1.0


def test_what_is_known_of_some_models_is_taken_over() -> None:
    sent, models, _ = large(3, 1)
    read = KnownUpdates(sent, models)
    squares = [read.of_client(k) for k in range(3)]
    fewer = read.among([models[2], models[0]])
    assert [fewer.of_client(k) for k in range(2)] == [squares[2], squares[0]]
    assert fewer.of_client(0) is squares[2]
    other = read.among([models[0], dict(models[1])])
    assert [other.of_client(k) for k in range(2)] == squares[:2]


def test_updates_of_other_models_are_the_plain_ones() -> None:
    sent, models, _ = large(2, 1)
    assert type(updates_of(sent, models)) is Updates
    assert type(updates_of(sent, Models.of(models, KnownUpdates(sent, models)))) is KnownUpdates


def test_another_model_that_was_sent_gives_other_updates() -> None:
    sent, models, shares = large(2, 1)
    known = Models.of(models, KnownUpdates(sent, models))
    assert updates_of(dict(sent), known) is known.updates
    other = {name: array + 1.0 for name, array in sent.items()}
    assert all_sums(updates_of(other, known), shares) == all_sums(Updates(other, models), shares)


def test_a_model_that_a_rule_changes_is_read_again() -> None:
    sent, models, shares = large(2, 1)
    known = Models.of(models, KnownUpdates(sent, models))
    all_sums(updates_of(sent, known), shares)
    known[1]["scale"] = np.array(7.0)
    assert all_sums(updates_of(sent, known), shares) == all_sums(Updates(sent, models), shares)


@pytest.mark.parametrize("kind", [Updates, KnownUpdates])
@pytest.mark.parametrize("count", [1, 3])
def test_there_is_a_factor_for_each_model(kind: type[Updates], count: int) -> None:
    sent, models, _ = large(2, 1)
    with pytest.raises(ValueError):
        kind(sent, models).summed([0.5] * count)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_smallest_change_is_a_change(dtype: str) -> None:
    sent = {"w": np.zeros(3, dtype)}
    moved = {"w": np.array([0.0, np.finfo(dtype).smallest_subnormal, 0.0], dtype)}
    for kind in (Updates, KnownUpdates):
        assert kind(sent, [sent, moved]).is_changed("w")
        assert not kind(sent, [sent, {"w": -sent["w"]}]).is_changed("w")  # -0.0 equals 0.0


# ---------------------------------------------------------------- whole strategies


RULES: dict[str, Callable[[], Strategy]] = {
    "fedavg": lambda: FedAvg(**OPEN),
    "uniform": lambda: FedAvg(weighting="uniform", **OPEN),
    "fednnnn": lambda: FedNNNN(**OPEN),
    "per_layer": lambda: FedNNNN(per_layer=True, **OPEN),
    "momentum": lambda: Momentum(**OPEN),
    "fedalr": lambda: Fedalr(**OPEN),
    "feddyn": lambda: FedDyn(num_clients=10, recover=False, **OPEN),  # else it keeps each client's memory
    "fedlws": lambda: FedLWS(FedAvg(**OPEN), beta=5.0),
    "two_d_lrd": lambda: TwoDLRD(FedLWS(FedNNNN(**OPEN), beta=5.0), window=0),
    "norms": lambda: NormAnalysis(FedNNNN(**OPEN)),
}


def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every sum that rules ask for a plain one."""
    monkeypatch.setattr(Models, "of", classmethod(lambda cls, models, read: cls(models)))


def three_rounds(make: Callable[[], Strategy], arrange: Any = fed.backwards) -> list[Any]:
    """The models returned, metrics and state of three rounds."""
    strategy = make()
    done = fed.rounds(strategy, large()[0], fed.noisy(), [1, 2, 3], arrange)
    state = {name: np.asarray(value).tobytes() for name, value in strategy.state_dict().items()}  # type: ignore[attr-defined]
    return [(fed.bits(each.returned or {}), each.metrics) for each in done] + [state]


@pytest.mark.parametrize("name", RULES)
def test_a_strategy_has_the_bits_of_its_plain_sums(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = three_rounds(RULES[name])
    plain(monkeypatch)
    assert three_rounds(RULES[name]) == fast


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_a_strategy_does_not_depend_on_the_number_of_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    monkeypatch.setattr(blocks, "VALUES_A_THREAD", 1)
    for threads in (1, 2, 3):
        monkeypatch.setattr(blocks, "cores", lambda threads=threads: threads)
        results.append(three_rounds(RULES[name]))
    assert results[0] == results[1] == results[2]


@pytest.mark.slow
@pytest.mark.parametrize("bad", [np.nan, 1e30], ids=["not finite", "too long"])
@pytest.mark.parametrize("name", RULES)
def test_a_rejected_reply_leaves_the_bits_of_a_round_without_it(name: str, bad: float) -> None:
    """The sum that was made while it was read is made again."""

    def spoilt(replies: list[Message]) -> list[Message]:
        model = {n: array.copy() for n, array in fed.model_in(replies[1]).items()}
        model["body.weight"][3, 5] = bad
        return [replies[0], fed.reply(fed.NODES[2], model, 30), replies[2]]

    with_it = three_rounds(RULES[name], spoilt)
    without = three_rounds(RULES[name], lambda replies: [replies[0], replies[2]])
    for one, other in zip(with_it[:-1], without[:-1], strict=True):
        assert one[0] == other[0]
        assert one[1].pop("screening/rejected") == 1
        assert other[1].pop("screening/rejected") == 0
        assert one[1] == other[1]


PASSES = {
    "fedavg": 1,
    "uniform": 1,
    "fednnnn": 1,
    "per_layer": 1,
    "momentum": 1,
    "fedalr": 4,  # norms; G; products with G; the step
    "feddyn": 1,
    "fedlws": 2,  # the second for the distances from the mean
    "two_d_lrd": 2,
    "norms": 1,
}


@pytest.mark.parametrize("name", RULES)
def test_how_often_the_replies_are_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []
    one_pass = KnownUpdates._pass

    def counted(self: KnownUpdates, act: Any) -> None:
        passes.append(len(self.models))
        one_pass(self, act)

    monkeypatch.setattr(KnownUpdates, "_pass", counted)
    fed.play(RULES[name](), 1, large()[0], fed.noisy())
    assert passes.count(3) == PASSES[name]


def test_the_rules_are_the_pure_functions_of_plain_sums() -> None:
    sent, models, shares = large()
    fast = screen(
        [fed.reply(k, model, 10) for k, model in enumerate(models, 1)], sent, summed_by="examples"
    ).models
    assert isinstance(fast, Models) and fast.updates is not None
    for rule in (
        lambda models: fedavg.aggregate(sent, models, shares),
        lambda models: (
            fednnnn.aggregate(sent, models, shares, fednnnn.FedNNNNState(), beta=0.7, gamma=0.8).state.next
        ),
        lambda models: fedalr.aggregate(sent, models, fedalr.FedalrState()).model,
    ):
        assert fed.bits(rule(fast)) == fed.bits(rule(models))  # type: ignore[arg-type]
    names = list(sent)
    assert fedlws.lengths(sent, fast, sent, names) == fedlws.lengths(sent, models, sent, names)


# ---------------------------------------------------------------- memory

HALF_A_MILLION = (16, BLOCK)
MODEL_BYTES = 4 * 16 * BLOCK


def peak(make: Callable[[], Strategy], clients: int, order: str) -> int:
    """The most memory that the aggregation of a second round takes beside the replies, in bytes."""
    rng = np.random.default_rng(0)
    sent = {"body.weight": rng.standard_normal(HALF_A_MILLION, np.float32)}
    strategy = make()
    for server_round in (1, 2):
        asked = fed.configure(strategy, server_round, sent, nodes=range(clients))
        record = to_record({"body.weight": np.asarray(sent["body.weight"] * 1.01, order=order)})  # type: ignore[call-overload]
        replies = [
            Message(
                RecordDict({wire.ARRAYS: record, wire.METRICS: MetricRecord({wire.NUM_EXAMPLES: 1})}),
                reply_to=message,
            )
            for message in asked
        ]
        tracemalloc.start()
        returned, _ = strategy.aggregate_train(server_round, replies)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert returned is not None
        sent = views(returned)
    return most


@pytest.mark.slow
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", RULES)
def test_memory_does_not_grow_with_the_clients(name: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "cores", lambda: 1)  # each thread has buffers of a fixed size
    few, many = (peak(RULES[name], clients, order) for clients in (5, 40))
    assert many - few < 0.25 * MODEL_BYTES
    assert many < 14 * MODEL_BYTES
