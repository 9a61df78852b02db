"""L-DAWA: the pure step and the strategy."""

from __future__ import annotations

from collections.abc import Sequence

import federation as fed
import numpy as np
import pytest
import reference as ref
from federation import OPEN, UNIFORM, Expected, printed
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

from fedstride.arrays.named import views
from strategies import LDAWA, FedLWS, fedavg, l_dawa

SENT: Model = {"w": np.array([1.0, -2.0])}  # the toy problem T1
CLIENTS: list[Model] = [{"w": np.array([0.8, -1.5])}, {"w": np.array([0.6, -2.1])}]


def oracle(sent: Model, clients: Sequence[Model], normalised: bool = False) -> Model:
    """(LD1), (LD2) as they stand, array by array."""
    step: Model = {}
    for name in ref.parameters(sent):
        w, w_ks = ref.f64(sent[name]), [ref.f64(w_k[name]) for w_k in clients]
        norms = [np.sqrt((w_k**2).sum()) * np.sqrt((w**2).sum()) for w_k in w_ks]
        kappa = [min(1.0, float((w_k * w).sum()) / n) if n else 1.0 for w_k, n in zip(w_ks, norms, strict=True)]
        divisor = sum(kappa) if normalised else len(clients)
        step[name] = sum(k * w_k for k, w_k in zip(kappa, w_ks, strict=True)) / divisor - w
    return ref.build(sent, step, ref.average_buffers(sent, clients, [1.0 / len(clients)] * len(clients)))


@pytest.mark.parametrize(
    ("normalised", "returned"),
    [(False, [0.6947232238, -1.7817562358]), (True, [0.7008464823, -1.7974605531])],
)
def test_worked(normalised: bool, returned: list[float]) -> None:
    model, kappa = l_dawa.aggregate(SENT, CLIENTS, normalised=normalised)
    assert kappa["w"] == [printed(0.9996539194), printed(0.9828721869)]
    assert model["w"] == printed(returned)


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounds_agree_with_the_oracle(dtype: str, normalised: bool) -> None:
    def expect(sent: Model, clients: Sequence[Model]) -> Expected:
        model = oracle(sent, clients, normalised)
        return Expected(model, model)

    fed.follow(LDAWA(normalised=normalised, **OPEN), fed.make_model(dtype), expect)


def test_rounds_with_other_clients_each_time() -> None:
    start = fed.make_model(np.float64)
    strategy, model, expected = LDAWA(**OPEN), start, fed.widened(start)
    for number, who in enumerate(([0, 1], [2], [0, 2], [1, 2]), 1):
        message = fed.configure(strategy, number, model)[0]
        models = fed.noisy()(fed.model_in(message), number)
        record, _ = strategy.aggregate_train(number, [fed.reply(k, models[k], 7 * k + 1, to=message) for k in who])
        expected = oracle(expected, [fed.noisy()(expected, number)[k] for k in who])
        model = views(record)
        fed.assert_close(model, expected, start)


def test_a_layer_that_is_orthogonal_gets_zero_and_an_opposite_one_keeps_its_sign() -> None:
    sent = {"a": np.array([1.0, 0.0]), "b": np.array([2.0])}
    client = {"a": np.array([0.0, 3.0]), "b": np.array([-4.0])}
    model, kappa = l_dawa.aggregate(sent, [client])
    assert kappa == {"a": [0.0], "b": [-1.0]}
    assert (model["a"].tolist(), model["b"].tolist()) == ([0.0, 0.0], [4.0])


def test_an_array_of_zeros_has_no_direction() -> None:
    sent = {"bias": np.zeros(2), "w": np.ones(2)}
    model, kappa = l_dawa.aggregate(sent, [{"bias": np.array([0.5, 0.1]), "w": np.zeros(2)}])
    assert kappa == {"bias": [1.0], "w": [1.0]}
    assert model["bias"].tolist() == [0.5, 0.1]


def test_without_agreement_a_normalised_layer_stays() -> None:
    sent = {"w": np.array([1.0, 0.0])}
    model, _ = l_dawa.aggregate(sent, [{"w": np.array([0.0, 1.0])}, {"w": np.array([-1.0, 0.0])}], normalised=True)
    assert model["w"].tolist() == [1.0, 0.0]


