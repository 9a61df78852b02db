"""What every strategy promises, whatever its rule: order, quorum, state, sampling, refusals, imports."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from typing import Any

import federation as fed
import flwr.serverapp.strategy as flwr
import numpy as np
import pytest
from all_strategies import (
    ALL,
    BUILT_IN,
    OURS,
    each_of_ours,
    every,
    make_model,
    same,
)
from federation import NODES, OPEN
from flwr.app import ConfigRecord, Message, MetricRecord
from flwr.serverapp.strategy import Strategy
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

import strategies
from fedstride.arrays.named import to_record, views
from fedstride.errors import ConfigError, RunError
from strategies import (
    AWD,
    LDAWA,
    AdaDecay,
    Fedalr,
    FedAvg,
    FedDisco,
    FedDyn,
    FedLWS,
    FedMGDAPlus,
    FedNNNN,
    FedNova,
    Momentum,
    NormAnalysis,
    NormNorm,
    QFedAvg,
    Scaffold,
    TwoDLRD,
)
from strategies.replies.screening_settings import Screening


def frozen(state: dict[str, Any]) -> dict[str, Any]:
    return {k: fed.bits({"": v}) if isinstance(v, np.ndarray) else v for k, v in state.items()}


# ---------------------------------------------------------------- order


@every
def test_the_order_of_replies_never_changes_bits(name: str) -> None:
    runs = []
    for order in ((0, 1, 2), (2, 0, 1), (1, 0, 2), (2, 1, 0)):
        arrange = lambda replies, order=order: [replies[i] for i in order]  # noqa: E731
        runs.append(fed.rounds(ALL[name](), make_model(), fed.noisy(), [1, 2], arrange))
    for run in runs[1:]:
        same(runs[0], run)


@every
def test_the_order_of_arrays_in_a_reply_never_changes_bits(name: str) -> None:
    def turned(sent: Model, server_round: int) -> list[Model]:
        return [dict(reversed(model.items())) for model in fed.noisy()(sent, server_round)]

    want = fed.rounds(ALL[name](), make_model(), fed.noisy(), [1, 2])
    same(want, fed.rounds(ALL[name](), make_model(), turned, [1, 2]))
    assert all(list(done.returned or {}) == list(make_model()) for done in want)


@fed.PROPERTY
@given(st.permutations(range(6)), st.sampled_from(sorted(OURS)), st.integers(0, 99))
def test_any_order_of_six_clients(order: list[int], name: str, seed: int) -> None:
    model = make_model(seed=seed)
    clients = fed.noisy(seed, 6)(model, 1)
    got = []
    for places in (range(6), order):
        strategy = ALL[name]()
        message = fed.configure(strategy, 1, model)[0]
        arrived = [fed.reply(n + 1, clients[n], 7 * (n + 1), {"loss": 0.1 * (n + 1)}, to=message) for n in places]
        record, metrics = strategy.aggregate_train(1, iter(arrived))  # an iterator, too
        got.append((fed.bits(views(record)), dict(metrics)))
    assert got[0] == got[1]


# ---------------------------------------------------------------- too few replies


@pytest.mark.parametrize(
    ("name", "left"), [*((name, 1) for name in ALL), ("FedLWS(FedAvgM)", 0), ("TwoDLRD(FedLWS(FedNNNN))", 0)]
)
def test_below_the_quorum_nothing_changes(name: str, left: int) -> None:
    strategy, twin = ALL[name](quorum=2), ALL[name](quorum=2)
    first = fed.rounds(strategy, make_model(), fed.noisy(), [1, 2])
    fed.rounds(twin, make_model(), fed.noisy(), [1, 2])
    model = first[-1].returned
    assert model is not None
    before = frozen(strategy.state_dict())

    def few(replies: list[Message]) -> list[Message]:
        return [*replies[:left], fed.failure(1), fed.failure(2)]

    skipped = fed.play(strategy, 3, model, fed.noisy(), few)
    assert skipped.returned is None
    asked = {"screening/not_done": 0} if strategy.expected.halves else {}
    assert skipped.metrics == {"screening/rejected": 2, **asked}
    assert frozen(strategy.state_dict()) == before
    same(fed.rounds(strategy, model, fed.noisy(), [4]), fed.rounds(twin, model, fed.noisy(), [4]))


@every
def test_the_quorum_is_enough(name: str) -> None:
    done = fed.play(ALL[name](quorum=2), 1, make_model(), fed.noisy(), lambda replies: replies[:2])
    assert done.returned is not None


# ---------------------------------------------------------------- ugly input


@every
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_one_client_and_every_dtype(name: str, dtype: str) -> None:
    start = make_model(dtype)
    for done in fed.rounds(ALL[name](), start, fed.noisy(m=1), [1, 2]):
        assert done.returned is not None
        for model in (done.sent, done.returned):
            assert [(n, a.dtype, a.shape) for n, a in model.items()] == [
                (n, a.dtype, a.shape) for n, a in start.items()
            ]
            assert all(np.isfinite(array).all() for array in model.values())


@each_of_ours
def test_updates_of_zero_change_nothing(name: str) -> None:
    start = make_model()
    for done in fed.rounds(ALL[name](), start, fed.idle, [1, 2]):
        assert done.returned is not None
        assert fed.bits(done.sent) == fed.bits(done.returned) == fed.bits(start)


@pytest.mark.parametrize("name", BUILT_IN)
def test_updates_of_zero_change_nothing_but_rounding_in_flowers_own(name: str) -> None:
    start = make_model()
    for done in fed.rounds(ALL[name](), start, fed.idle, [1, 2]):
        assert done.returned is not None
        fed.assert_close(done.returned, start, start)


@every
def test_a_model_of_zeros_and_a_layer_of_zeros(name: str) -> None:
    start = {n: np.zeros_like(array) for n, array in make_model().items()}
    partly = make_model() | {"fc.weight": start["fc.weight"], "fc.bias": start["fc.bias"]}
    for model in (start, partly):
        for done in fed.rounds(ALL[name](), model, fed.noisy(), [1, 2]):
            assert done.returned is not None
            assert all(np.isfinite(array).all() for array in done.returned.values())
            assert all(np.isfinite(np.asarray(value, float)).all() for value in done.metrics.values())
            assert np.abs(done.returned["fc.weight"]).max() > 0.0


@pytest.mark.parametrize(
    "make",
    [FedAvg, FedNNNN, Fedalr, lambda **o: FedLWS(flwr.FedAdam(**o)), lambda **o: TwoDLRD(FedLWS(FedNNNN(**o)))],
)
def test_arrays_without_dimensions_keep_their_form_and_are_restored(make: Any) -> None:
    start = fed.make_model() | {"bn1.num_batches_tracked": np.array(7), "temperature": np.array(2.0, np.float32)}
    strategy = make(**OPEN)
    for done in fed.rounds(strategy, start, fed.noisy()):
        assert done.returned is not None
        assert [(n, a.dtype, a.shape) for n, a in done.returned.items()] == [
            (n, a.dtype, a.shape) for n, a in start.items()
        ]
    assert all(type(value) in (np.ndarray, int, float, str) for value in strategy.state_dict().values())
    fresh = make(**OPEN)
    fresh.load_state_dict(strategy.state_dict())
    got, want = (fed.play(one, 5, done.returned, fed.noisy()) for one in (fresh, strategy))
    assert fed.bits(got.returned) == fed.bits(want.returned)


@every
def test_opposing_updates_are_finite(name: str) -> None:
    """N is exactly 0, or next to nothing."""
    start = {n: array for n, array in make_model(np.float64).items() if array.dtype == np.float64}

    def opposing(sent: Model, server_round: int) -> list[Model]:
        return [{n: a + sign for n, a in sent.items()} for sign in (0.5, -0.5)]

    for done in fed.rounds(ALL[name](), start, opposing, [1, 2]):
        assert done.returned is not None
        assert all(np.isfinite(array).all() for array in (*done.returned.values(), *done.sent.values()))


@every
def test_replies_and_the_model_given_are_never_modified(name: str) -> None:
    strategy, start = ALL[name](), make_model()
    record = to_record(start)
    bytes_before = [(n, array.data) for n, array in record.items()]
    message = next(iter(strategy.configure_train(1, record, ConfigRecord(), fed.MemoryGrid())))
    replies = [
        fed.reply(node, model, 10, {"loss": 1.0, f"only{node}": 2.0}, to=message)
        for node, model in enumerate(fed.noisy()(start, 1), 1)
    ]
    before = [fed.fingerprint(message) for message in replies]
    result, _ = strategy.aggregate_train(1, replies)
    assert result is not None
    assert [fed.fingerprint(message) for message in replies] == before
    assert [(n, array.data) for n, array in record.items()] == bytes_before


@pytest.mark.filterwarnings("ignore::UserWarning")  # numpy's reader of odd headers
@fed.PROPERTY
@given(
    st.sampled_from(sorted(ALL)),
    st.data(),
    st.booleans(),
)
def test_aggregating_never_raises(name: str, data: st.DataObject, with_good: bool) -> None:
    strategy, start = ALL[name](), make_model()
    message = fed.configure(strategy, 1, start)[0]
    odd = [data.draw(fed.anything(node, start, finite=True, to=message)) for node in (1, 2)]
    good = [
        fed.reply(3 + k, model, 10, {"loss": 1.0}, to=message) for k, model in enumerate(fed.noisy()(start, 1))
    ]
    with np.errstate(all="ignore"):
        record, metrics = strategy.aggregate_train(1, [*odd, *(good if with_good else [])])
    assert metrics["screening/rejected"] in (0, 1, 2)
    assert record is not None or not with_good
    if record is not None:
        got = views(record)
        assert [(n, a.dtype, a.shape) for n, a in got.items()] == [(n, a.dtype, a.shape) for n, a in start.items()]


@pytest.mark.parametrize(
    "make", [FedAvg, FedNNNN, lambda **o: FedLWS(flwr.FedAvg(**o)), lambda **o: TwoDLRD(FedLWS(FedAvg(**o)))]
)
@pytest.mark.parametrize(
    "odd",
    [
        {"num-examples": 10, "loss": 1.0, "extra": 2.0},
        {"num-examples": 0, "loss": 1.0},
        {"num-examples": math.nan, "loss": 1.0},
        {"num-examples": [1], "loss": 1.0},
        {"loss": 1.0},
    ],
)
def test_odd_evaluations_never_end_the_run(make: Any, odd: Any) -> None:
    good = {"num-examples": 10, "loss": 1.0}
    reported = [fed.answer(n, {"metrics": MetricRecord(m)}) for n, m in enumerate((good, odd), 1)]
    assert dict(make(**OPEN).aggregate_evaluate(1, reported) or {})["loss"] == pytest.approx(1.0)
    assert not make(**OPEN).aggregate_evaluate(1, [fed.answer(1, {}), fed.failure(2)])


# ---------------------------------------------------------------- state


def written_and_read(state: dict[str, Any]) -> dict[str, Any]:
    """As a checkpoint has it: arrays as bytes, the rest as JSON."""
    copy = {}
    for key, value in state.items():
        if isinstance(value, np.ndarray):
            stream = io.BytesIO()
            np.save(stream, value, allow_pickle=False)
            copy[key] = np.load(io.BytesIO(stream.getvalue()), allow_pickle=False)
        else:
            copy[key] = json.loads(json.dumps(value))
    return copy


@every
@pytest.mark.parametrize("after", [0, 2])
def test_a_restored_strategy_goes_on_with_the_same_bits(name: str, after: int) -> None:
    strategy, model = ALL[name](), make_model()
    for done in fed.rounds(strategy, model, fed.noisy(), range(1, after + 1)):
        assert done.returned is not None
        model = done.returned
    kept = written_and_read(strategy.state_dict())
    rest = range(after + 1, after + 3)
    fresh = ALL[name]()
    fresh.load_state_dict(kept)
    assert frozen(fresh.state_dict()) == frozen(kept)
    unbroken = fed.rounds(strategy, model, fed.noisy(), rest)
    same(unbroken, fed.rounds(fresh, model, fed.noisy(), rest))
    assert frozen(fresh.state_dict()) == frozen(strategy.state_dict())


@every
def test_restoring_replaces_all_that_was_there(name: str) -> None:
    """A used object becomes the one that was saved, also one saved before its first round."""
    empty = ALL[name]().state_dict()
    strategy = ALL[name]()
    first = fed.rounds(strategy, make_model(), fed.noisy(), [1, 2])
    kept = strategy.state_dict()
    used = ALL[name]()
    fed.rounds(used, make_model(), fed.noisy(seed=5), [1, 2])
    used.load_state_dict(kept)
    assert frozen(used.state_dict()) == frozen(kept)
    model = first[-1].returned
    assert model is not None
    same(fed.rounds(strategy, model, fed.noisy(), [3]), fed.rounds(used, model, fed.noisy(), [3]))
    used.load_state_dict(empty)
    assert frozen(used.state_dict()) == frozen(empty)


@every
def test_state_is_a_flat_dict_of_arrays_and_plain_values(name: str) -> None:
    strategy = ALL[name]()
    fed.rounds(strategy, make_model(), fed.noisy(), [1, 2])
    for key, value in strategy.state_dict().items():
        assert type(key) is str
        assert type(value) in (np.ndarray, int, float, str), key
        assert not isinstance(value, np.ndarray) or not value.dtype.hasobject


@every
def test_a_state_taken_does_not_change_with_later_rounds(name: str) -> None:
    strategy = ALL[name]()
    first = fed.rounds(strategy, make_model(), fed.noisy(), [1, 2])
    kept = strategy.state_dict()
    before = frozen(kept)
    fed.rounds(strategy, first[-1].returned or {}, fed.noisy(), [3])
    assert frozen(kept) == before


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("FedNNNN", {"momentum/scale", "next/scale", "next/bn1.running_var"}),
        ("Momentum", {"momentum/scale"}),
        ("Fedalr", {"aggregated", "gradient/scale"}),
        ("TwoDLRD", {"S", "d", "r", "r_0", "previous/scale"}),
        ("FedLWS(FedNNNN)", {"inner/momentum/scale", "inner/next/scale"}),
        ("TwoDLRD(FedLWS(FedNNNN))", {"S", "previous/scale", "inner/inner/next/scale"}),
        ("FedLWS(FedAdam)", {"inner/0.m_t/scale", "inner/0.v_t/scale"}),
        ("FedLWS(FedAvgM)", {"inner/0.momentum_vector#000000"}),
        ("NormAnalysis(FedAvgM)", {"path", "inner/0.momentum_vector#000000"}),
    ],
)
def test_names_in_the_state(name: str, keys: set[str]) -> None:
    strategy = ALL[name]()
    fed.rounds(strategy, make_model(), fed.noisy(), [1, 2])
    assert keys <= set(strategy.state_dict())


@each_of_ours
def test_a_first_round_starts_afresh(name: str) -> None:
    """One object serves several runs."""
    strategy = ALL[name]()
    one = fed.rounds(strategy, make_model(), fed.noisy(), [1, 2, 3])
    same(one, fed.rounds(strategy, make_model(), fed.noisy(), [1, 2, 3]))


# ---------------------------------------------------------------- messages and sampling


@every
def test_messages_to_train(name: str) -> None:
    config = ConfigRecord({"lr": 0.1})
    messages = fed.configure(ALL[name](), 7, make_model(), config)
    assert sorted(message.metadata.dst_node_id for message in messages) == sorted(NODES)
    for message in messages:
        assert message.metadata.message_type == "train"
        assert fed.bits(fed.model_in(message)) == fed.bits(make_model())
        assert message.content["config"]["server-round"] == 7
        assert message.content["config"]["lr"] == 0.1
    assert dict(config) == {"lr": 0.1}


@each_of_ours
def test_configuring_gives_a_list_in_the_order_of_nodes(name: str) -> None:
    """A deployment's Grid goes through the messages twice."""
    strategy = ALL[name]()
    for configure in (strategy.configure_train, strategy.configure_evaluate):
        messages = configure(1, to_record(make_model()), ConfigRecord(), fed.MemoryGrid())
        assert isinstance(messages, list)
        assert [message.metadata.dst_node_id for message in messages] == sorted(NODES)
        assert {message.metadata.group_id for message in messages} == {"1"}


