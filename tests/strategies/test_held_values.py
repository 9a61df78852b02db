"""What is not finite in the model that was sent: kept bit by bit, and without influence on anything else."""

from __future__ import annotations

import math
from typing import Any

import federation as fed
import flwr.serverapp.strategy as flwr
import numpy as np
import pytest
from all_strategies import ALL, make_model, same
from federation import NODES, OPEN
from reference import Model

from fedstride.arrays.finite import first_not_finite, held_in, put_back, taken_out
from fedstride.arrays.named import views
from fedstride.arrays.on_device import TensorArray, record_of
from fedstride.errors import ConfigError
from strategies import DifferentialPrivacy, FedAvg, FedLWS, FedNNNN, Momentum, NormAnalysis, Wrapper
from strategies.replies.screening import screen
from strategies.replies.screening_settings import Screening

NAN = np.array([0x7FC12345], np.uint32).view(np.float32)[0]  # a NaN with bits of its own
MASKS: Model = {
    "attention.mask": np.triu(np.full((4, 4), -np.inf, np.float32), 1),
    "attention.unused": np.array([[NAN, 1.0, -np.inf]], np.float32),
    "lowest": np.array([-np.inf]),  # the oldest Flower's FedAdam fails with an array without axes
    "half.limits": np.array([np.inf, -np.inf, 0.5], np.float16),
}
DECLARED = ("attention.*", "lowest")  # not the last one, which is a parameter for the server


def with_masks(model: Model, *, finite: bool) -> Model:
    masks = {name: np.where(np.isfinite(a), a, 0).astype(a.dtype) if finite else a for name, a in MASKS.items()}
    first, *rest = model.items()
    return dict([first, *masks.items(), *rest])


def train(sent: Model, server_round: int) -> list[Model]:
    """Clients that also change the finite values of the masks."""
    plain = {name: array for name, array in sent.items() if name not in MASKS}
    models = []
    for k, w_k in enumerate(fed.noisy()(plain, server_round)):
        masks = {}
        for name, start in MASKS.items():
            moved = np.array(sent[name])
            moved[np.isfinite(start)] += np.asarray(0.125 * k, moved.dtype)
            masks[name] = moved
        models.append({name: {**w_k, **masks}[name] for name in sent})
    return models


class Network(fed.Quadratic):
    """A network that adds its masks to something, and so has a finite loss."""

    def gradient(self, model: Model, positions: np.ndarray, seed: int) -> Any:
        for name, start in MASKS.items():
            places = ~np.isfinite(start)
            assert model[name][places].tobytes() in (
                start[places].tobytes(),
                np.zeros_like(start)[places].tobytes(),
            )
        return super().gradient({**model, **taken_out(model, held_in(MASKS))}, positions, seed)


def run(strategy: Any, *, finite: bool, rounds: int = 3) -> list[fed.Round]:
    # SCAFFOLD's clients of these tests subtract infinities of parameters in what they send beside the model.
    strategy.buffers = [*MASKS] if "Scaffold" in type(strategy.stack.core).__name__ else DECLARED
    if hasattr(strategy, "proxy"):
        strategy.proxy = Network()
    return fed.rounds(strategy, with_masks(make_model(), finite=finite), train, range(1, rounds + 1))


def assert_kept(model: Model) -> None:
    for name, start in MASKS.items():
        places = ~np.isfinite(start)
        assert model[name][places].tobytes() == start[places].tobytes(), name
        assert np.isfinite(model[name][~places]).all(), name


def without(done: list[fed.Round]) -> list[fed.Round]:
    """The rounds with 0 in these places, as those of a model that has 0 there."""

    def clean(model: Model | None) -> Model | None:
        return None if model is None else taken_out(model, held_in(MASKS))

    return [one._replace(sent=clean(one.sent) or {}, returned=clean(one.returned)) for one in done]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("name", ALL)
def test_every_strategy_computes_as_if_zeros_were_there_and_gives_the_bits_back(name: str) -> None:
    strategy = ALL[name]()
    done = run(strategy, finite=False)
    for one in done:
        assert_kept(one.sent)
        assert one.returned is not None
        assert_kept(one.returned)
    if strategy.next_model is not None:
        assert_kept(strategy.next_model)
    same(without(done), run(ALL[name](), finite=True))
    kept = {key for key, value in strategy.state_dict().items() if first_not_finite({"": np.asarray(value)})}
    assert all("next/" in key for key in kept), kept