@fed.PROPERTY
@given(fed.cohorts(), st.floats(1e-3, 1e3))
def test_kappa_does_not_depend_on_the_length_of_the_sent_model(cohort: fed.AnyCohort, scale: float) -> None:
    sent, clients, _ = cohort
    one = l_dawa.cosines(sent, clients)
    other = l_dawa.cosines({name: scale * array for name, array in sent.items()}, clients)
    for name, values in one.items():
        assert other[name] == pytest.approx(values, abs=1e-12)
        assert all(-1.0 - 1e-12 <= value <= 1.0 for value in values)


@fed.PROPERTY
@given(fed.cohorts(m=3), st.permutations(range(3)))
def test_the_order_of_clients_does_not_matter(cohort: fed.AnyCohort, order: list[int]) -> None:
    sent, clients, _ = cohort
    other, _ = l_dawa.aggregate(sent, [clients[k] for k in order])
    fed.assert_close(other, l_dawa.aggregate(sent, clients)[0], sent, 1e-12)


@fed.PROPERTY
@given(fed.cohorts(m=3), st.lists(st.floats(0.1, 3.0), min_size=3, max_size=3))
def test_clients_in_the_direction_of_the_sent_model_are_averaged(cohort: fed.AnyCohort, s: list[float]) -> None:
    sent, _, _ = cohort
    clients = [{name: factor * array for name, array in sent.items()} for factor in s]
    fed.assert_close(l_dawa.aggregate(sent, clients)[0], fedavg.aggregate(sent, clients, UNIFORM), sent, 1e-9)


@pytest.mark.parametrize("scale", [1e-10, 1e15])
def test_models_of_any_scale(scale: float) -> None:
    model, _ = l_dawa.aggregate({"w": scale * SENT["w"]}, [{"w": scale * w_k["w"]} for w_k in CLIENTS])
    np.testing.assert_allclose(model["w"] / scale, [0.6947232238, -1.7817562358], rtol=1e-9)


def test_buffers_are_averaged_without_weights_and_not_scaled() -> None:
    start = fed.make_model()
    done = fed.play(LDAWA(**OPEN), 1, start, fed.noisy())
    want = ref.average_buffers(start, fed.noisy()(start, 1), UNIFORM)
    assert done.returned is not None and len(want) == 4
    fed.assert_close({n: done.returned[n] for n in want}, want, {n: start[n] for n in want})


def test_fedlws_without_beta_around_it_changes_nothing() -> None:
    start = fed.make_model()
    alone, wrapped = (
        fed.rounds(one, start, fed.noisy()) for one in (LDAWA(**OPEN), FedLWS(LDAWA(**OPEN), beta=0.0))
    )
    assert [fed.bits(done.returned or {}) for done in alone] == [fed.bits(done.returned or {}) for done in wrapped]


def test_torch_tensors_give_the_same_numbers() -> None:
    sent = fed.make_model(np.float64)
    clients = fed.noisy()(sent, 1)
    got, _ = l_dawa.aggregate(fed.to_torch(sent), [fed.to_torch(w_k) for w_k in clients])
    fed.assert_same_numbers(got, l_dawa.aggregate(sent, clients)[0])


@pytest.mark.parametrize("scale", [1e76, 1e77, 1e100, 1e154, 1e160, 1e300])
@pytest.mark.parametrize("normalised", [False, True])
def test_large_weights_have_the_cosines_of_small_ones(scale: float, normalised: bool) -> None:
    rng = np.random.default_rng(4)
    sent = {"a": rng.standard_normal((3, 4)), "b": rng.standard_normal(5)}
    clients = [{name: array + rng.standard_normal(array.shape) for name, array in sent.items()} for _ in range(3)]
    plain, kappa = l_dawa.aggregate(sent, clients, normalised=normalised)
    large = [{name: scale * array for name, array in each.items()} for each in (sent, *clients)]
    found, of_large = l_dawa.aggregate(large[0], large[1:], normalised=normalised)
    for name in sent:
        assert of_large[name] == pytest.approx(kappa[name], rel=1e-12)
        np.testing.assert_allclose(found[name] / scale, plain[name], rtol=1e-9, atol=1e-9)


def test_one_large_array_and_one_ordinary_one() -> None:
    sent, client = {"a": np.array([1.0, 2.0])}, {"a": np.array([1e200, 0.0])}
    assert l_dawa.cosines(sent, [client])["a"] == pytest.approx([1.0 / 5.0**0.5])
    assert l_dawa.cosines(client, [sent])["a"] == pytest.approx([1.0 / 5.0**0.5])
    assert l_dawa.cosines(client, [{"a": np.zeros(2)}])["a"] == [1.0]