def drawn(server_round: int, nodes: Any = range(20), seed: int = 0, **options: Any) -> list[int]:
    strategy = FedAvg(seed=seed, **({"fraction_train": 0.4} | OPEN | options))
    messages = fed.configure(strategy, server_round, make_model(), nodes=nodes)
    return [message.metadata.dst_node_id for message in messages]


def test_the_cohort_is_drawn_from_seed_and_round_over_sorted_nodes() -> None:
    nodes = [5 * n + 3 for n in range(20)]
    cohort = drawn(5, nodes)
    assert len(cohort) == 8
    assert cohort == sorted(set(cohort)) and set(cohort) <= set(nodes)
    assert drawn(5, nodes[::-1]) == cohort  # whatever order the grid has
    assert [nodes.index(n) for n in cohort] == drawn(5)  # by place, not by id
    assert drawn(6, nodes) != cohort
    assert drawn(5, nodes, seed=1) != cohort


def test_round_five_can_be_drawn_alone() -> None:
    strategy = FedAvg(seed=3, fraction_train=0.4, **OPEN)
    for server_round in range(1, 6):
        messages = fed.configure(strategy, server_round, make_model(), nodes=range(20))
    assert [message.metadata.dst_node_id for message in messages] == drawn(5, seed=3)


def test_the_cohort_does_not_touch_global_generators() -> None:
    import random

    random.seed(0)
    np.random.seed(0)
    want = random.random(), np.random.random()
    random.seed(0)
    np.random.seed(0)
    drawn(1)
    assert (random.random(), np.random.random()) == want


