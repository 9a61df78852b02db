"""Flower's FedAvgM and FedAdam as parts: the worked rounds of docs/methods.md, and buffers."""

from __future__ import annotations

from typing import Any

import federation as fed
import numpy as np
import pytest
import reference as ref
from federation import OPEN, SHARES, printed
from reference import Model

from fedstride.arrays.named import views
from strategies import Wrapper
from strategies.flower_strategies import fedadam, fedavgm, multi_krum, trimmed_mean

SENT: Model = {"w": np.array([1.0, -2.0])}  # the toy problem T1
DELTAS = [np.array([-0.2, 0.5]), np.array([-0.4, -0.1])]


@pytest.mark.parametrize(
    ("make", "settings", "returned"),
    [
        (fedavgm, {"server_momentum": 0.9}, [[0.65, -1.95], [-0.015, -1.855]]),
        (fedadam, {"eta": 0.1}, [[0.9278164095, -1.9381283510], [0.8438636243, -1.8631108995]]),
    ],
)
def test_worked(make: Any, settings: dict[str, float], returned: list[list[float]]) -> None:
    strategy, model = Wrapper(make(**settings, **OPEN)), SENT
    for number, want in enumerate(returned, 1):
        message = fed.configure(strategy, number, model)[0]
        replies = [fed.reply(k, {"w": model["w"] + DELTAS[k]}, (10, 30)[k], to=message) for k in (1, 0)]
        record, _ = strategy.aggregate_train(number, replies)
        assert record is not None
        model = views(record)
        assert model["w"] == printed(want)


@pytest.mark.parametrize("make", [fedavgm, fedadam])
def test_buffers_are_averaged(make: Any) -> None:
    start = fed.make_model()
    done = fed.play(Wrapper(make(**OPEN)), 1, start, fed.noisy())
    want = ref.average_buffers(start, fed.noisy()(start, 1), SHARES)
    assert done.returned is not None and len(want) == 4
    fed.assert_close({n: done.returned[n] for n in want}, want, {n: start[n] for n in want})


# ---------------------------------------------------------------- robust rules


def five(sent: Model) -> list[Model]:
    """Four clients near each other, and a hostile one."""
    rng = np.random.default_rng(3)
    near = [{n: ref.f64(a) + 0.1 * rng.normal(size=a.shape) for n, a in sent.items()} for _ in range(4)]
    return [*near[:2], {n: ref.f64(a) + 0.35 for n, a in sent.items()}, *near[2:]]


def returned(strategy: Any, sent: Model, models: list[Model]) -> Model:
    message = fed.configure(strategy, 1, sent)[0]
    record, _ = strategy.aggregate_train(
        1, [fed.reply(k, w_k, 10 + k, to=message) for k, w_k in enumerate(models)]
    )
    assert record is not None
    return views(record)


def test_the_trimmed_mean_leaves_out_the_extreme_values_of_each_coordinate() -> None:
    sent = fed.only_parameters(fed.make_model(np.float64))
    models = five(sent)
    want = {n: np.sort(np.stack([w_k[n] for w_k in models]), axis=0)[1:4].mean(axis=0) for n in sent}
    fed.assert_close(returned(Wrapper(trimmed_mean(beta=0.2, **OPEN)), sent, models), want, sent, 1e-12)


def test_without_trimming_it_is_the_uniform_mean() -> None:
    sent = fed.only_parameters(fed.make_model(np.float64))
    models = five(sent)
    want = {n: np.mean([w_k[n] for w_k in models], axis=0) for n in sent}
    fed.assert_close(returned(Wrapper(trimmed_mean(beta=0.0, **OPEN)), sent, models), want, sent, 1e-12)


def test_multi_krum_averages_the_models_with_the_nearest_neighbours() -> None:
    sent = fed.only_parameters(fed.make_model(np.float64))
    models = five(sent)
    flat = np.array([np.concatenate([w_k[n].ravel() for n in sent]) for w_k in models])
    distances = ((flat[:, None] - flat[None, :]) ** 2).sum(2)
    scores = np.sort(distances, axis=1)[:, 1:3].sum(1)  # the n - f - 2 nearest others
    chosen = sorted(np.argsort(scores)[:3])
    assert 2 not in chosen
    weights = np.array([10.0 + k for k in chosen])
    want = {n: sum(w * models[k][n] for w, k in zip(weights / weights.sum(), chosen, strict=True)) for n in sent}
    strategy = Wrapper(multi_krum(num_malicious_nodes=1, num_nodes_to_select=3, **OPEN))
    fed.assert_close(returned(strategy, sent, models), want, sent, 1e-9)
