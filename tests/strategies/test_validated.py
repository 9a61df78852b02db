"""Validated: an independent computation over several rounds, identities, ugly losses, refusals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import federation as fed
import numpy as np
import pytest
import reference as ref
from federation import OPEN
from flwr.serverapp import strategy as flwr
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

from fedstride.errors import ConfigError
from strategies import DifferentialPrivacy, FedAvg, FedLWS, FedNNNN, Validated, make_cohort, validated
from strategies.registry import STRATEGIES
from strategies.validated import NOTHING, Evidence, Fall, Validation, deviation, remembered, validate

NAMES = ("conv1.weight", "fc.bias")


class Toward:
    """Seven examples; a loss is half the squared distance of some arrays to a point of the example, plus 1."""

    def __init__(self, target: float = 0.2, names: Sequence[str] = NAMES) -> None:
        self.target, self.names, self.asked = target, names, 0

    def __len__(self) -> int:
        return 7

    def losses(self, model: Model) -> np.ndarray:
        self.asked += 1
        return np.array([1.0 + self._distance(model, self.target + 0.05 * (j - 3)) for j in range(len(self))])

    def _distance(self, model: Model, target: float) -> float:
        return sum(float(((ref.f64(model[n]) - target) ** 2).sum()) / 2 for n in self.names)


def judged(
    sent: Model, models: Sequence[Model], shares: Sequence[float], examples: Any, **options: Any
) -> Validation:
    """`validate` without anything known from rounds before."""
    return validate(sent, models, shares, examples, [NOTHING] * len(models), **options)


class Fixed:
    """Two examples, each with the same function of the first number of the model as its loss."""

    def __init__(self, loss: Callable[[float], float]) -> None:
        self._loss = loss

    def __len__(self) -> int:
        return 2

    def losses(self, model: Model) -> np.ndarray:
        return np.full(2, self._loss(float(model["w"][0])))


class Two:
    """Two examples with different losses, functions of the first number of the model."""

    def __init__(self, one: Callable[[float], float], other: Callable[[float], float]) -> None:
        self._two = one, other

    def __len__(self) -> int:
        return 2

    def losses(self, model: Model) -> np.ndarray:
        return np.array([loss(float(model["w"][0])) for loss in self._two])


def moved(*places: float) -> tuple[Model, list[Model]]:
    return {"w": np.zeros(1)}, [{"w": np.array([place])} for place in places]


def plain(kept: Sequence[int], sent: Model, models: Sequence[Model], shares: Sequence[float]) -> Model:
    """The mean of some models, from its definition."""
    whole = math.fsum(shares[k] for k in kept)
    return {
        name: np.asarray(sum(shares[k] / whole * ref.f64(models[k][name]) for k in kept)).astype(array.dtype)
        for name, array in sent.items()
    }


def mean_loss(examples: Any, model: Model) -> float:
    return float(np.mean(examples.losses(model)))


# ---------------------------------------------------------------- numbers


def test_worked() -> None:
    """Loss (w - 1)^2: all four give (2.5)^2 / 16 ..., and without the reversed one the mean is 1."""
    sent, models = moved(1.0, 0.8, 1.2, -3.0)
    found = judged(sent, models, [0.25] * 4, Fixed(lambda w: (w - 1.0) ** 2), sure=2.0, most=0.4)
    assert found.kept == [0, 1, 2] and found.loss == pytest.approx(0.0, abs=1e-30)
    ((place, loss, without, z),) = found.left_out
    assert (place, loss) == (3, pytest.approx(1.0)) and without == found.loss and z == math.inf


@pytest.mark.parametrize(
    ("sure", "most", "left_out"), [(0.0, 0.4, 1), (2.9, 0.4, 1), (3.1, 0.4, 0), (2.9, 0.2, 0)]
)
def test_worked_standard_error(sure: float, most: float, left_out: int) -> None:
    """Without the third, the mean falls from 2 to 0 and the losses by 4 and 2: 3 on average, standard error 1."""
    sent, models = moved(0.0, 0.0, 6.0)
    examples = Two(lambda w: 2.0 * w, lambda w: w)
    found = judged(sent, models, [1.0, 1.0, 1.0], examples, sure=sure, most=most)
    assert [each.place for each in found.left_out] == [2] * left_out
    assert found.loss == pytest.approx(0.0 if left_out else 3.0, abs=1e-12)


def test_worse_for_some_examples_is_kept_if_chance_can_be_the_reason() -> None:
    """The third reply makes one example's loss fall by 5 and the other's rise by 6."""
    sent, models = moved(0.0, 0.0, 3.0)
    examples = Two(lambda w: 10.0 - 5.0 * w, lambda w: 6.0 * w)
    assert judged(sent, models, [1.0] * 3, examples, sure=0.1, most=0.4).kept == [0, 1, 2]
    assert judged(sent, models, [1.0] * 3, examples, sure=0.0, most=0.4).kept == [0, 1]


def falls(
    kept: Sequence[int], sent: Model, models: Sequence[Model], shares: Sequence[float], examples: Any
) -> list[tuple[float, float]]:
    """f_k and v_k from their definition, with the mean of each subset computed from the models."""
    now = list(examples.losses(plain(kept, sent, models, shares)))
    found = []
    for out in kept:
        losses = examples.losses(plain([k for k in kept if k != out], sent, models, shares))
        fall = [one - other for one, other in zip(now, losses, strict=True)]
        found.append((statistics.fmean(fall), statistics.variance(fall) / len(fall)))
    return found


def oracle(
    sent: Model,
    models: Sequence[Model],
    shares: Sequence[float],
    examples: Any,
    known: Sequence[tuple[float, float]],
    sure: float,
    most: float,
) -> list[int]:
    """The rule from its definition; `known`: S_k and V_k."""
    kept = list(range(len(models)))
    while len(models) - len(kept) + 1 <= most * len(models) + 1e-9 and len(kept) > 1:
        found = falls(kept, sent, models, shares, examples)
        z = [(known[k][0] + f) / math.sqrt(known[k][1] + v) for k, (f, v) in zip(kept, found, strict=True)]
        if not max(z) > sure:
            break
        kept = [k for k in kept if k != kept[z.index(max(z))]]
    return kept


@pytest.mark.parametrize(("sure", "most"), [(0.0, 0.4), (2.0, 0.49), (6.0, 0.49), (4.0, 0.2)])
@pytest.mark.parametrize("memory", [0.0, 0.9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_keeps_what_the_definition_keeps(sure: float, most: float, memory: float, dtype: Any) -> None:
    """Over five rounds with 2 to 9 clients, some of which go a little away in each."""
    sent, left_out = fed.make_model(dtype), 0
    names = [n for n, a in sent.items() if a.dtype.kind == "f"][:3]
    examples = Toward(0.2, names)
    for m in range(2, 10):
        known, have = [(0.0, 0.0)] * m, [NOTHING] * m
        shares = list(np.random.default_rng(m).dirichlet([2.0] * m))
        for server_round in range(5):
            models = ref.make_clients(np.random.default_rng([m, server_round]), sent, m, 0.05)
            for far in models[: m // 3]:
                far.update({n: (far[n] + 0.1 * m).astype(dtype) for n in names})
            found = validate(sent, models, shares, examples, have, sure=sure, most=most)
            assert found.kept == oracle(sent, models, shares, examples, known, sure, most)
            assert sorted([*found.kept, *(each.place for each in found.left_out)]) == list(range(m))
            assert found.loss == pytest.approx(
                mean_loss(examples, plain(found.kept, sent, models, shares)), rel=1e-6
            )
            of_all = falls(range(m), sent, models, shares, examples)
            known = [
                (memory * S + f, memory**2 * V + v) if memory * S + f > 0 else (0.0, 0.0)
                for (S, V), (f, v) in zip(known, of_all, strict=True)
            ]
            have = [remembered(f, before, memory) for f, before in zip(found.falls, have, strict=True)]
            np.testing.assert_allclose(have, known, rtol=1e-3, atol=1e-6)
            left_out += len(found.left_out)
    assert left_out > 3


def test_evidence_adds_up_over_rounds() -> None:
    """A fall of 1 with a standard error of 1 in each round: z is the square root of the number of rounds."""
    sent, models = moved(0.0, 0.0, 3.0)
    examples, known, z = Two(lambda w: 2.0 * w, lambda w: 0.0 * w), [NOTHING] * 3, []
    for _ in range(9):
        found = validate(sent, models, [1.0] * 3, examples, known, sure=100.0, most=0.4)
        assert found.falls[2] == pytest.approx((1.0, 1.0))
        z.append(deviation(found.falls[2], known[2]))
        known = [remembered(fall, before, 1.0) for fall, before in zip(found.falls, known, strict=True)]
    assert z == pytest.approx([math.sqrt(t) for t in range(1, 10)])


def test_worked_memory() -> None:
    assert remembered(Fall(2.0, 4.0), Fall(1.0, 3.0), 0.5) == Fall(2.5, 4.75)
    assert remembered(Fall(-2.0, 4.0), Fall(1.0, 3.0), 0.5) == NOTHING
    assert remembered(Fall(math.inf, 0.0), Fall(1.0, 3.0), 0.5) == Fall(1.0, 3.0)
    assert deviation(Fall(2.0, 5.0), Fall(1.0, 4.0)) == 1.0
    assert deviation(Fall(-2.0, 5.0), Fall(1.0, 4.0)) == 0.0
    assert deviation(Fall(1.0, 0.0), NOTHING) == math.inf


@given(
    st.lists(st.floats(-3, 3), min_size=1, max_size=8),
    st.integers(0, 10**6),
    st.floats(0, 50),
    st.sampled_from([0.05, 0.25, 0.4, 0.49]),
)
def test_the_loss_never_rises_and_few_are_left_out(
    places: list[float], seed: int, sure: float, most: float
) -> None:
    sent, models = moved(*places)
    shares = list(np.random.default_rng(seed).dirichlet([1.0] * len(places)) + 1e-6)
    examples = Two(lambda w: abs(w - 0.5) + 0.1, lambda w: (w - 0.4) ** 2)
    found = judged(sent, models, shares, examples, sure=sure, most=most)
    assert len(found.left_out) <= most * len(places) and found.kept
    assert found.loss <= mean_loss(examples, plain(range(len(places)), sent, models, shares)) * (1 + 1e-12)
    assert all(each.z > sure and each.loss_without < each.loss for each in found.left_out)


@pytest.mark.parametrize("at", [0.1736, 0.3, 1e-3, 1e6])
@pytest.mark.parametrize("m", [3, 5, 8])
def test_equal_replies_are_kept(at: float, m: int) -> None:
    """Their means differ by rounding, for all examples in the same direction."""
    sent, models = moved(*[at] * m)
    shares = list(np.random.default_rng(m).dirichlet([1.0] * m) + 1e-6)
    examples = Two(lambda w: abs(w - 0.5) + 0.1, lambda w: (w - 0.4) ** 2)
    assert judged(sent, models, shares, examples, sure=0.0, most=0.49).left_out == []


@pytest.mark.parametrize("m", [1, 2])
def test_one_or_two_replies_are_kept(m: int) -> None:
    """Of two, one is more than half of half."""
    sent, models = moved(*[5.0, -5.0][:m])
    found = judged(sent, models, [1.0 / m] * m, Fixed(lambda w: w * w), sure=0.0, most=0.49)
    assert found.kept == list(range(m))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_infinite(bad: float) -> None:
    sent, models = moved(1.0, 1.0, 90.0)
    examples = Fixed(lambda w: bad if w > 5.0 else w)
    found = judged(sent, models, [1.0, 1.0, 1.0], examples, sure=0.1, most=0.4)
    assert found.kept == [0, 1] and found.left_out[0].loss == math.inf


def test_nothing_is_left_out_where_no_loss_is_finite() -> None:
    sent, models = moved(1.0, 2.0, 3.0)
    found = judged(sent, models, [1.0] * 3, Fixed(lambda w: math.nan), sure=0.0, most=0.4)
    assert found.kept == [0, 1, 2] and found.loss == math.inf


def test_of_equal_z_the_first_goes() -> None:
    sent, models = moved(-1.0, 3.0, 3.0, 3.0, -1.0)
    found = judged(sent, models, [0.2] * 5, Fixed(lambda w: (w - 3) ** 2), sure=0.0, most=0.2)
    assert [each.place for each in found.left_out] == [0]


# ---------------------------------------------------------------- the strategy


@pytest.mark.parametrize("inside", [FedAvg, FedNNNN, lambda **o: FedLWS(FedAvg(**o)), flwr.FedMedian])
def test_the_strategy_inside_gets_those_that_are_kept(inside: Any) -> None:
    """Three rounds with an attacker, against the same without its reply. Bit for bit."""

    def train(sent: Model, server_round: int) -> list[Model]:
        good = ref.make_clients(np.random.default_rng(server_round), toward(sent), 2, 0.01)
        return [*good, reversed_from(sent)]

    start = fed.make_model()
    with_it = fed.rounds(Validated(inside(**OPEN), proxy=Toward()), start, train, [1, 2, 3])
    without = fed.rounds(
        FedLWS(inside(**OPEN), beta=0.0) if inside is flwr.FedMedian else inside(**OPEN),
        start,
        lambda sent, t: train(sent, t)[:2],
        [1, 2, 3],
    )
    for one, other in zip(with_it, without, strict=True):
        assert fed.bits(one.returned) == fed.bits(other.returned)
        assert one.metrics["validated/left_out"] == 1 and one.metrics["validated/examples"] == 7


def test_rounds_of_the_strategy_are_those_of_the_definition() -> None:
    """Five rounds in which the second client goes a little away; the state by client id."""
    start = fed.make_model()
    strategy, shares = Validated(FedAvg(**OPEN), proxy=Toward(), sure=5.0), [n / 100 for n in fed.EXAMPLES]
    known, left_out = [(0.0, 0.0)] * 3, []

    def train(sent: Model, server_round: int) -> list[Model]:
        models = ref.make_clients(np.random.default_rng(server_round), sent, 3, 0.01)
        models[1].update({n: (models[1][n] - 0.02).astype(models[1][n].dtype) for n in NAMES})
        return models

    for t, played in enumerate(fed.rounds(strategy, start, train, range(1, 6)), start=1):
        models = train(played.sent, t)
        kept = oracle(played.sent, models, shares, Toward(), known, 5.0, 0.4)
        left_out.append(played.metrics["validated/left_out"])
        assert left_out[-1] == 3 - len(kept)
        of_all = falls(range(3), played.sent, models, shares, Toward())
        known = [
            (0.9 * S + f, 0.81 * V + v) if 0.9 * S + f > 0 else (0.0, 0.0)
            for (S, V), (f, v) in zip(known, of_all, strict=True)
        ]
    assert set(left_out) == {0, 1}
    state = strategy.state_dict()
    of_client = {int(key.rsplit("/", 1)[-1]): value for key, value in state.items() if "falls/" in key}
    want = {k: pair for k, pair in zip(sorted(fed.NODES), known, strict=True) if pair != (0.0, 0.0)}
    assert of_client.keys() == want.keys()
    for client, pair in want.items():
        np.testing.assert_allclose(of_client[client], pair, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize(("most", "want"), [(3, {"1", "2", "5"}), (2, {"1", "5"}), (10_000, set("01235"))])
def test_of_too_many_clients_the_one_seen_longest_ago_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, most: int, want: set[str]
) -> None:
    """Clients 1 and 5 go away from the target; 0, 2 and 3 have evidence of rounds before, and 2 more than 0."""
    monkeypatch.setattr(validated, "MOST_CLIENTS", most)
    sent, there = moved(0.5, -0.4, 0.5, 0.5, 0.5, -0.4)
    before = {client: np.array([1.0, 100.0]) for client in ("3", "0", "2")}
    cohort = make_cohort(sent, there)
    replies = tuple(reply for reply in cohort.replies if reply.client_id in (1, 4, 5))
    strategy = Validated(FedAvg(), proxy=Fixed(lambda w: (w - 1.0) ** 2), sure=100.0)
    admission = strategy.admit(sent, replace(cohort, replies=replies), Evidence(before))
    assert admission.state.falls is not None and set(admission.state.falls) == want


def toward(sent: Model) -> Model:
    return {n: (a + 0.3 * (0.2 - a)).astype(a.dtype) if n in NAMES else a for n, a in sent.items()}


def reversed_from(sent: Model) -> Model:
    return {n: (a - 0.4 * (0.2 - a)).astype(a.dtype) if n in NAMES else a for n, a in sent.items()}


def test_where_nothing_is_left_out_it_is_the_strategy_inside() -> None:
    start = fed.make_model()
    one = fed.rounds(Validated(FedNNNN(**OPEN), proxy=Toward(), sure=100.0), start, fed.noisy(), [1, 2])
    other = fed.rounds(FedNNNN(**OPEN), start, fed.noisy(), [1, 2])
    for a, b in zip(one, other, strict=True):
        assert fed.bits(a.returned) == fed.bits(b.returned) and fed.bits(a.sent) == fed.bits(b.sent)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sure": -0.1}, "sure"),
        ({"most": 0.0}, "most"),
        ({"most": 0.5}, "most"),
        ({"sure": math.nan}, "sure"),
        ({"memory": 1.0}, "memory"),
        ({"memory": -0.1}, "memory"),
    ],
)
def test_refused_settings(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Validated(FedAvg(**OPEN), proxy=Toward(), **settings)


def test_without_examples_it_refuses_the_first_round() -> None:
    with pytest.raises(ConfigError, match=r"proxy = None .*examples of the server's with a network"):
        fed.rounds(Validated(FedAvg(**OPEN)), fed.make_model(), fed.noisy(), [1])


class One(Toward):
    def __len__(self) -> int:
        return 1


def test_one_example_has_no_standard_error() -> None:
    with pytest.raises(ConfigError, match=r"proxy = '1 examples' .*at least two examples"):
        fed.rounds(Validated(FedAvg(**OPEN), proxy=One()), fed.make_model(), fed.noisy(), [1])


def test_it_would_see_unprotected_updates() -> None:
    with pytest.raises(ConfigError, match=r"write DifferentialPrivacy\(Validated"):
        Validated(DifferentialPrivacy(FedAvg(**OPEN), where="server"), proxy=Toward())


def test_it_is_a_part() -> None:
    assert STRATEGIES.wraps("validated") and STRATEGIES.load("validated") is Validated
    assert set(STRATEGIES.fields("validated")) == {"sure", "memory", "most"}
