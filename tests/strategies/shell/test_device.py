"""Rules on a device: every strategy has the numbers of the host, and copies no model from the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import federation as fed
import numpy as np
import pytest
from all_strategies import ALL, make_model
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import strategy as flwr
from reference import Model

from fedstride.arrays.named import to_record, views
from fedstride.arrays.on_device import TensorArray, record_of
from strategies import DifferentialPrivacy, FedAvg, FedLWS, FedNNNN, Scaffold
from strategies.replies.cohort import Cohort
from strategies.replies.screening_settings import Screening
from strategies.shell.stack import RoundResult
from strategies.shell.wrapper import Wrapper

OPEN: dict[str, Any] = {"min_train_nodes": 1, "min_evaluate_nodes": 1, "min_available_nodes": 1}
torch = pytest.importorskip("torch")
Arrange = Callable[[list[Message]], list[Message]]


@pytest.fixture(autouse=True)
def no_silent_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with tensors on a GPU, numpy's functions fail."""

    def refuse(*args: object, **options: object) -> Any:
        raise TypeError("numpy cannot read a tensor on a device")

    monkeypatch.setattr(torch.Tensor, "__array__", refuse)


def on_a_device(record: ArrayRecord) -> ArrayRecord:
    return record_of({name: torch.tensor(array) for name, array in views(record).items()})


def from_a_device(replies: list[Message], which: Sequence[int] | None = None) -> list[Message]:
    """The replies, backwards, with the arrays of these ones (default: all) on a device."""
    for i, message in enumerate(replies):
        if message.has_content() and (which is None or i in which):
            moved = {name: on_a_device(record) for name, record in message.content.array_records.items()}
            message.content = RecordDict({**message.content, **moved})
    return fed.backwards(replies)


def tensor_arrays(message: Message) -> list[TensorArray]:
    records = message.content.array_records.values()
    return [array for record in records for array in record.values() if isinstance(array, TensorArray)]


def assert_alike(one: fed.Round, other: fed.Round, tolerance: float = 1e-6) -> None:
    """The same but for the last digits."""
    for a, b in ((one.sent, other.sent), (one.returned, other.returned)):
        assert a is not None
        assert b is not None
        assert list(a) == list(b)
        for name in a:
            assert a[name].dtype == b[name].dtype
            assert a[name].shape == b[name].shape
            np.testing.assert_allclose(b[name], a[name], rtol=tolerance, atol=tolerance, err_msg=name)
    assert list(one.metrics) == list(other.metrics)
    for key, value in one.metrics.items():
        np.testing.assert_allclose(other.metrics[key], value, rtol=1e-5, atol=1e-5, err_msg=key)


# ---------------------------------------------------------------- every strategy


@pytest.mark.parametrize("name", ALL)
def test_a_run_on_a_device_has_the_numbers_of_the_host(name: str) -> None:
    host = fed.rounds(ALL[name](), make_model(), fed.noisy(), [1, 2, 3])
    device = fed.rounds(ALL[name](), make_model(), fed.noisy(), [1, 2, 3], from_a_device)
    for one, other in zip(host, device, strict=True):
        assert_alike(one, other)


@pytest.mark.parametrize("name", ALL)
def test_a_restored_strategy_goes_on_with_the_same_bits(name: str) -> None:
    strategy, fresh = ALL[name](), ALL[name]()
    first = fed.rounds(strategy, make_model(), fed.noisy(), [1, 2], from_a_device)
    state = strategy.state_dict()
    assert all(type(value) in (np.ndarray, int, float, str, bool) for value in state.values())
    fresh.load_state_dict(state)
    model = first[-1].returned
    assert model is not None
    one, other = (fed.play(each, 3, model, fed.noisy(), from_a_device) for each in (strategy, fresh))
    assert fed.bits(one.returned or {}) == fed.bits(other.returned or {})
    assert one.metrics == other.metrics


class Reads(list[str]):
    """The shapes of the tensors whose bytes are read between `begin` and `end`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.active, original = False, TensorArray.data.fget

        def noted(array: TensorArray) -> bytes:
            if self.active:
                self.append(str(array.shape))
            return original(array)

        monkeypatch.setattr(TensorArray, "data", property(noted))

    def during(self, act: Callable[..., Any], *args: Any) -> Any:
        self.active = True
        try:
            return act(*args)
        finally:
            self.active = False


READS_BYTES = ("FedLAW", "Validated", "FedLWS(FedAvg)", "FedAvgM", "FedAdam", "FedMedian", "Krum", "FedTrimmedAvg")
"""Strategies whose rule is Flower's, or needs numpy arrays: FedLAW's gradients, Validated's losses."""

STAY = [name for name in ALL if not any(each in name for each in READS_BYTES)]


def test_most_strategies_stay_on_the_device() -> None:
    assert len(STAY) > 20
    assert {name for name in ALL if ALL[name]().works_on_tensors} >= set(STAY)


@pytest.mark.parametrize("name", STAY)
def test_no_model_is_copied_from_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy, record, reads = ALL[name](), to_record(make_model()), Reads(monkeypatch)
    for server_round in (1, 2, 3):
        ask = reads.during(strategy.configure_train, server_round, record, ConfigRecord(), fed.MemoryGrid())
        (message, *_) = reads.during(list, ask)
        clients = zip((1, 2, 3), fed.noisy()(fed.model_in(message), server_round), fed.EXAMPLES, strict=True)
        replies = from_a_device([fed.reply(node, w_k, n, to=message) for node, w_k, n in clients])
        assert len(tensor_arrays(replies[0])) >= len(make_model())
        record, _ = reads.during(strategy.aggregate_train, server_round, replies)
        assert all(isinstance(array, TensorArray) for array in record.values())
    assert not reads


