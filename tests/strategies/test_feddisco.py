"""FedDisco at the server: the weights, the counts that clients report once, and FedLWS around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import federation as fed
import numpy as np
import pytest
import reference as ref
from federation import OPEN, printed
from flwr.app import Message
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

from fedstride.arrays.named import views
from fedstride.errors import ConfigError
from strategies import DifferentialPrivacy, FedDisco, FedLWS, fedavg, feddisco

SENT: Model = {"w": np.array([1.0, -2.0])}  # the toy problem T1
CLIENTS: list[Model] = [{"w": np.array([0.8, -1.5])}, {"w": np.array([0.6, -2.1])}]
P, COUNTS = [0.25, 0.75], [[8, 2, 0], [15, 10, 5]]
LABELS = [[30, 0, 0, 10], [5, 5, 5, 5], [0, 60, 20, 1]]  # of three clients


def oracle_weights(counts: Sequence[Any], p: Sequence[float], a: float, b: float) -> np.ndarray:
    """(DI1), (DI2) with numpy."""
    shares = np.array(counts, dtype=float)
    shares /= shares.sum(1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        kl = np.nansum(np.where(shares > 0, shares * np.log(shares * shares.shape[1]), 0.0), axis=1)
    d = kl / kl.sum() if kl.sum() > 0 else np.zeros(len(kl))
    raw = np.maximum(0.0, np.array(p) - a * d + b)
    return raw / raw.sum() if raw.sum() > 0 else np.array(p)


def replies(message: Message, models: dict[int, Model], labels: dict[int, Any], examples: Any) -> list[Message]:
    """Replies of these clients; with counts of labels for those in `labels`."""
    return [
        fed.reply_with(feddisco.COUNTS, labels.get(client), message, client, w_k, examples[client])
        for client, w_k in models.items()
    ]


# ---------------------------------------------------------------- the worked example T1


def test_worked_distances() -> None:
    assert feddisco.discrepancies(COUNTS) == [printed(0.8727666357), printed(0.1272333643)]
    assert [feddisco._distance(np.array(each, float), "kl") for each in COUNTS] == [
        printed(0.5982098651),
        printed(0.0872080240),
    ]
    assert feddisco.discrepancies(COUNTS, "l2") == [printed(0.5887840578), printed(0.2357022604)]


@pytest.mark.parametrize(
    ("a", "b", "q", "returned"),
    [
        (0.5, 0.1, [0.0, 1.0], [0.6, -2.1]),
        (0.1, 0.1, [0.2388393968, 0.7611606032], [0.6477678794, -1.9566963619]),
    ],
)
def test_worked(a: float, b: float, q: list[float], returned: list[float]) -> None:
    got = feddisco.disco_shares(P, feddisco.discrepancies(COUNTS), a=a, b=b)
    assert got == [printed(each) for each in q]
    assert feddisco.aggregate(SENT, CLIENTS, P, got)["w"] == printed(returned)


def test_worked_with_fedlws_around() -> None:
    strategy = FedLWS(FedDisco(num_classes=3, a=0.1, b=0.1, **OPEN), beta=0.1, granularity="model")
    message = fed.configure(strategy, 1, SENT)[0]
    models, labels = dict(enumerate(CLIENTS, 1)), dict(enumerate(COUNTS, 1))
    record, metrics = strategy.aggregate_train(1, replies(message, models, labels, {1: 10, 2: 30}))
    assert metrics["fedlws/tau/model"] == printed(0.3162277660)
    assert metrics["fedlws/gamma/model"] == printed(0.9950062447)
    assert views(record)["w"] == printed([0.6445330851, -1.9469250992])


# ---------------------------------------------------------------- rounds


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounds_with_other_clients_each_time(dtype: str) -> None:
    """Counts are reported in a client's first round only; afterwards the server knows them."""
    start = fed.make_model(dtype)
    strategy = FedDisco(num_classes=4, **OPEN)
    model, expected, told = start, fed.widened(start), set[int]()
    for number, who in enumerate(([0, 1], [1, 2], [0, 2], [2], [0, 1, 2]), 1):
        message = fed.configure(strategy, number, model)[0]
        assert message.content["config"].get("feddisco.known", []) == sorted(told)
        sent = fed.model_in(message)
        models = {k: fed.noisy()(sent, number)[k] for k in who}
        examples = {k: 10 * (k + 1) for k in who}
        new = {k: LABELS[k] for k in who if k not in told}
        record, _ = strategy.aggregate_train(number, replies(message, models, new, examples)[::-1])
        told |= set(who)
        p = [examples[k] / sum(examples.values()) for k in who]
        q = oracle_weights([LABELS[k] for k in who], p, 0.5, 0.1)
        clients = [fed.noisy()(expected, number)[k] for k in who]
        mean = ref.weighted_sum([ref.difference(w_k, expected) for w_k in clients], list(q))
        expected = ref.build(expected, mean, ref.average_buffers(expected, clients, p))
        model = views(record)
        fed.assert_close(model, expected, start)