def test_every_node_is_drawn_in_the_long_run() -> None:
    times = np.zeros(20)
    for server_round in range(1, 101):
        times[drawn(server_round)] += 1
    assert times.sum() == 800
    assert times.min() > 20 and times.max() < 60  # 40 expected, standard deviation 4.9


@pytest.mark.parametrize(
    ("nodes", "fraction", "least", "size"),
    [
        (20, 0.4, 1, 8),
        (20, 0.4, 10, 10),
        (10, 0.29, 1, 2),
        (10, 0.3, 1, 3),
        (100, 0.29, 1, 29),
        (3, 0.1, 1, 1),
        (3, 1.0, 1, 3),
    ],
)
def test_the_size_of_the_cohort(nodes: int, fraction: float, least: int, size: int) -> None:
    assert len(drawn(1, range(nodes), fraction_train=fraction, min_train_nodes=least)) == size


def test_evaluation_is_drawn_apart_and_carries_the_returned_model() -> None:
    strategy = FedNNNN(fraction_train=0.4, fraction_evaluate=0.4, **OPEN)
    model, other = make_model(), make_model(seed=1)
    train = fed.configure(strategy, 1, model, nodes=range(20))
    strategy.aggregate_train(1, [fed.reply(1, w_k) for w_k in fed.noisy(m=1)(model, 1)])
    config = ConfigRecord({"a": 1})
    evaluate = strategy.configure_evaluate(1, to_record(other), config, fed.MemoryGrid(range(20)))
    assert [m.metadata.dst_node_id for m in evaluate] != [m.metadata.dst_node_id for m in train]
    assert len(list(evaluate)) == 8
    for message in evaluate:
        assert message.metadata.message_type == "evaluate"
        assert fed.bits(fed.model_in(message)) == fed.bits(other)  # not w', which is sent to train
        assert dict(message.content["config"]) == {"a": 1, "server-round": 1}
    assert dict(config) == {"a": 1}


