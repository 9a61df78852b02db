"""FedMGDA+: the quadratic program, the pure step and the strategy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import federation as fed
import numpy as np
import pytest
import reference as ref
from federation import OPEN, SHARES, printed
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

from fedstride.arrays.named import views
from strategies import FedMGDAPlus, fedmgda_plus

SENT: Model = {"w": np.array([1.0, -2.0])}  # the toy problem T1
CLIENTS: list[Model] = [{"w": np.array([0.8, -1.5])}, {"w": np.array([0.6, -2.1])}]
P = [0.25, 0.75]
ORIGIN: Model = {"w": np.zeros(2)}
THREE: list[Model] = [{"w": -np.array(g, float)} for g in ((3, 4), (1, 0), (0, 2))]


def units(sent: Model, clients: Sequence[Model]) -> np.ndarray:
    """U_k as rows."""
    g = np.array(
        [
            np.concatenate([(ref.f64(sent[n]) - ref.f64(w_k[n])).ravel() for n in ref.parameters(sent)])
            for w_k in clients
        ]
    )
    lengths = np.linalg.norm(g, axis=1, keepdims=True)
    return np.where(lengths < 1e-12, 0.0, g / np.where(lengths < 1e-12, 1.0, lengths))


def is_least(U: np.ndarray, lam: Any, p: Any, epsilon: float) -> None:
    """lambda fulfils the constraints, and no exchange between two weights shortens d (MG2 is convex)."""
    lam, p = np.array(lam), np.array(p)
    assert lam.sum() == pytest.approx(1.0, abs=1e-9)
    least, most = np.maximum(0.0, p - epsilon), np.minimum(1.0, p + epsilon)
    assert (lam >= least - 1e-9).all() and (lam <= most + 1e-9).all()
    slope = U @ (U.T @ lam)
    can_fall, can_rise = lam > least + 1e-7, lam < most - 1e-7
    if can_fall.any() and can_rise.any():
        assert slope[can_fall].max() <= slope[can_rise].min() + 1e-5


@pytest.mark.parametrize(
    ("epsilon", "lam", "returned"),
    [
        (0.0, [0.25, 0.75], [0.1795454558, -1.9497825461]),
        (0.1, [0.35, 0.65], [0.2394206382, -1.8326813145]),
        (1.0, [0.5, 0.5], [0.3292334118, -1.6570294671]),
    ],
)
def test_worked(epsilon: float, lam: list[float], returned: list[float]) -> None:
    model, found, _ = fedmgda_plus.aggregate(SENT, CLIENTS, P, epsilon=epsilon)
    assert found == pytest.approx(lam, abs=1e-9)
    assert model["w"] == pytest.approx(returned, abs=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "lam", "d"), [(0.1, [0.40, 0.34, 0.26], [0.58, 0.58]), (1.0, [0.0, 0.5, 0.5], [0.5, 0.5])]
)
def test_worked_with_three_clients(epsilon: float, lam: list[float], d: list[float]) -> None:
    model, found, length = fedmgda_plus.aggregate(ORIGIN, THREE, [0.5, 0.3, 0.2], epsilon=epsilon)
    assert found == pytest.approx(lam, abs=1e-9)
    assert -model["w"] == pytest.approx(d, abs=1e-9)
    assert length**2 == pytest.approx(sum(each**2 for each in d), abs=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounds_with_other_clients_each_time(dtype: str) -> None:
    start = fed.make_model(dtype)
    strategy = FedMGDAPlus(epsilon=0.2, server_lr=0.3, **OPEN)
    model, expected = start, fed.widened(start)
    for number, who in enumerate(([0, 1], [2], [0, 2], [0, 1, 2]), 1):
        message = fed.configure(strategy, number, model)[0]
        models, examples = fed.noisy()(fed.model_in(message), number), [10 * (k + 1) for k in who]
        arrived = [fed.reply(k, models[k], n, to=message) for k, n in zip(who, examples, strict=True)]
        record, metrics = strategy.aggregate_train(number, arrived[::-1])
        clients, p = [fed.noisy()(expected, number)[k] for k in who], [n / sum(examples) for n in examples]
        U, lam = units(expected, clients), metrics["fedmgda_plus/lambda"]
        is_least(U, lam, p, 0.2)
        d = U.T @ np.array(lam)
        assert metrics["fedmgda_plus/d"] == pytest.approx(np.linalg.norm(d), rel=1e-6)
        step, place = dict[str, Any](), 0
        for name in ref.parameters(start):
            size = start[name].size
            step[name] = -0.3 * d[place : place + size].reshape(start[name].shape)
            place += size
        expected = ref.build(expected, step, ref.average_buffers(expected, clients, p))
        model = views(record)
        fed.assert_close(model, expected, start)


# ---------------------------------------------------------------- identities


@fed.PROPERTY
@given(fed.cohorts())
def test_without_epsilon_the_weights_are_p(cohort: fed.AnyCohort) -> None:
    sent, clients, shares = cohort
    assert fedmgda_plus.aggregate(sent, clients, shares, epsilon=0.0)[1] == shares


@fed.PROPERTY
@given(fed.cohorts())
def test_the_direction_is_least_and_shorter_the_freer_the_weights(cohort: fed.AnyCohort) -> None:
    sent, clients, shares = cohort
    U, before = units(sent, clients), 1.0 + 1e-9
    for epsilon in (0.0, 0.1, 0.4, 1.0):
        _, lam, length = fedmgda_plus.aggregate(sent, clients, shares, epsilon=epsilon)
        is_least(U, lam, shares, epsilon)
        assert length <= before + 1e-9
        before = length
    d = U.T @ np.array(lam)
    moved = np.linalg.norm(U, axis=1) > 0.5
    assert (U[moved] @ d >= d @ d - 1e-6).all()  # a common descent direction


@fed.PROPERTY
@given(fed.cohorts(m=3), st.lists(st.sampled_from([1e-6, 0.5, 3.0, 1e6]), min_size=3, max_size=3))
def test_lengths_of_updates_do_not_matter(cohort: fed.AnyCohort, factors: list[float]) -> None:
    _, clients, shares = cohort
    origin = {name: np.zeros_like(array) for name, array in clients[0].items()}
    scaled = [{n: f * a for n, a in w_k.items()} for f, w_k in zip(factors, clients, strict=True)]
    one, other = (fedmgda_plus.aggregate(origin, each, shares, epsilon=0.3)[0] for each in (clients, scaled))
    fed.assert_close(other, one, origin, 1e-6)


def test_two_different_directions_are_halved_if_weights_are_free() -> None:
    assert fedmgda_plus.aggregate(SENT, CLIENTS, P, epsilon=1.0)[1] == pytest.approx([0.5, 0.5], abs=1e-9)


def test_a_client_that_did_not_move_gives_no_step_if_weights_are_free() -> None:
    model, lam, length = fedmgda_plus.aggregate(SENT, [CLIENTS[0], SENT], [0.5, 0.5], epsilon=1.0)
    assert (lam, length) == (pytest.approx([0.0, 1.0], abs=1e-9), pytest.approx(0.0, abs=1e-9))
    assert model["w"] == pytest.approx(SENT["w"], abs=1e-9)


def test_identical_clients_move_by_the_server_rate() -> None:
    for scale in (1e-9, 1.0, 1e15):
        clients = [{"w": SENT["w"] + scale * np.array([0.6, 0.8])}] * 3
        model, _, length = fedmgda_plus.aggregate(SENT, clients, SHARES, epsilon=0.1, server_lr=0.5)
        assert length == pytest.approx(1.0, rel=1e-6)
        assert model["w"] == pytest.approx(SENT["w"] + [0.3, 0.4], rel=1e-6)


# ---------------------------------------------------------------- the quadratic program


def nearly_parallel(angle: float) -> np.ndarray:
    """K of two unit vectors with this angle, in radians, between them."""
    return np.array([[1.0, np.cos(angle)], [np.cos(angle), 1.0]])


@pytest.mark.parametrize("angle", [1.0, 0.1, 0.01, 1e-3, 1e-4])
@pytest.mark.parametrize(("p", "epsilon", "lam"), [(0.9, 1.0, 0.5), (0.9, 0.3, 0.6), (0.2, 0.1, 0.3)])
def test_nearly_parallel_updates_have_the_exact_weights(
    angle: float, p: float, epsilon: float, lam: float
) -> None:
    found = fedmgda_plus.weights(nearly_parallel(angle), [p, 1.0 - p], epsilon)
    assert found == pytest.approx([lam, 1.0 - lam], abs=1e-7)


def test_three_nearly_parallel_updates() -> None:
    """In a plane, the middle one between two others: the shortest mean has no part of it."""
    angles = np.array([-0.02, 0.005, 0.01])
    found = fedmgda_plus.weights(np.cos(angles[:, None] - angles), [0.1, 0.8, 0.1], 1.0)
    assert found == pytest.approx([0.5, 0.0, 0.5], abs=1e-6)


def test_equal_updates_keep_the_weights_of_p() -> None:
    p = [0.5, 0.3, 0.2]
    assert fedmgda_plus.weights(np.ones((3, 3)), p, 0.1) == p
    two_equal = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert fedmgda_plus.weights(two_equal, p, 1.0) == pytest.approx([0.35, 0.15, 0.5], abs=1e-9)


@st.composite
def programs(draw: st.DrawFn) -> tuple[np.ndarray, list[float], float]:
    """K of unit vectors, some of them equal, opposite, nearly parallel or zero; p; epsilon."""
    m, size = draw(st.integers(1, 12)), draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    U = rng.standard_normal((m, size))
    alike = draw(st.sampled_from([0.0, 1e-1, 1e-3, 1e-6]))
    if alike:
        U = rng.standard_normal(size) + alike * U
    U = U[rng.integers(0, m, m)] if draw(st.booleans()) else U
    U = U * rng.choice([1.0, -1.0, 0.0], (m, 1), p=[0.7, 0.2, 0.1])
    lengths = np.linalg.norm(U, axis=1, keepdims=True)
    U = np.divide(U, lengths, out=np.zeros_like(U), where=lengths > 0.0)
    p = rng.dirichlet(np.full(m, draw(st.sampled_from([0.1, 1.0, 10.0]))))
    return U @ U.T, list(p), draw(st.sampled_from([0.01, 0.1, 0.5, 1.0]))


@fed.PROPERTY
@given(programs())
def test_the_solution_meets_the_conditions_of_an_optimum(program: tuple[np.ndarray, list[float], float]) -> None:
    """No exchange of weight between two clients shortens the direction: far closer than a step method comes."""
    K, p, epsilon = program
    lam = np.array(fedmgda_plus.weights(K, p, epsilon))
    least, most = np.maximum(0.0, np.array(p) - epsilon), np.minimum(1.0, np.array(p) + epsilon)
    assert lam.sum() == pytest.approx(1.0, abs=1e-9)
    assert (lam >= least).all() and (lam <= most).all()
    slope, can_fall, can_rise = K @ lam, lam > least + 1e-9, lam < most - 1e-9
    if can_fall.any() and can_rise.any():
        assert slope[can_fall].max() <= slope[can_rise].min() + 1e-9


def test_many_clients_have_an_exact_solution() -> None:
    rng = np.random.default_rng(3)
    U = rng.standard_normal((60, 500)) + 1.0
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    is_least(U, fedmgda_plus.weights(U @ U.T, [1 / 60] * 60, 0.01), [1 / 60] * 60, 0.01)


def test_buffers_are_averaged_with_p_and_not_with_lambda() -> None:
    start = fed.make_model()
    done = fed.play(FedMGDAPlus(epsilon=1.0, **OPEN), 1, start, fed.noisy())
    want = ref.average_buffers(start, fed.noisy()(start, 1), SHARES)
    assert done.returned is not None and len(want) == 4
    fed.assert_close({n: done.returned[n] for n in want}, want, {n: start[n] for n in want})


def test_the_worked_numbers_through_messages() -> None:
    strategy = FedMGDAPlus(**OPEN)
    message = fed.configure(strategy, 1, SENT)[0]
    record, _ = strategy.aggregate_train(1, [fed.reply(k, CLIENTS[k], (10, 30)[k], to=message) for k in (1, 0)])
    assert views(record)["w"] == pytest.approx([0.2394206382, -1.8326813145], abs=1e-9)
    assert printed(0.35) == strategy.last_cohort.shares("examples")[0] + 0.1  # type: ignore[union-attr]
