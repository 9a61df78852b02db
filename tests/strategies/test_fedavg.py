"""FedAvg, the pure function and the strategy."""

from __future__ import annotations

import federation as fed
import numpy as np
import pytest
from federation import OPEN, SHARES, UNIFORM, Expected
from hypothesis import given
from reference import Model

from strategies import FedAvg, fedavg

BY_WEIGHTING = {"examples": SHARES, "uniform": UNIFORM}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_five_rounds_agree_with_the_oracle(dtype: str, weighting: str) -> None:
    def oracle(sent: Model, clients: list[Model]) -> Expected:
        model = fed.fedavg_oracle(sent, clients, BY_WEIGHTING[weighting])
        return Expected(model, model, {"screening/rejected": 0})

    fed.follow(FedAvg(weighting=weighting, **OPEN), fed.make_model(dtype), oracle)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_five_pure_steps_agree_with_the_oracle(dtype: str) -> None:
    sent = start = fed.make_model(dtype)
    expected = fed.widened(start)
    for server_round in range(1, 6):
        sent = fedavg.aggregate(sent, fed.noisy()(sent, server_round), SHARES)
        expected = fed.fedavg_oracle(expected, fed.noisy()(expected, server_round))
        fed.assert_close(sent, expected, start)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_all_is_computed_in_float64_and_rounded_once(dtype: str) -> None:
    sent = fed.make_model(dtype)
    clients = fed.noisy()(sent, 1)
    want = fed.fedavg_oracle(fed.widened(sent), [fed.widened(client) for client in clients])
    got = fedavg.aggregate(sent, clients, SHARES)
    assert fed.bits(got) == fed.bits({name: want[name].astype(array.dtype) for name, array in sent.items()})


def test_worked_round() -> None:
    returned = fed.play(FedAvg(**OPEN), 1, fed.WORKED, fed.worked).returned
    assert returned is not None
    assert returned["a.weight"][0] == pytest.approx([1.01, -2.01], abs=1e-12)


def test_the_returned_model_is_sent_next() -> None:
    first, second = fed.rounds(FedAvg(**OPEN), fed.make_model(), fed.noisy(), [1, 2])
    assert first.returned is not None
    assert fed.bits(second.sent) == fed.bits(first.returned)


@fed.PROPERTY
@given(fed.cohorts(m=1))
def test_one_client_is_followed_exactly(cohort: fed.AnyCohort) -> None:
    assert fed.bits(fedavg.aggregate(*cohort)) == fed.bits(cohort.clients[0])


@fed.PROPERTY
@given(fed.cohorts(m=1))
def test_identical_clients_are_followed(cohort: fed.AnyCohort) -> None:
    got = fedavg.aggregate(cohort.sent, cohort.clients * 3, SHARES)
    fed.assert_close(got, cohort.clients[0], cohort.sent, 1e-13)


@fed.PROPERTY
@given(fed.cohorts())
def test_the_mean_of_the_models(cohort: fed.AnyCohort) -> None:
    got = fedavg.aggregate(*cohort)
    for name, array in got.items():
        mean = sum(share * client[name] for share, client in zip(cohort.shares, cohort.clients, strict=True))
        np.testing.assert_allclose(array, mean, rtol=0, atol=1e-12)


def test_torch_tensors_give_the_same_numbers() -> None:
    sent = fed.make_model(np.float64)
    clients = fed.noisy()(sent, 1)
    got = fedavg.aggregate(fed.to_torch(sent), [fed.to_torch(client) for client in clients], SHARES)
    fed.assert_same_numbers(got, fedavg.aggregate(sent, clients, SHARES))