def test_no_training_and_no_evaluation() -> None:
    strategy = FedAvg(fraction_train=0.0, fraction_evaluate=0.0, **OPEN)
    assert fed.configure(strategy, 1, make_model(), nodes=[]) == []
    assert strategy.configure_evaluate(1, to_record(make_model()), ConfigRecord(), fed.MemoryGrid([])) == []


@pytest.mark.parametrize(
    "options", [{"min_available_nodes": 4}, {"min_train_nodes": 4}], ids=["available", "train"]
)
def test_too_few_nodes_end_the_wait_with_an_error(options: dict[str, int]) -> None:
    strategy = FedAvg(node_wait=0.0, **(OPEN | options))
    with pytest.raises(RunError, match=r"3 of at least 4 nodes are connected after 0 seconds"):
        fed.configure(strategy, 1, make_model())


def test_nodes_that_come_late_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(fed.MemoryGrid):
        def get_node_ids(self) -> list[int]:
            self.nodes.append(len(self.nodes))
            return self.nodes

    monkeypatch.setattr("strategies.shell.rule_strategy.time.sleep", lambda seconds: None)
    strategy = FedAvg(node_wait=60.0, **(OPEN | {"min_available_nodes": 5}))
    messages = strategy.configure_train(1, to_record(make_model()), ConfigRecord(), Late([]))
    assert len(list(messages)) == 5