def test_a_resumed_strategy_sends_the_same_bits() -> None:
    whole = run(FedNNNN(**OPEN), finite=False, rounds=4)
    first = FedNNNN(**OPEN)
    half = run(first, finite=False, rounds=2)
    second = FedNNNN(**OPEN)
    second.load_state_dict(first.state_dict())
    second.buffers = DECLARED
    assert half[-1].returned is not None
    same(whole[2:], fed.rounds(second, half[-1].returned, train, [3, 4]))


@pytest.mark.parametrize(
    ("what", "value"),
    [("a finite number", 0.0), ("the other infinity", np.inf), ("NaN", np.nan), ("the largest number", 3e38)],
)
@pytest.mark.parametrize("name", MASKS)
def test_a_client_that_changes_such_a_value_is_refused(what: str, value: float, name: str) -> None:
    strategy = FedAvg(**OPEN, buffers=DECLARED)
    start = with_masks(make_model(), finite=False)
    (message, *_) = fed.configure(strategy, 1, start)
    models = train(fed.model_in(message), 1)
    place = tuple(np.argwhere(~np.isfinite(MASKS[name]))[-1])
    with np.errstate(over="ignore"):
        models[1][name][place] = value
    replies = [fed.reply(node, w_k) for node, w_k in zip(sorted(NODES), models, strict=True)]
    if models[1][name].tobytes() == train(fed.model_in(message), 1)[1][name].tobytes():
        pytest.skip("the same bits")
    record, _ = strategy.aggregate_train(1, replies)
    assert record is not None
    assert_kept(views(record))
    assert strategy.last_cohort is not None
    assert [each.node_id for each in strategy.last_cohort.rejected] == [sorted(NODES)[1]]
    assert name in strategy.last_cohort.rejected[0].reason


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["attention.mask", "half.limits", "fc.bias"])
def test_a_new_value_that_is_not_finite_is_refused_as_ever(value: float, name: str) -> None:
    strategy = FedAvg(**OPEN, buffers=DECLARED)
    (message, *_) = fed.configure(strategy, 1, with_masks(make_model(), finite=False))
    models = train(fed.model_in(message), 1)
    place = tuple(np.argwhere(np.isfinite(models[2][name]))[0])
    models[2][name] = np.array(models[2][name])
    models[2][name][place] = value
    strategy.aggregate_train(1, [fed.reply(n, w) for n, w in zip(sorted(NODES), models, strict=True)])
    assert strategy.last_cohort is not None
    (rejected,) = strategy.last_cohort.rejected
    assert rejected.node_id == sorted(NODES)[2]
    assert f"{name!r} contains NaN" in rejected.reason


@pytest.mark.parametrize("screening", [Screening(clip=0.5), Screening(max_share=0.4), Screening(factor=None)])
def test_shortened_replies_keep_them_too(screening: Screening) -> None:
    for make in (
        lambda: FedAvg(**OPEN, screening=screening),
        lambda: Wrapper(flwr.FedAdam(**OPEN), screening=screening),
    ):
        done = run(make(), finite=False)
        assert done[-1].returned is not None
        assert_kept(done[-1].returned)
        same(without(done), run(make(), finite=True))


@pytest.mark.parametrize("inside", [lambda: FedAvg(**OPEN), lambda: Momentum(**OPEN), lambda: FedNNNN(**OPEN)])
def test_privacy_clips_the_finite_values_alone(inside: Any) -> None:
    def make() -> Any:
        return DifferentialPrivacy(inside(), noise_multiplier=0.0, clipping_norm=0.05)

    models = {name: array for name, array in make_model().items() if "running" not in name}

    def rounds(finite: bool) -> list[fed.Round]:
        strategy = make()
        strategy.buffers = DECLARED
        return fed.rounds(strategy, with_masks(models, finite=finite), train, [1, 2])

    done = rounds(finite=False)
    assert done[-1].returned is not None
    assert_kept(done[-1].returned)
    assert math.isfinite(done[-1].metrics["privacy/clipped"])
    same(without(done), rounds(finite=True))


