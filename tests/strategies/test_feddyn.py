"""FedDyn at the server: the pure step and the strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import federation as fed
import numpy as np
import pytest
import reference as ref
from federation import NODES, OPEN, SHARES, UNIFORM, Expected, printed
from flwr.app import Message
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

from fedstride.arrays.named import to_record, views
from fedstride.errors import ConfigError
from fedstride.messages import wire
from strategies import DifferentialPrivacy, FedDyn, NormAnalysis, TwoDLRD, feddyn
from strategies.feddyn import FedDynState
from strategies.replies.cohort import shares_of
from strategies.replies.declared_needs import Needs
from strategies.shell.client_states import by_client

KEPT = "feddyn.client_memory"
RATES = [0.1, 0.1]  # the toy problem T2
POINT: Model = {"w": np.array([1.0])}
GRADIENTS: list[ref.Gradient] = [lambda w: {"w": 2.0 * (w["w"] - 3.0)}, lambda w: {"w": w["w"] + 1.0}]
A, B = 0, 1


def toy_round(
    strategy: FedDyn, clients: ref.FedDyn, number: int, model: Model, who: Sequence[int]
) -> tuple[Model, list[float]]:
    """The model that is returned, and the w_k; clients do their half in float64, as the message says."""
    message = fed.configure(strategy, number, model)[0]
    clients.alpha = message.content["config"]["feddyn.alpha"]
    models = [clients.client(k, fed.model_in(message), GRADIENTS[k], RATES) for k in who]
    replies = [fed.reply(k + 1, w_k, to=message) for k, w_k in zip(who, models, strict=True)]
    record, _ = strategy.aggregate_train(number, replies[::-1])
    return views(record), [float(w_k["w"][0]) for w_k in models]


# ---------------------------------------------------------------- the worked example T2


def test_worked_with_all_clients() -> None:
    strategy, clients = FedDyn(num_clients=2, alpha=0.1, **OPEN), ref.FedDyn(2, 0.0)
    first, models = toy_round(strategy, clients, 1, POINT, [A, B])
    assert models == [printed(1.716), printed(0.622)]
    assert (strategy.state.memory["w"], first["w"]) == (printed([0.169]), printed([1.338]))
    second, models = toy_round(strategy, clients, 2, first, [A, B])
    assert models == [printed(1.9201796), printed(0.9032622)]
    assert [clients.of_client[k]["w"][0] for k in (A, B)] == [printed(1.2981796), printed(-0.8127378)]
    assert (strategy.state.memory["w"], second["w"]) == (printed([0.2427209]), printed([1.6544418]))


def test_worked_with_one_client_a_round() -> None:
    strategy, clients = FedDyn(num_clients=2, alpha=0.1, **OPEN), ref.FedDyn(2, 0.0)
    first, _ = toy_round(strategy, clients, 1, POINT, [A])
    assert first["w"] == printed([2.074])
    second, models = toy_round(strategy, clients, 2, first, [B])
    assert models == [printed(1.493014)]
    assert (strategy.state.memory["w"], second["w"]) == (printed([0.067507]), printed([1.560521]))


def test_the_papers_form_gives_the_same_models() -> None:
    """Algorithm 1: h <- h - (alpha / N) sum Delta, mean - h / alpha; clients keep the gradient of their loss."""
    alpha, h, gradients, theta = 0.1, 0.0, {A: 0.0, B: 0.0}, 1.0
    strategy, clients, model = FedDyn(num_clients=2, alpha=alpha, **OPEN), ref.FedDyn(2, 0.0), POINT
    for number, who in enumerate(([A, B], [A], [B], [A, B], [B]), 1):
        model, _ = toy_round(strategy, clients, number, model, who)
        results = []
        for k in who:
            w = theta
            for eta in RATES:
                slope = 2.0 * (w - 3.0) if k == A else w + 1.0
                w -= eta * (slope - gradients[k] + alpha * (w - theta))
            gradients[k] -= alpha * (w - theta)
            results.append(w)
        h -= alpha / 2 * sum(w - theta for w in results)
        theta = sum(results) / len(results) - h / alpha
        assert model["w"] == pytest.approx([theta], rel=0, abs=1e-9)


# ---------------------------------------------------------------- against the oracle


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("weighting", ["uniform", "examples"])
def test_five_rounds_agree_with_the_oracle(dtype: str, weighting: str) -> None:
    rule = ref.FedDyn(7, 0.1)

    def oracle(sent: Model, clients: Sequence[Model]) -> Expected:
        model = rule.round(sent, clients, SHARES if weighting == "examples" else None)
        return Expected(model, model, {"feddyn/memory": ref.norm(rule.u, list(rule.u))})

    fed.follow(FedDyn(num_clients=7, weighting=weighting, **OPEN), fed.make_model(dtype), oracle)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_five_pure_steps_agree_with_the_oracle(dtype: str) -> None:
    sent = start = fed.make_model(dtype)
    expected, oracle, state = fed.widened(start), ref.FedDyn(4, 0.1), FedDynState()
    for number in range(1, 6):
        sent, state = feddyn.aggregate(sent, fed.noisy()(sent, number), UNIFORM, state, participation=3 / 4)
        expected = oracle.round(expected, fed.noisy()(expected, number))
        fed.assert_close(sent, expected, start)
        assert state.memory is not None
        fed.assert_close(state.memory, oracle.u, oracle.u, fed.TOLERANCE[dtype])  # float64, parameters only
        assert list(state.memory) == ref.parameters(start)


# ---------------------------------------------------------------- identities


@fed.PROPERTY
@given(st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_the_memory_is_the_mean_of_all_that_clients_keep(cohorts: list[set[int]], seed: int) -> None:
    """Of all N, those too who have never been asked."""
    rng = np.random.default_rng(seed)
    kept = [np.zeros(3) for _ in range(5)]
    sent, state = {"w": np.zeros(3)}, FedDynState()
    for cohort in cohorts:
        m = len(cohort)
        updates = {k: rng.normal(size=3) for k in sorted(cohort)}
        models = [{"w": sent["w"] + update} for update in updates.values()]
        for k, update in updates.items():
            kept[k] = kept[k] + update
        sent, state = feddyn.aggregate(sent, models, [1.0 / m] * m, state, participation=m / 5)
        assert state.memory is not None
        np.testing.assert_allclose(state.memory["w"], sum(kept) / 5, rtol=0, atol=1e-12)


@fed.PROPERTY
@given(fed.cohorts())
def test_the_first_round_of_all_clients_goes_twice_as_far(cohort: fed.AnyCohort) -> None:
    sent, clients, _ = cohort
    m = len(clients)
    model, state = feddyn.aggregate(sent, clients, [1.0 / m] * m, FedDynState(), participation=1.0)
    mean = ref.weighted_sum([ref.difference(w_k, sent) for w_k in clients], [1.0 / m] * m)
    assert state.memory is not None
    for name in sent:
        np.testing.assert_allclose(model[name], sent[name] + 2.0 * mean[name], rtol=0, atol=1e-12)
        np.testing.assert_allclose(state.memory[name], mean[name], rtol=0, atol=1e-12)


def test_a_client_that_drops_out_leaves_no_trace() -> None:
    """B-5: neither in the means nor in u; N stays N."""
    start = fed.make_model()
    failing, absent = (FedDyn(num_clients=5, **OPEN) for _ in range(2))
    one = fed.play(failing, 1, start, fed.noisy(), lambda replies: [*replies[:2], fed.failure(99)])
    other = fed.play(absent, 1, start, fed.noisy(), lambda replies: replies[:2])
    assert one.returned is not None and other.returned is not None
    assert fed.bits(one.returned) == fed.bits(other.returned)
    assert fed.bits(failing.state_dict()) == fed.bits(absent.state_dict())
    update = ref.difference(fed.noisy()(start, 1)[0], start), ref.difference(fed.noisy()(start, 1)[1], start)
    np.testing.assert_allclose(
        failing.state.memory["fc.weight"], (update[0]["fc.weight"] + update[1]["fc.weight"]) / 5, rtol=1e-6
    )


@pytest.mark.parametrize(("weighting", "shares"), [("uniform", UNIFORM), ("examples", SHARES)])
def test_buffers_are_averaged_and_not_remembered(weighting: str, shares: list[float]) -> None:
    start = fed.make_model()
    strategy = FedDyn(num_clients=3, weighting=weighting, **OPEN)
    first, second = fed.rounds(strategy, start, fed.noisy(), [1, 2])
    assert list(strategy.state.memory) == ref.parameters(start)
    for done, before in ((first, start), (second, first.returned or {})):
        want = ref.average_buffers(before, fed.noisy()(before, 1 if done is first else 2), shares)
        assert done.returned is not None and len(want) == 4
        fed.assert_close({n: done.returned[n] for n in want}, want, {n: start[n] for n in want})


# ---------------------------------------------------------------- what travels, what is kept


def test_in_the_papers_form_alpha_goes_down_and_nothing_beside_the_model_travels() -> None:
    done = fed.play(FedDyn(num_clients=3, alpha=0.25, recover=False, **OPEN), 1, fed.make_model(), fed.noisy())
    assert done.config == {wire.SERVER_ROUND: 1, wire.HALVES: ["feddyn"], "feddyn.alpha": 0.25}
    assert set(done.messages[0].content) == {"arrays", "config"}
    assert done.metrics["screening/not_done"] == 0


@pytest.mark.parametrize("alpha", [0, 1])
def test_a_whole_alpha_goes_down_as_a_float(alpha: int) -> None:
    reported = fed.play(FedDyn(num_clients=3, alpha=alpha, **OPEN), 1, POINT, fed.idle).config["feddyn.alpha"]
    assert (type(reported), reported) == (float, float(alpha))


def test_the_state_is_packed_and_restored() -> None:
    strategy, fresh = (FedDyn(num_clients=5, **OPEN) for _ in range(2))
    model = fed.rounds(strategy, fed.make_model(), fed.noisy(), [1, 2])[-1].returned
    kept = strategy.state_dict()
    arrays = {name: value for name, value in kept.items() if not name.startswith("learnt/")}
    names = ref.parameters(fed.make_model())
    of_clients = {f"clients/{node}/{name}" for node in NODES for name in names}
    assert arrays.pop("restarts") == 0
    assert set(arrays) == {f"memory/{name}" for name in names} | of_clients
    assert {arrays[name].dtype for name in of_clients} == {np.dtype(np.float32)}
    assert {array.dtype for name, array in arrays.items() if name not in of_clients} == {np.dtype(np.float64)}
    fresh.load_state_dict(kept)
    assert model is not None
    got, want = (fed.play(one, 3, model, fed.noisy()) for one in (fresh, strategy))
    assert got.returned is not None and want.returned is not None
    assert fed.bits(got.returned) == fed.bits(want.returned)
    assert fed.bits(fresh.state_dict()) == fed.bits(strategy.state_dict())


def test_torch_tensors_give_the_same_numbers() -> None:
    sent = fed.make_model(np.float64)
    torch_sent, state, torch_state = fed.to_torch(sent), FedDynState(), FedDynState()
    for number in (1, 2):
        clients = fed.noisy()(sent, number)
        sent, state = feddyn.aggregate(sent, clients, SHARES, state, participation=0.6)
        torch_clients = [fed.to_torch(w_k) for w_k in clients]
        torch_sent, torch_state = feddyn.aggregate(
            torch_sent, torch_clients, SHARES, torch_state, participation=0.6
        )
        fed.assert_same_numbers(torch_sent, sent)
        fed.assert_same_numbers(torch_state.memory or {}, state.memory or {})


# ---------------------------------------------------------------- with others


PAPERS: Any = partial(FedDyn, num_clients=3, recover=False)


def test_it_sees_the_mean_alone_and_may_stand_inside_privacy() -> None:
    """With equal weights and m of N known, u and w^ follow from the mean update."""
    start = fed.only_parameters(fed.make_model(np.float64))
    for make in (lambda: PAPERS(**OPEN), lambda: TwoDLRD(PAPERS(**OPEN))):
        assert make().stack.needs is Needs.MEAN
        private: Any = DifferentialPrivacy(make(), noise_multiplier=1.0, noise_seed=5)
        done = fed.play(private, 1, start, fed.noisy())
        assert done.metrics["privacy/stddev"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("wrap", [lambda rule: rule, TwoDLRD, lambda rule: NormAnalysis(TwoDLRD(rule))])
@pytest.mark.parametrize("where", ["server", "client", "local"])
def test_privacy_around_what_clients_keep_is_refused_with_the_setting_that_helps(wrap: Any, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DifferentialPrivacy(wrap(FedDyn(num_clients=3, **OPEN)), where=where)
    assert str(caught.value).endswith(
        "privacy would not protect feddyn.client_memory; set recover=false for it, choose another strategy, or "
        "privacy=none"
    )


# ---------------------------------------------------------------- what the server believes


def memories(strategy: FedDyn) -> Model:
    """The mean of all U_k, with N = 3."""
    kept = by_client(strategy.state.clients)
    return {n: sum(ref.f64(u[n]) for u in kept.values()) / 3 for n in ref.parameters(fed.make_model())}


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_honest_clients_give_the_bits_of_the_papers_form(weighting: str, dtype: str) -> None:
    start = fed.make_model(dtype)
    found = []
    for recover in (True, False):
        strategy = FedDyn(num_clients=3, weighting=weighting, recover=recover, **OPEN)  # type: ignore[arg-type]
        done = fed.rounds(strategy, start, fed.noisy())
        found.append([fed.bits(each.returned or {}) for each in done] + [fed.bits(strategy.state.memory)])
    assert found[0] == found[1]


def changed(replies: list[Message], change: Callable[[Model], Model]) -> list[Message]:
    """The replies, in which the first client says this of what it keeps."""
    content = replies[0].content
    content[KEPT] = to_record(change(views(content[KEPT])))
    return replies


@pytest.mark.parametrize(
    "change", [lambda u: -u, lambda u: 0 * u, lambda u: 3.0 * u, lambda u: u[..., ::-1].copy()]
)
def test_a_memory_that_the_models_do_not_explain_restarts_all(change: Any) -> None:
    strategy, start = FedDyn(num_clients=3, **OPEN), fed.make_model()
    first = fed.play(strategy, 1, start, fed.noisy())
    lied = fed.play(
        strategy,
        2,
        first.returned or {},
        fed.noisy(),
        lambda replies: changed(replies, lambda u: {n: change(a).astype(a.dtype) for n, a in u.items()}),
    )
    assert lied.metrics["feddyn/restarts"] == 1 and lied.metrics["feddyn/memory"] == 0.0
    assert strategy.state.clients is None
    third = fed.play(strategy, 3, lied.returned or {}, fed.noisy())
    assert third.config["feddyn.restarts"] == 1 and third.metrics["feddyn/restarts"] == 1
    for name, u in memories(strategy).items():
        np.testing.assert_allclose(strategy.state.memory[name], u, rtol=0, atol=1e-7)


def test_a_memory_that_differs_in_last_bits_is_put_right_without_a_restart() -> None:
    strategy, start = FedDyn(num_clients=3, **OPEN), fed.make_model()

    def next_up(replies: list[Message]) -> list[Message]:
        return changed(
            replies, lambda u: {n: np.nextafter(a, np.float32(9)).astype(a.dtype) for n, a in u.items()}
        )

    for number in range(1, 30):
        start = fed.play(strategy, number, start, fed.noisy(), next_up).returned or {}
    assert strategy.state.restarts == 0
    for name, u in memories(strategy).items():
        np.testing.assert_allclose(strategy.state.memory[name], u, rtol=0, atol=1e-5)


@fed.PROPERTY
@given(
    st.lists(
        st.tuples(st.sets(st.integers(0, 6), min_size=1, max_size=4), st.integers(0, 2**32 - 1)),
        min_size=1,
        max_size=8,
    ),
    st.booleans(),
)
def test_u_is_the_mean_of_what_is_believed_whoever_comes(cohorts: list[Any], by_examples: bool) -> None:
    """More ids than N = 3, honest and wrong ones, and counts of examples that change."""
    state, sent = FedDynState(), {"w": np.zeros(3)}
    for who, seed in cohorts:
        rng, ids = np.random.default_rng(seed), sorted(who)
        models = [{"w": rng.normal(size=3)} for _ in ids]
        lies = [{"w": rng.normal(size=3) * rng.integers(0, 2)} for _ in ids]
        counts = [float(n) for n in rng.integers(1, 100, len(ids))] if by_examples else None
        shares = shares_of(counts or [1.0] * len(ids))
        given = feddyn.Memories(ids, lies, counts)
        sent, state = feddyn.recovering(sent, models, shares, given, state, num_clients=3)
        kept = by_client(state.clients or {})
        assert len(kept) <= 3
        weights = shares_of([float(state.examples[str(k)]) for k in kept]) if by_examples and kept else [1 / 3] * 3
        want = sum((q * kept[k]["w"] for q, k in zip(weights, kept, strict=False)), np.zeros(3))
        np.testing.assert_allclose(state.memory["w"], want, rtol=0, atol=1e-12)  # type: ignore[index]