def test_the_rule_may_be_told_how_to_put_client_metrics_together() -> None:
    strategy = FedAvg(train_metrics_aggr_fn=lambda contents, key: MetricRecord({key: len(contents)}), **OPEN)
    done = fed.play(strategy, 1, make_model(), fed.noisy())
    assert done.metrics == {"num-examples": 3, "screening/rejected": 0}


# ---------------------------------------------------------------- Flower's own loop


@pytest.mark.parametrize("name", ["FedAvg", "FedNNNN", "TwoDLRD(FedLWS(FedNNNN))", "FedLWS(FedAdam)"])
def test_flowers_own_loop(name: str) -> None:
    """`Strategy.start` trains on what is sent, and evaluates and returns what is returned."""
    model = make_model()
    want = fed.rounds(ALL[name](), model, fed.noisy(), range(1, 4))
    grid = fed.LearningGrid(fed.noisy())
    seen: list[Any] = []
    result = ALL[name]().start(
        grid, to_record(model), num_rounds=3, evaluate_fn=lambda r, arrays: seen.append(fed.bits(views(arrays)))
    )
    trained = [m for m in grid.log if m.metadata.message_type == "train"]
    evaluated = [m for m in grid.log if m.metadata.message_type == "evaluate"]
    assert seen == [fed.bits(model)] + [fed.bits(done.returned or {}) for done in want]
    assert fed.bits(views(result.arrays)) == seen[-1]
    assert [fed.bits(fed.model_in(m)) for m in trained[::3]] == [fed.bits(done.sent) for done in want]
    assert [fed.bits(fed.model_in(m)) for m in evaluated[::3]] == seen[1:]
    assert dict(result.evaluate_metrics_clientapp[3]) == {"loss": pytest.approx(1.5)}