def test_flowers_own_clipping_inside_a_wrapper_sees_finite_values() -> None:
    def make() -> Any:
        inner = flwr.DifferentialPrivacyServerSideFixedClipping(flwr.FedAvg(**OPEN), 0.0, 0.05, 3)
        return NormAnalysis(inner)

    def rounds(finite: bool) -> list[fed.Round]:
        model = {name: a for name, a in with_masks(make_model(), finite=finite).items() if a.dtype.kind == "f"}
        strategy = make()
        strategy.buffers = DECLARED
        return fed.rounds(strategy, model, train, [1, 2])

    done = rounds(finite=False)
    assert done[-1].returned is not None
    assert_kept(done[-1].returned)
    same(without(done), rounds(finite=True))


class OwnWay(FedAvg):
    """A class of ours that changes how it is called, as a user's may."""

    needs = FedAvg.needs

    def configure_train(self, *args: Any) -> Any:
        return list(super().configure_train(*args))


def test_a_strategy_of_ours_with_a_way_of_its_own_inside_a_wrapper() -> None:
    strategy = FedLWS(OwnWay(**OPEN, buffers=DECLARED))
    done = run(strategy, finite=False)
    assert done[-1].returned is not None
    assert_kept(done[-1].returned)


def test_tensors_on_a_device_keep_them_too() -> None:
    torch = pytest.importorskip("torch")
    start = with_masks(make_model(), finite=False)
    strategy = FedNNNN(**OPEN, buffers=DECLARED)
    host = run(FedNNNN(**OPEN), finite=False, rounds=1)[0]
    (message, *_) = fed.configure(strategy, 1, start)
    replies = []
    for node, w_k, n in zip(sorted(NODES), train(start, 1), fed.EXAMPLES, strict=True):
        reply = fed.reply(node, w_k, n, to=message)
        reply.content["arrays"] = record_of({name: torch.tensor(array) for name, array in w_k.items()})
        assert isinstance(next(iter(reply.content["arrays"].values())), TensorArray)
        replies.append(reply)
    record, _ = strategy.aggregate_train(1, replies)
    assert record is not None and host.returned is not None
    assert_kept(views(record))
    fed.assert_close(taken_out(views(record), held_in(MASKS)), taken_out(host.returned, held_in(MASKS)), start)


# ---------------------------------------------------------------- before round 1


@pytest.mark.parametrize(
    "array", [np.array([1.0, np.nan]), np.array([NAN], np.float32), np.array(np.nan, np.float16)]
)
def test_nan_in_what_is_no_buffer_is_refused_before_anything_is_sent(array: Any) -> None:
    start = {"head.weight": np.ones(3, np.float32), "head.bias": array}
    with pytest.raises(ConfigError, match=r"'head.bias' contains NaN and is no buffer.*buffers=\['head.bias'\]"):
        fed.configure(FedAvg(**OPEN), 1, start)
    fed.configure(FedAvg(**OPEN, buffers=["head.bias"]), 1, start)


def test_values_are_taken_out_and_put_back() -> None:
    held = held_in(MASKS)
    finite = taken_out(MASKS, held)
    assert first_not_finite(finite) is None
    assert fed.bits(put_back(finite, held)) == fed.bits(MASKS)
    assert held_in(finite) == {}
    plain = {"w": np.ones(2)}
    assert taken_out(plain, held)["w"] is plain["w"]


def test_a_screening_of_a_model_without_such_values_is_as_ever() -> None:
    sent = {"w": np.zeros(2)}
    cohort = screen([fed.reply(1, {"w": np.array([np.inf, 0.0])}), fed.reply(2, sent)], sent)
    assert [each.node_id for each in cohort.rejected] == [1]


@pytest.mark.parametrize("rule", [FedAvg, FedNNNN])
def test_an_array_without_axes_is_kept_too(rule: Any) -> None:
    sent = {**make_model(), "lowest": np.array(-np.inf)}

    def moved(model: Model, server_round: int) -> list[Model]:
        plain = {name: array for name, array in model.items() if name != "lowest"}
        return [{**each, "lowest": model["lowest"]} for each in fed.noisy()(plain, server_round)]

    done = fed.play(rule(buffers=["lowest"], **OPEN), 1, sent, moved)
    assert done.returned is not None
    assert done.returned["lowest"].tobytes() == sent["lowest"].tobytes()
    assert done.returned["lowest"].shape == ()
