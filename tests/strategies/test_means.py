"""What every rule needs of a cohort: N, E, the mean update, averaged buffers, shares."""

from __future__ import annotations

from typing import Any

import federation as fed
import numpy as np
import pytest
import reference as ref
from federation import SHARES, UNIFORM
from hypothesis import given
from hypothesis import strategies as st

from strategies.means import averaged_buffers, moved, movement
from strategies.screening import screen


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_movement_is_the_oracles(dtype: str) -> None:
    sent = fed.make_model(dtype)
    clients = fed.noisy()(sent, 1)
    got = movement(sent, clients, SHARES)
    want = ref.FedNNNN(1.0, 0.0).round(sent, clients, SHARES)
    near = {"rel": 1e-12}
    assert pytest.approx(want["N"], **near) == got.N
    assert pytest.approx(want["E"], **near) == got.E
    assert got.layer_N == pytest.approx(want["layer_N"], **near)
    assert got.layer_E == pytest.approx(want["layer_E"], **near)
    assert list(got.layer_N) == list(got.layer_E) == ["conv1", "bn1", "fc", "scale"]
    assert list(got.update) == ref.parameters(sent)
    assert all(array.dtype == np.float64 for array in got.update.values())


@fed.PROPERTY
@given(fed.cohorts())
def test_the_average_never_moves_further_than_the_clients(cohort: fed.AnyCohort) -> None:
    got = movement(*cohort)
    assert 0.0 <= got.N <= got.E
    assert all(got.layer_N[layer] <= got.layer_E[layer] for layer in got.layer_N)


@fed.PROPERTY
@given(fed.cohorts(m=1), st.integers(2, 4))
def test_identical_clients_agree_on_n_and_e(cohort: fed.AnyCohort, m: int) -> None:
    got = movement(cohort.sent, cohort.clients * m, [1.0 / m] * m)
    assert pytest.approx(got.E, rel=1e-12) == got.N


@pytest.mark.parametrize(
    ("values", "dtype", "average"),
    [
        ([1, 2], "int64", 2),
        ([2, 3], "int64", 2),
        ([-1, -2], "int32", -2),
        ([250, 251], "uint8", 250),
        ([7, 9], "int16", 8),
        ([1.0, 2.0], "float32", 1.5),
        ([1.0, 2.0], "float16", 1.5),
    ],
)
def test_buffers_are_averaged_and_integers_rounded_half_to_even(values: Any, dtype: str, average: float) -> None:
    models = [{"bn.running_mean": np.array([value], dtype)} for value in values]
    got = averaged_buffers(models[0], models, [0.5, 0.5])["bn.running_mean"]
    assert got == average
    assert got.dtype == dtype


@pytest.mark.parametrize("name", ["bn.running_mean", "running_var", "a.b.num_batches_tracked"])
def test_buffers_are_known_by_their_last_name(name: str) -> None:
    sent = {name: np.zeros(2, np.float32), f"{name}.weight": np.zeros(2, np.float32)}
    models = [{key: array + k for key, array in sent.items()} for k in (1, 3)]
    assert list(averaged_buffers(sent, models, [0.5, 0.5])) == [name]
    assert list(movement(sent, models, [0.5, 0.5]).update) == [f"{name}.weight"]


def test_buffers_weigh_by_shares() -> None:
    models = [{"n": np.array([value])} for value in (10, 20, 30)]
    assert averaged_buffers(models[0], models, SHARES)["n"] == 25
    assert averaged_buffers(models[0], models, UNIFORM)["n"] == 20


@pytest.mark.parametrize("sent", [False, True])
def test_booleans_follow_the_majority_and_a_tie_the_sent_value(sent: bool) -> None:
    votes = np.array([[True, True, False, False], [True, True, False, True], [True, False, False, True]])
    models = [{"mask": vote} for vote in votes]
    got = averaged_buffers({"mask": np.array([sent] * 4)}, models, [0.1, 0.4, 0.5])["mask"]
    assert got.dtype == bool
    assert got.tolist() == [True, sent, False, True]  # the second: 0.1 + 0.4 against 0.5


def test_a_tie_is_a_tie_whatever_rounding_says() -> None:
    shares = [1 / 12, 4 / 12, 1 / 12, 6 / 12]
    assert shares[0] + shares[1] + shares[2] != 0.5  # not by sum(), which compensates from Python 3.12 on
    models = [{"mask": np.array([vote])} for vote in (True, True, True, False)]
    for sent in (True, False):
        assert averaged_buffers({"mask": np.array([sent])}, models, shares)["mask"] == sent


def test_a_moved_model_keeps_order_and_dtypes() -> None:
    sent = {
        "b": np.array([1.0], np.float16),
        "n": np.array([3], np.int32),
        "a.weight": np.array([2.0], np.float64),
    }
    got = moved(sent, {"a.weight": np.array([0.5]), "b": np.array([0.25])}, {"n": np.array([4], np.int32)})
    fed.assert_close(got, {"b": 1.25, "n": 4, "a.weight": 2.5}, sent)  # type: ignore[dict-item]


@fed.PROPERTY
@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=8))
def test_shares_sum_to_one(counts: list[int]) -> None:
    sent = {"a": np.zeros(2)}
    cohort = screen([fed.reply(node, sent, n) for node, n in enumerate(counts, 1)], sent)
    assert sum(cohort.shares("examples")) == pytest.approx(1.0, abs=1e-12)
    assert cohort.shares("examples") == pytest.approx([n / sum(counts) for n in counts])
    assert cohort.shares("uniform") == [1.0 / len(counts)] * len(counts)


def test_movement_of_torch_tensors() -> None:
    sent = fed.make_model(np.float64)
    clients = fed.noisy()(sent, 1)
    got = movement(fed.to_torch(sent), [fed.to_torch(client) for client in clients], SHARES)
    want = movement(sent, clients, SHARES)
    fed.assert_same_numbers(got.update, want.update)
    assert pytest.approx((want.N, want.E), rel=1e-12) == (got.N, got.E)


def test_buffers_of_torch_tensors() -> None:
    sent = fed.make_model(np.float64)
    clients = fed.noisy()(sent, 1)
    got = averaged_buffers(fed.to_torch(sent), [fed.to_torch(client) for client in clients], SHARES)
    fed.assert_same_numbers(got, averaged_buffers(sent, clients, SHARES))