# ---------------------------------------------------------------- refusals

NAN = math.nan
FOR_RULES: list[tuple[dict[str, Any], str]] = [
    ({"fraction_train": 1.5}, "in [0, 1]"),
    ({"fraction_train": -0.1}, "in [0, 1]"),
    ({"fraction_train": NAN}, "in [0, 1]"),
    ({"fraction_evaluate": 2}, "in [0, 1]"),
]
WEIGHTING: list[tuple[dict[str, Any], str]] = [
    ({"weighting": "size"}, "'uniform'"),
    ({"weighting": None}, "'uniform'"),
]
FOR_WRAPPERS: list[tuple[dict[str, Any], str]] = [
    ({"strategy": "FedAvg"}, "a Flower Strategy"),
    ({"strategy": FedAvg}, "a Flower Strategy"),
]
OWN: list[tuple[type[Any], dict[str, Any], str]] = [
    *((FedNNNN, {"beta": value}, "a finite number greater than 0") for value in (0.0, -1.0, math.inf, NAN)),
    *((NormNorm, {"beta": value}, "a finite number greater than 0") for value in (0.0, NAN)),
    *((FedNNNN, {"gamma": value}, "in [0, 1)") for value in (-0.1, 1.0, NAN)),
    *((Momentum, {"gamma": value}, "in [0, 1)") for value in (-0.1, 1.0, NAN)),
    (Fedalr, {"scale": "cosine"}, "'unit', 'mean_norm' or 'raw'"),
    *((Fedalr, {"server_lr": value}, "a finite number greater than 0") for value in (0.0, -1.0, math.inf, NAN)),
    *((FedLWS, {"beta": value}, "a finite number of at least 0") for value in (-0.1, math.inf, NAN)),
    (FedLWS, {"granularity": "neuron"}, "'layer' or 'model'"),
    (FedLWS, {"grouping": "block"}, "'module' or 'reference'"),
    *((FedLWS, {"tau_min": value}, "a finite number of at least 0") for value in (-0.1, math.inf, NAN)),
    *((FedLWS, {"tau_max": value}, "a finite number of at least 0, or null") for value in (-0.1, math.inf, NAN)),
    (FedLWS, {"terms": "none"}, "'both', 'optimization' or 'regularization'"),
    (FedLWS, {"fixed": []}, "a list of factors in (0, 1], one a layer"),
    *((FedLWS, {"fixed": value}, "each item a finite number in (0, 1]") for value in ([0.0], [0.5, 1.1], [NAN])),
    *((TwoDLRD, {"attenuation": value}, "in [0, 1]") for value in (-0.1, 1.1, NAN)),
    (TwoDLRD, {"window": -1}, "a whole number in [0, 1000000]"),
    (TwoDLRD, {"local_steps": 0}, "a whole number in [1, 1000000]"),
    (FedNova, {"tau_eff": "mean"}, "'effective' or 'steps'"),
    *(
        (cls, {"strength": value}, "a finite number of at least 0")
        for cls in (AdaDecay, AWD)
        for value in (-1.0, NAN)
    ),
    (AdaDecay, {"alpha": -1.0}, "a finite number of at least 0"),
    (TwoDLRD, {"decay": "3d"}, "'2d', 'all' or 'additive'"),
]
REFUSED = [
    *((cls, *case) for cls in (FedAvg, FedNNNN, NormNorm, Momentum) for case in FOR_RULES + WEIGHTING),
    *((Fedalr, *case) for case in FOR_RULES),
    *((cls, *case) for cls in (FedLWS, TwoDLRD, NormAnalysis) for case in FOR_WRAPPERS),
    *OWN,
]