def test_the_counts_are_in_the_state() -> None:
    strategy, fresh = FedDisco(num_classes=3, **OPEN), FedDisco(num_classes=3, **OPEN)
    message = fed.configure(strategy, 1, SENT)[0]
    models, labels = dict(enumerate(CLIENTS, 1)), dict(enumerate(COUNTS, 1))
    strategy.aggregate_train(1, replies(message, models, labels, {1: 10, 2: 30}))
    kept = strategy.state_dict()
    assert {name for name in kept if name.startswith("labels/")} == {"labels/1", "labels/2"}
    fresh.load_state_dict(kept)
    results = []
    for one in (strategy, fresh):
        message = fed.configure(one, 2, SENT)[0]
        assert message.content["config"]["feddisco.known"] == [1, 2]
        record, _ = one.aggregate_train(2, replies(message, models, {}, {1: 10, 2: 30}))
        results.append(fed.bits(views(record)))
    assert results[0] == results[1]


def test_counts_of_a_rejected_reply_are_not_kept() -> None:
    strategy = FedDisco(num_classes=3, **OPEN)
    message = fed.configure(strategy, 1, SENT)[0]
    models = {1: CLIENTS[0], 2: {"w": np.array([np.nan, 0.0])}}
    strategy.aggregate_train(1, replies(message, models, dict(enumerate(COUNTS, 1)), {1: 10, 2: 30}))
    assert fed.configure(strategy, 2, SENT)[0].content["config"]["feddisco.known"] == [1]


def test_counts_that_are_known_are_not_replaced() -> None:
    strategy = FedDisco(num_classes=3, **OPEN)
    for number, labels in enumerate((COUNTS, [[0, 0, 9], [9, 0, 0]]), 1):
        message = fed.configure(strategy, number, SENT)[0]
        arrived = replies(message, dict(enumerate(CLIENTS, 1)), dict(enumerate(labels, 1)), {1: 10, 2: 30})
        strategy.aggregate_train(number, arrived)
    assert strategy.state.labels["1"].tolist() == COUNTS[0]


# ---------------------------------------------------------------- identities


@fed.PROPERTY
@given(fed.cohorts(m=3))
def test_without_a_and_b_it_is_fedavg(cohort: fed.AnyCohort) -> None:
    sent, clients, shares = cohort
    q = feddisco.disco_shares(shares, feddisco.discrepancies(LABELS), a=0.0, b=0.0)
    got = feddisco.aggregate(sent, clients, shares, q)
    fed.assert_close(got, fedavg.aggregate(sent, clients, shares), sent, 1e-12)


@fed.PROPERTY
@given(
    st.lists(st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(any), min_size=1, max_size=6),
    st.floats(0.0, 2.0),
    st.floats(0.0, 1.0),
    st.randoms(use_true_random=False),
)
def test_any_counts(counts: list[list[int]], a: float, b: float, random: Any) -> None:
    p = [1.0 / len(counts)] * len(counts)
    q = feddisco.disco_shares(p, feddisco.discrepancies(counts), a=a, b=b)
    assert sum(q) == pytest.approx(1.0, abs=1e-12) and min(q) >= 0.0
    order = list(range(len(counts)))
    random.shuffle(order)
    other = feddisco.disco_shares(p, feddisco.discrepancies([counts[k] for k in order]), a=a, b=b)
    assert other == pytest.approx([q[k] for k in order], abs=1e-9)
    wanted = oracle_weights(counts, p, a, b)
    if np.abs(np.array(p) + b - a * np.array(feddisco.discrepancies(counts))).max() > 1e-6:  # not at the fallback
        assert q == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("distance", get_args(feddisco.Distance))
def test_distances_from_a_given_target(distance: str) -> None:
    """Against numpy; equal counts are a target like the default."""
    P_k, T = np.array(COUNTS, float) / np.sum(COUNTS, 1, keepdims=True), np.array([6, 3, 1]) / 10
    ratio = np.where(P_k > 0, P_k / T, 1.0)
    raw = {
        "kl": (P_k * np.log(ratio)).sum(1),
        "l1": np.abs(P_k - T).sum(1),
        "l2": np.sqrt(((P_k - T) ** 2).sum(1)),
        "cosine": 1 - P_k @ T / np.sqrt((P_k**2).sum(1) * (T**2).sum()),
    }[distance]
    want = raw / raw.sum() if distance == "kl" else raw
    assert feddisco.discrepancies(COUNTS, distance, [6, 3, 1]) == pytest.approx(want, abs=1e-12)
    assert feddisco.discrepancies(COUNTS, distance, [5, 5, 5]) == pytest.approx(
        feddisco.discrepancies(COUNTS, distance), abs=1e-12
    )
    assert feddisco.discrepancies([[12, 6, 2]], distance, [6, 3, 1]) == pytest.approx([0.0], abs=1e-12)


