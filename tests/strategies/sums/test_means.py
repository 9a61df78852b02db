"""What every rule needs of a cohort: N, E, the mean update, averaged buffers, shares."""

from __future__ import annotations

from typing import Any

import federation as fed
import flwr.serverapp.strategy as flwr
import numpy as np
import pytest
import reference as ref
from federation import SHARES, UNIFORM
from hypothesis import given
from hypothesis import strategies as st

from fedstride.arrays.named import Layout, declare
from fedstride.errors import ConfigError
from strategies import Fedalr, FedAvg, FedLWS, FedNNNN, Momentum, TwoDLRD
from strategies.replies.screening import screen
from strategies.sums.means import add_step, averaged_buffers, movement


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_movement_is_the_oracles(dtype: str) -> None:
    sent = fed.make_model(dtype)
    clients = fed.noisy()(sent, 1)
    got = movement(sent, clients, SHARES)
    want = ref.FedNNNN(1.0, 0.0).round(sent, clients, SHARES)
    near = {"rel": 1e-12}
    assert pytest.approx(want["N"], **near) == got.whole.N
    assert pytest.approx(want["E"], **near) == got.whole.E
    assert {layer: norms.N for layer, norms in got.layers.items()} == pytest.approx(want["layer_N"], **near)
    assert {layer: norms.E for layer, norms in got.layers.items()} == pytest.approx(want["layer_E"], **near)
    assert list(got.layers) == ["conv1", "bn1", "fc", "scale"]
    assert list(got.update) == ref.parameters(sent)
    assert all(array.dtype == np.float64 for array in got.update.values())


@fed.PROPERTY
@given(fed.cohorts())
def test_the_average_never_moves_further_than_the_clients(cohort: fed.AnyCohort) -> None:
    got = movement(*cohort)
    assert all(0.0 <= norms.N <= norms.E for norms in (got.whole, *got.layers.values()))


@fed.PROPERTY
@given(fed.cohorts(m=1), st.integers(2, 4))
def test_identical_clients_agree_on_n_and_e(cohort: fed.AnyCohort, m: int) -> None:
    got = movement(cohort.sent, cohort.clients * m, [1.0 / m] * m)
    assert pytest.approx(got.whole.E, rel=1e-12) == got.whole.N


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
    got = add_step(sent, {"a.weight": np.array([0.5]), "b": np.array([0.25])}, {"n": np.array([4], np.int32)})
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
    assert pytest.approx(want.whole, rel=1e-12) == got.whole


def test_buffers_of_torch_tensors() -> None:
    sent = fed.make_model(np.float64)
    clients = fed.noisy()(sent, 1)
    got = averaged_buffers(fed.to_torch(sent), [fed.to_torch(client) for client in clients], SHARES)
    fed.assert_same_numbers(got, averaged_buffers(sent, clients, SHARES))


# ---------------------------------------------------------------- declared buffers


def test_a_buffer_that_nobody_changed_keeps_its_bits() -> None:
    """0.1 + 0.3 + 0.6 is not 1 in floating point."""
    shares = [0.1] * 10
    positions = np.random.default_rng(0).normal(size=1000)
    sent = declare({"w": np.ones(2), "positions": positions}, ["positions"])
    got = averaged_buffers(sent, [dict(sent)] * 10, shares)
    assert got["positions"].tobytes() == positions.tobytes()


@pytest.mark.parametrize("pattern", ["encoder.positions", "*.positions", "enc*"])
def test_declared_buffers_are_no_parameters(pattern: str) -> None:
    model = {"fc.weight": np.ones(2), "encoder.positions": np.ones(3), "fc.running_mean": np.ones(1)}
    layout = Layout.of(declare(model, [pattern]))
    assert (layout.parameters, layout.buffers) == (("fc.weight",), ("encoder.positions", "fc.running_mean"))


def test_a_declared_buffer_that_the_model_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"buffers = 'pos' is not allowed: no array of the model .*it has w"):
        declare({"w": np.ones(1)}, ["pos"])


RULES = {
    "fedavg": lambda **o: FedAvg(**o),
    "fednnnn": lambda **o: FedNNNN(**o),
    "momentum": lambda **o: Momentum(**o),
    "fedalr": lambda **o: Fedalr(**o),
    "fedlws": lambda **o: FedLWS(FedAvg(**o), beta=5.0),
    "two_d_lrd": lambda **o: TwoDLRD(FedLWS(FedNNNN(**o), beta=5.0)),
    "fedavgm": lambda buffers, **o: FedLWS(flwr.FedAvgM(server_momentum=0.9, **o), beta=5.0, buffers=buffers),
}


@pytest.mark.parametrize("name", RULES)
def test_every_rule_averages_declared_buffers_and_nothing_else(name: str) -> None:
    """They enter no norm: the parameters have the bits of a model without them."""
    start = fed.only_parameters(fed.make_model())
    table = {"pos.table": np.linspace(-1, 1, 50, dtype=np.float32), "pos.seen": np.zeros(2, np.float32)}

    def train(sent: ref.Model, t: int) -> list[ref.Model]:
        models = fed.noisy()({n: a for n, a in sent.items() if n not in table}, t)
        return [
            {**w_k, "pos.table": sent["pos.table"], "pos.seen": sent["pos.seen"] + k}
            for k, w_k in enumerate(models)
        ]

    make = RULES[name]
    plain = fed.rounds(make(buffers=(), **fed.OPEN), start, fed.noisy(), [1, 2, 3])
    declared = fed.rounds(make(buffers=["pos.*"], **fed.OPEN), {**start, **table}, train, [1, 2, 3])
    for t, (one, other) in enumerate(zip(plain, declared, strict=True), start=1):
        assert one.returned is not None and other.returned is not None
        for key in start:
            assert other.returned[key].tobytes() == one.returned[key].tobytes(), key
        assert other.returned["pos.table"].tobytes() == table["pos.table"].tobytes()
        share = 1.0 if name == "fedalr" else 1.5  # clients 0, 1, 2 with 1/m or 10, 30, 60 examples
        np.testing.assert_allclose(other.returned["pos.seen"], share * t, rtol=1e-6)