@pytest.mark.parametrize(
    ("cls", "options", "allowed"), REFUSED, ids=[f"{cls.__name__}-{options}" for cls, options, _ in REFUSED]
)
def test_a_bad_value_is_refused_with_key_value_and_what_is_allowed(
    cls: type[Any], options: dict[str, Any], allowed: str
) -> None:
    ((key, value),) = options.items()
    with pytest.raises(ConfigError) as caught:
        cls(**options)
    assert isinstance(caught.value, ValueError)
    assert f"{key} = {value!r} is not allowed: {key} must be " in str(caught.value)
    assert allowed in str(caught.value)


BAD_SCREENINGS = [
    (Screening(quorum=0), "quorum = 0", "a whole number in [1, 100000]"),
    (Screening(quorum=-1), "quorum = -1", "a whole number in [1, 100000]"),
    (Screening(quorum=1.5), "quorum = 1.5", "a whole number in [1, 100000]"),  # type: ignore[arg-type]  # the wrong type is the test
    (Screening(factor=1.0), "factor = 1.0", "a finite number greater than 1, or null"),
    (Screening(factor=0.5), "factor = 0.5", "a finite number greater than 1, or null"),
    (Screening(factor=NAN), "factor = nan", "a finite number greater than 1, or null"),
    (Screening(factor=math.inf), "factor = inf", "a finite number greater than 1, or null"),
]


@pytest.mark.parametrize("cls", [FedAvg, FedNNNN, NormNorm, Momentum, Fedalr, FedLWS, TwoDLRD, NormAnalysis])
@pytest.mark.parametrize(("screening", "given", "allowed"), BAD_SCREENINGS, ids=str)
def test_a_bad_screening_is_refused(cls: type[Any], screening: Screening, given: str, allowed: str) -> None:
    with pytest.raises(ConfigError, match="is not allowed") as caught:
        cls(screening=screening)
    assert given in str(caught.value)
    assert str(caught.value).endswith(allowed)


@pytest.mark.parametrize("cls", [Fedalr, Scaffold, QFedAvg, LDAWA])
def test_a_rule_that_is_uniform_by_itself_takes_no_weighting(cls: type[Any]) -> None:
    with pytest.raises(TypeError, match="weighting"):
        cls(weighting="examples", **NEEDS.get(cls.__name__, {}))


