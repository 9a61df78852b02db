"""NormAnalysis: N, E and the step of any strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import federation as fed
import flwr.serverapp.strategy as flwr
import numpy as np
import pytest
import reference as ref
from federation import OPEN, SHARES, UNIFORM
from flwr.serverapp.strategy import Strategy

from fedstride.errors import ConfigError
from strategies import Fedalr, FedAvg, FedLWS, FedNNNN, Momentum, NormAnalysis

INNER: dict[str, tuple[Callable[[], Strategy], Sequence[float]]] = {
    "FedAvg": (lambda: FedAvg(**OPEN), SHARES),
    "FedAvg uniform": (lambda: FedAvg(weighting="uniform", **OPEN), UNIFORM),
    "FedNNNN": (lambda: FedNNNN(**OPEN), SHARES),
    "Momentum": (lambda: Momentum(**OPEN), SHARES),
    "Fedalr": (lambda: Fedalr(**OPEN), UNIFORM),
    "FedLWS": (lambda: FedLWS(FedNNNN(**OPEN)), SHARES),
    "Flower's FedAvg": (lambda: flwr.FedAvg(**OPEN), SHARES),
    "Flower's FedAdam": (lambda: flwr.FedAdam(**OPEN), SHARES),
    "Flower's FedMedian": (lambda: flwr.FedMedian(**OPEN), SHARES),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", INNER)
def test_four_rounds_agree_with_the_oracle(name: str, dtype: str) -> None:
    make, shares = INNER[name]
    # one round more, to see what the fourth sends
    done = fed.rounds(NormAnalysis(make()), fed.make_model(dtype), fed.noisy(), range(1, 6))
    path = 0.0
    near = {"rel": fed.TOLERANCE[dtype], "abs": fed.TOLERANCE[dtype]}
    for server_round, (now, following) in enumerate(pairwise(done), 1):
        sent = fed.widened(now.sent)
        want = ref.FedNNNN(1.0, 0.0).round(sent, fed.noisy()(sent, server_round), shares)
        step = ref.difference(following.sent, now.sent)
        path += ref.norm(step, list(step))
        reported = now.metrics
        assert reported["norms/N"] == pytest.approx(want["N"], **near)
        assert reported["norms/E"] == pytest.approx(want["E"], **near)
        assert reported["norms/step"] == pytest.approx(ref.norm(step, list(step)), **near)
        assert reported["norms/path"] == pytest.approx(path, **near)
        for layer, names in ref.layers(sent).items():
            assert reported[f"norms/N/{layer}"] == pytest.approx(want["layer_N"][layer], **near)
            assert reported[f"norms/E/{layer}"] == pytest.approx(want["layer_E"][layer], **near)
            assert reported[f"norms/step/{layer}"] == pytest.approx(ref.norm(step, names), **near)


@pytest.mark.parametrize("name", INNER)
def test_measuring_changes_nothing(name: str) -> None:
    make, _ = INNER[name]
    start = fed.only_parameters(fed.make_model(np.float64))
    plain = fed.rounds(make(), start, fed.noisy(), arrange=fed.in_order)
    measured = fed.rounds(NormAnalysis(make()), start, fed.noisy(), arrange=fed.in_order)
    for one, other in zip(plain, measured, strict=True):
        assert one.returned is not None and other.returned is not None
        assert fed.bits(one.sent) == fed.bits(other.sent)
        for name, array in one.returned.items():  # the order of the sums is ours, so not the last bit
            np.testing.assert_allclose(other.returned[name], array, rtol=1e-12, atol=1e-15, err_msg=name)


def test_the_step_of_fedavg_is_n_and_that_of_norm_norm_beta_e() -> None:
    fedavg = fed.rounds(NormAnalysis(FedAvg(**OPEN)), fed.make_model(np.float64), fed.noisy())
    for done in fedavg:
        assert done.metrics["norms/step"] == pytest.approx(done.metrics["norms/N"], rel=1e-10)
    strategy = NormAnalysis(FedNNNN(beta=0.7, gamma=0.0, **OPEN))
    for done in fed.rounds(strategy, fed.make_model(np.float64), fed.noisy()):
        assert done.metrics["norms/step"] == pytest.approx(0.7 * done.metrics["norms/E"], rel=1e-10)
        assert done.metrics["norms/N"] == pytest.approx(done.metrics["fednnnn/N"], rel=1e-12)


@pytest.mark.parametrize(("weighting", "shares"), [("examples", SHARES), ("uniform", UNIFORM)])
def test_weights_may_be_chosen(weighting: str, shares: Sequence[float]) -> None:
    done = fed.play(NormAnalysis(FedAvg(**OPEN), weighting=weighting), 1, fed.WORKED, fed.worked)
    want = ref.FedNNNN(1.0, 0.0).round(fed.WORKED, fed.worked(fed.WORKED, 1), shares)
    assert done.metrics["norms/N"] == pytest.approx(want["N"], rel=1e-12)
    assert done.metrics["norms/E"] == pytest.approx(want["E"], rel=1e-12)


def test_worked_norms() -> None:
    done = fed.play(NormAnalysis(FedAvg(**OPEN)), 1, fed.WORKED, fed.worked)
    assert done.metrics["norms/N"] == fed.printed(0.2942787794)
    assert done.metrics["norms/E"] == fed.printed(0.4260946646)


def test_layers_may_be_left_out() -> None:
    done = fed.play(NormAnalysis(FedAvg(**OPEN), per_layer=False), 1, fed.make_model(), fed.noisy())
    reported = [key for key in done.metrics if key.startswith("norms/")]
    assert sorted(reported) == ["norms/E", "norms/N", "norms/path", "norms/step"]


def test_norm_analysis_refuses_an_unknown_weighting() -> None:
    with pytest.raises(ConfigError, match="weighting = 'size' is not allowed"):
        NormAnalysis(weighting="size")


def test_a_skipped_round_adds_nothing_to_the_path() -> None:
    strategy = NormAnalysis(FedAvg(**OPEN))
    first = fed.play(strategy, 1, fed.make_model(), fed.noisy())
    fed.play(strategy, 2, fed.make_model(), fed.noisy(), arrange=lambda replies: [])
    assert strategy.state.path == first.metrics["norms/path"] > 0.0


def test_a_first_round_starts_the_path_again() -> None:
    strategy = NormAnalysis(FedAvg(**OPEN))
    first = [fed.play(strategy, 1, fed.make_model(), fed.noisy()).metrics["norms/path"] for _ in range(2)]
    assert first[0] == first[1]


def test_nothing_moves() -> None:
    done = fed.play(NormAnalysis(FedAvg(**OPEN)), 1, fed.make_model(), fed.idle)
    assert {done.metrics[f"norms/{key}"] for key in ("N", "E", "step", "path")} == {0.0}


@pytest.mark.parametrize("make", [lambda: flwr.FedAvgM(server_learning_rate=0.5, **OPEN), lambda: FedAvg(**OPEN)])
def test_the_analysis_changes_no_value(make: Any) -> None:
    """Also not Flower's FedAvgM's buffers, which other wrappers replace by FedAvg's averages."""
    start = {name: a for name, a in fed.make_model(np.float64).items() if a.dtype == np.float64}
    plain, analysed = (fed.rounds(s, start, fed.noisy(), [1, 2, 3]) for s in (make(), NormAnalysis(make())))
    for one, other in zip(plain, analysed, strict=True):
        assert one.returned is not None and other.returned is not None
        for name, array in one.returned.items():  # the order of the sums is ours, so not the last bit
            np.testing.assert_allclose(other.returned[name], array, rtol=1e-12, atol=1e-15, err_msg=name)