def test_a_client_with_the_labels_of_the_test_set_counts_most() -> None:
    """With equal shares as the target it would be the other one."""
    found = {}
    for target in get_args(feddisco.Target):
        strategy = FedDisco(num_classes=3, target=target, test_labels=[8, 2, 1], a=1.0, b=0.0, **OPEN)
        message = fed.configure(strategy, 1, SENT)[0]
        arrived = replies(message, dict(enumerate(CLIENTS, 1)), {1: [8, 2, 1], 2: [4, 4, 4]}, {1: 10, 2: 10})
        record, _ = strategy.aggregate_train(1, arrived)
        found[target] = views(record)["w"]
    assert found["test"] == printed(CLIENTS[0]["w"])
    assert found["uniform"] == printed(CLIENTS[1]["w"])


def test_equal_labels_and_sizes_give_equal_weights() -> None:
    q = feddisco.disco_shares([1 / 3] * 3, feddisco.discrepancies([[8, 2, 0]] * 3), a=0.9, b=0.1)
    assert q == pytest.approx([1 / 3] * 3, abs=1e-12)


def test_a_large_b_gives_equal_weights() -> None:
    q = feddisco.disco_shares(P, feddisco.discrepancies(COUNTS), a=0.5, b=1e9)
    assert q == pytest.approx([0.5, 0.5], abs=1e-8)


def test_weights_that_are_all_zero_fall_back_to_p() -> None:
    assert feddisco.disco_shares(P, [0.5, 0.5], a=10.0, b=0.0) == P


@pytest.mark.parametrize("distance", get_args(feddisco.Distance))
def test_equal_shares_of_all_classes_are_at_no_distance(distance: str) -> None:
    assert feddisco.discrepancies([[7, 7, 7]], distance) == pytest.approx([0.0], abs=1e-12)


def test_buffers_are_averaged_with_p() -> None:
    start = fed.make_model()
    done = fed.play(FedDisco(num_classes=4, **OPEN), 1, start, fed.noisy())
    want = ref.average_buffers(start, fed.noisy()(start, 1), fed.SHARES)
    assert done.returned is not None and len(want) == 4
    fed.assert_close({n: done.returned[n] for n in want}, want, {n: start[n] for n in want})


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ({}, "the requested number 'feddisco/labels' is missing"),
        ({2: [1, 2]}, "is a list of 2, expected a list of 3 numbers"),
        ({2: 7}, "is a number, expected a list of 3 numbers"),
        ({2: [1.0, -1.0, 2.0]}, "is -1, expected [0, 1e+12]"),
        ({2: [np.nan, 1.0, 1.0]}, "is nan"),
    ],
)
def test_a_reply_without_valid_counts_is_rejected(labels: dict[int, Any], reason: str) -> None:
    strategy = FedDisco(num_classes=3, **OPEN)
    message = fed.configure(strategy, 1, SENT)[0]
    arrived = replies(message, dict(enumerate(CLIENTS, 1)), {1: COUNTS[0], **labels}, {1: 10, 2: 30})
    record, metrics = strategy.aggregate_train(1, arrived)
    assert metrics["screening/rejected"] == 1
    assert strategy.last_cohort is not None and reason in strategy.last_cohort.rejected[0].reason
    assert views(record)["w"] == printed(CLIENTS[0]["w"])


def test_counts_of_zero_everywhere_count_as_equal_ones() -> None:
    strategy = FedDisco(num_classes=3, **OPEN)
    message = fed.configure(strategy, 1, SENT)[0]
    record, _ = strategy.aggregate_train(1, replies(message, {1: CLIENTS[0]}, {1: [0, 0, 0]}, {1: 5}))
    assert record is not None
    assert strategy.state.labels["1"].tolist() == [1.0, 1.0, 1.0]


def test_the_number_of_classes_is_needed_before_the_first_round() -> None:
    with pytest.raises(
        ConfigError, match=r"num_classes = None is not allowed: .* the number of classes of the task"
    ):
        fed.configure(FedDisco(num_classes=None, **OPEN), 1, SENT)


@pytest.mark.parametrize(
    ("labels", "distance", "said"),
    [
        ([], "kl", "uniform, because the server has no test set"),
        ([3, 0, 1], "kl", "uniform with distance=kl, because the test set has no example of some class"),
    ],
)
def test_a_target_that_cannot_be(labels: list[int], distance: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^target = 'test' is not allowed: .*{said}"):
        FedDisco(num_classes=3, target="test", test_labels=labels, distance=distance)
    FedDisco(num_classes=3, target="test", test_labels=[3, 0, 1], distance="l1")


def test_the_target_is_needed_before_the_first_round() -> None:
    with pytest.raises(ConfigError, match=r"test_labels = None .*the number of test examples of each class"):
        fed.configure(FedDisco(num_classes=3, target="test", **OPEN), 1, SENT)


def test_privacy_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"privacy would not protect feddisco/labels"):
        DifferentialPrivacy(FedDisco(num_classes=3, **OPEN))