@pytest.mark.parametrize(
    ("cls", "options", "reported"),
    [
        (Scaffold, {"num_clients": 0}, "num_clients = 0 is not allowed: num_clients must be at least 1"),
        (Scaffold, {"num_clients": 3, "server_lr": 0.0}, "server_lr must be a finite number greater than 0"),
        (Scaffold, {"num_clients": 3, "server_lr": math.inf}, "server_lr must be a finite number greater than 0"),
        (
            QFedAvg,
            {"client_lr": 0.0},
            "client_lr = 0.0 is not allowed: client_lr must be a finite number greater than 0",
        ),
        (FedDisco, {"num_classes": 0}, "so it needs a task with classes"),
        (FedDisco, {"num_classes": 3, "distance": "js"}, "distance must be 'kl', 'l1', 'l2' or 'cosine'"),
        (FedDisco, {"num_classes": 3, "a": -0.5}, "a must be a finite number of at least 0"),
        (FedMGDAPlus, {"epsilon": 1.5}, "epsilon must be a finite number in [0, 1]"),
        (QFedAvg, {"client_lr": 0.1, "q": -1.0}, "q = -1.0 is not allowed: q must be a finite number in [0, 20]"),
        (FedDyn, {"num_clients": 0}, "num_clients = 0 is not allowed: num_clients must be at least 1"),
        (FedDyn, {"num_clients": 3, "alpha": -0.1}, "alpha must be a finite number of at least 0"),
        (FedDyn, {"num_clients": 3, "alpha": NAN}, "alpha must be a finite number of at least 0"),
        (FedDyn, {"num_clients": 3, "weighting": "size"}, "weighting must be 'examples' or 'uniform'"),
    ],
)
def test_a_rule_with_num_clients_refuses_bad_values(cls: type[Any], options: Any, reported: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cls(**options)
    assert str(caught.value).endswith(reported)


def test_tau_max_below_tau_min_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"tau_max = 0\.1 is not allowed: tau_max must be at least tau_min = 0\.2"
    ):
        FedLWS(tau_min=0.2, tau_max=0.1)


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (FedNNNN, {"gamma": 0.0}),
        (FedNNNN, {"beta": 1e-9, "gamma": 0.999}),
        (Momentum, {"gamma": 0.0}),
        (FedLWS, {"beta": 0.0, "tau_min": 0.0, "tau_max": 0.0}),
        (FedLWS, {"tau_min": 0.1, "tau_max": 0.1, "fixed": (1.0,)}),
        (FedLWS, {"tau_max": None}),
        (Scaffold, {"num_clients": 1, "server_lr": 1e-9}),
        (FedDyn, {"num_clients": 1, "alpha": 0.0}),
        (TwoDLRD, {"attenuation": 0.0, "window": 0, "local_steps": 1}),
        (TwoDLRD, {"attenuation": 1.0}),
        (FedAvg, {"screening": Screening(quorum=1, factor=1.0001), "fraction_train": 0.0, "fraction_evaluate": 1}),
        (FedAvg, {"screening": Screening(factor=None)}),
    ],
)
def test_values_at_the_edge_are_allowed(cls: type[Any], options: dict[str, Any]) -> None:
    assert isinstance(cls(**options), Strategy)


def test_an_unknown_option_is_refused() -> None:
    for cls in (FedAvg, FedNNNN, FedLWS, TwoDLRD, NormAnalysis):
        with pytest.raises(TypeError, match="momentum_factor"):
            cls(momentum_factor=0.9)


# ---------------------------------------------------------------- the package


NEEDS = {
    "FedDyn": {"num_clients": 2},
    "Scaffold": {"num_clients": 2},
    "QFedAvg": {"client_lr": 0.1},
    "FedDisco": {"num_classes": 4},
}
ALONE = "AWD AdaDecay DifferentialPrivacy FedAvg FedLWS FedMGDAPlus FedNNNN FedNova Fedalr LDAWA Momentum"
ALONE += " NormAnalysis NormNorm TwoDLRD"
NAMED = sorted([*ALONE.split(), *NEEDS])


def fresh_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def test_the_package_loads_nothing_until_a_name_is_used() -> None:
    heavy = "{'torch', 'torchvision', 'hydra', 'omegaconf', 'flwr', 'numpy', 'pandas'}"
    assert fresh_python(f"import sys, strategies; print({heavy} & set(sys.modules))") == "set()"


def test_no_strategy_loads_torch_or_hydra() -> None:
    code = (
        "import sys, strategies\n"
        f"for name in {NAMED}:\n"
        f"    getattr(strategies, name)(**{NEEDS}.get(name, {{}}))\n"
        "print({'torch', 'torchvision', 'hydra', 'omegaconf', 'pandas', 'matplotlib', 'ray'} & set(sys.modules))"
    )
    assert fresh_python(code).splitlines()[-1] == "set()"


def test_every_name_is_a_flower_strategy() -> None:
    assert sorted(name for name in dir(strategies) if name in NAMED) == NAMED
    for name in NAMED:
        assert issubclass(getattr(strategies, name), Strategy)


def test_an_unknown_name_is_answered_with_those_that_exist() -> None:
    with pytest.raises(AttributeError, match=rf"no attribute 'FedNNN'; it has {', '.join(sorted(NAMED)[:3])},"):
        strategies.FedNNN  # noqa: B018