# ---------------------------------------------------------------- some clients, and screening


def test_some_clients_on_the_device_and_others_on_the_host() -> None:
    want = fed.rounds(FedNNNN(**OPEN), make_model(), fed.noisy(), [1, 2, 3])
    for which in ((0,), (1, 2)):
        mixed: Arrange = lambda replies, which=which: from_a_device(replies, which)  # type: ignore[misc]  # noqa: E731
        got = fed.rounds(FedNNNN(**OPEN), make_model(), fed.noisy(), [1, 2, 3], mixed)
        for one, other in zip(want, got, strict=True):
            assert_alike(one, other)


def test_a_round_on_the_host_between_two_on_the_device() -> None:
    """All clients of a round may have to train alone, so that their replies are bytes."""

    def play(arranged: Sequence[Arrange]) -> list[fed.Round]:
        strategy, model, done = FedLWS(FedNNNN(**OPEN)), make_model(), list[fed.Round]()
        for number, arrange in enumerate(arranged, 1):
            done.append(fed.play(strategy, number, model, fed.noisy(), arrange))
            model = done[-1].returned or {}
        return done

    want = play([fed.backwards] * 3)
    got = play([from_a_device, fed.backwards, from_a_device])
    for one, other in zip(want, got, strict=True):
        assert_alike(one, other)


def broken(name: str, value: float) -> fed.Training:
    """The second client has this value in this array."""

    def train(sent: Model, server_round: int) -> list[Model]:
        clients = fed.noisy()(sent, server_round)
        clients[1][name] = clients[1][name].copy()
        clients[1][name].flat[0] = value
        return clients

    return train


@pytest.mark.parametrize("array", ["fc.weight", "bn1.running_var"])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("strategy", [FedAvg, lambda **o: FedLWS(FedNNNN(**o))])
def test_the_screening_rejects_the_same_for_the_same_reason(strategy: Any, value: float, array: str) -> None:
    found = []
    for arrange in (fed.backwards, from_a_device):
        made = strategy(screening=Screening(quorum=1), **OPEN)
        done = fed.rounds(made, make_model(), broken(array, value), [1, 2], arrange)
        found.append((done, [rejected.reason for rejected in made.last_cohort.rejected]))
    (host, reasons), (device, others) = found
    assert reasons == others
    assert len(reasons) == 1
    for one, other in zip(host, device, strict=True):
        assert_alike(one, other)


def test_an_update_that_is_shortened() -> None:
    def train(sent: Model, server_round: int) -> list[Model]:
        return [*fed.noisy(m=2)(sent, server_round), *fed.noisy(1, m=1, size=3.0)(sent, server_round)]

    screening = Screening(clip=0.5)
    host, device = (
        fed.rounds(FedNNNN(screening=screening, **OPEN), make_model(), train, [1, 2], arrange)
        for arrange in (fed.backwards, from_a_device)
    )
    assert host[-1].metrics["screening/changed"] > 0
    for one, other in zip(host, device, strict=True):
        assert_alike(one, other)


def test_a_record_of_a_client_half_follows_the_model() -> None:
    """SCAFFOLD's clients return their control variates as bytes when their models stay on the device."""

    def models_only(replies: list[Message]) -> list[Message]:
        for message in replies:
            record = on_a_device(message.content.array_records["arrays"])
            message.content = RecordDict({**message.content, "arrays": record})
        return replies

    host, device = (
        fed.rounds(Scaffold(num_clients=5, **OPEN), make_model(), fed.noisy(), [1, 2, 3], arrange)
        for arrange in (fed.backwards, models_only)
    )
    for one, other in zip(host, device, strict=True):
        assert_alike(one, other)


# ---------------------------------------------------------------- rules that take numpy arrays only


class Own(FedAvg):
    """A user's rule, which says nothing of tensors."""

    def rule(self, sent: Model, cohort: Cohort, state: Any) -> RoundResult:
        assert all(isinstance(a, np.ndarray) for model in (sent, *cohort.models) for a in model.values())
        return super().rule(sent, cohort, state)


class OwnWrapper(Wrapper):
    """A user's wrapper, which says nothing of tensors."""

    def act(self, sent: Model, cohort: Cohort, result: Model, state: Any) -> RoundResult:
        assert all(isinstance(a, np.ndarray) for model in (sent, result, *cohort.models) for a in model.values())
        return RoundResult(result, state, {})


@pytest.mark.parametrize(
    "make",
    [
        Own,
        lambda **o: FedLWS(Own(**o)),
        lambda **o: OwnWrapper(FedNNNN(**o)),
        lambda **o: OwnWrapper(flwr.FedAdam(**o)),
        lambda **o: DifferentialPrivacy(FedNNNN(**o), clipping_norm=1.0, noise_multiplier=0.1, noise_seed=1),
    ],
)
def test_an_own_rule_sees_numpy_arrays_and_has_the_same_bits(make: Any) -> None:
    host, device = (
        fed.rounds(make(**OPEN), fed.only_parameters(make_model()), fed.noisy(), [1, 2, 3], arrange)
        for arrange in (fed.backwards, from_a_device)
    )
    for one, other in zip(host, device, strict=True):
        assert fed.bits(one.returned or {}) == fed.bits(other.returned or {})
        assert one.metrics == other.metrics


def test_a_claim_is_not_inherited() -> None:
    assert FedAvg(**OPEN).works_on_tensors
    assert not Own(**OPEN).works_on_tensors
    assert not FedLWS(Own(**OPEN)).works_on_tensors
    assert FedLWS(flwr.FedAdam(**OPEN)).works_on_tensors
