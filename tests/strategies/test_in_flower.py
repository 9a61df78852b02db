"""The strategies in an app that is not ours: Flower's own `start`, a stranger's client, a stranger's strategy."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, Strategy

from lab.engine.local_grid import LocalGrid
from strategies import Fedalr, FedDyn, FedLWS, FedNNNN, NormAnalysis, Scaffold, TwoDLRD

TARGETS = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]], dtype=np.float32)


def stranger() -> ClientApp:
    """Three clients that go half the way to a point of their own; they know nothing of fedstride."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        k = int(context.node_config["partition-id"])
        w = message.content["arrays"]["w"].numpy()
        new = ArrayRecord({"w": Array(w + 0.5 * (TARGETS[k] - w))})
        return Message(RecordDict({"model": new, "seen": MetricRecord({"num-examples": 1 + k})}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        k = int(context.node_config["partition-id"])
        distance = float(np.linalg.norm(message.content["arrays"]["w"].numpy() - TARGETS[k]))
        metrics = MetricRecord({"num-examples": 1 + k, "distance": distance})
        return Message(RecordDict({"m": metrics}), reply_to=message)

    return app


def controlled() -> ClientApp:
    """Clients of her own that do SCAFFOLD's half: full gradients of half the squared distance to a point."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        k = int(context.node_config["partition-id"])
        assert message.content["config"]["halves"] == ["scaffold"]
        start = message.content["arrays"]["w"].numpy().astype(np.float64)
        c = message.content["scaffold.control"]["w"].numpy().astype(np.float64)
        kept = context.state.get("c_k")
        c_k = np.zeros(2) if kept is None else kept["w"].numpy()
        w, steps, eta = start, 5, 0.2
        for _ in range(steps):
            w = w - eta * ((1 + k) * (w - TARGETS[k]) + c - c_k)
        new = c_k - c + (start - w) / (steps * eta)
        context.state["c_k"] = ArrayRecord({"w": Array(new)})
        return Message(
            RecordDict(
                {
                    "model": ArrayRecord({"w": Array(w.astype(np.float32))}),
                    "scaffold.client_control": ArrayRecord({"w": Array(new.astype(np.float32))}),
                    "seen": MetricRecord({"num-examples": 1 + k, "done/scaffold": 1}),
                }
            ),
            reply_to=message,
        )

    return app


class HerStrategy(FedAvg):
    """A user's own: the step is doubled."""

    def configure_train(self, server_round, arrays, config, grid):
        self.old = arrays["w"].numpy()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        return ArrayRecord({"w": Array(2 * arrays["w"].numpy() - self.old)}), metrics


def start(
    strategy: Strategy, rounds: int = 12, app: ClientApp | None = None
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The final model and the model evaluated after each round, round 0 first."""
    seen: list[np.ndarray] = []
    result = strategy.start(
        grid=LocalGrid(stranger() if app is None else app, 3),
        initial_arrays=ArrayRecord({"w": Array(np.array([5.0, -5.0], dtype=np.float32))}),
        num_rounds=rounds,
        evaluate_fn=lambda server_round, arrays: seen.append(arrays["w"].numpy()),
    )
    return result.arrays["w"].numpy(), seen


FIXED_POINT = np.average(TARGETS, axis=0, weights=[1, 2, 3])


@pytest.mark.parametrize(
    "strategy",
    [
        FedNNNN(beta=0.3, gamma=0.0),
        FedLWS(strategy=HerStrategy(), beta=0.0),
        FedLWS(FedAvg(), beta=0.0),
        TwoDLRD(FedLWS(FedNNNN(beta=0.3, gamma=0.0), beta=0.0), local_steps=2),
        NormAnalysis(FedAvg()),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_they_converge_in_flowers_own_loop(strategy: Strategy) -> None:
    model, seen = start(strategy)
    assert len(seen) == 13
    np.testing.assert_array_equal(model, seen[-1])
    # Norm-Norm's step does not shrink where clients disagree, so it comes near, not all the way.
    assert np.linalg.norm(model - FIXED_POINT) < 0.2 * np.linalg.norm(seen[0] - FIXED_POINT)
    assert model.dtype == np.float32


def test_the_average_is_returned_and_the_normalised_model_is_sent() -> None:
    """E / N > 1 here, so the two models differ, and whoever evaluated the wrong one would see it."""
    strategy = FedNNNN(beta=0.3, gamma=0.0)
    model, _ = start(strategy, rounds=3)
    assert strategy.next_model is not None
    assert not np.allclose(strategy.next_model["w"], model)


def test_a_second_start_is_a_fresh_one() -> None:
    strategy = TwoDLRD(FedNNNN(beta=0.3, gamma=0.5), local_steps=2)
    first, _ = start(strategy, rounds=4)
    again, _ = start(strategy, rounds=4)
    np.testing.assert_array_equal(first, again)


def test_around_flowers_adam_and_fedalr() -> None:
    for strategy in (FedLWS(FedAdam(eta=0.3)), Fedalr(server_lr=0.5)):
        model, seen = start(strategy, rounds=8)
        assert np.linalg.norm(model - FIXED_POINT) < np.linalg.norm(seen[0] - FIXED_POINT)


@pytest.mark.parametrize("fraction", [1.0, 0.7])
def test_scaffold_with_her_clients_finds_the_minimum_that_fedavg_misses(fraction: float) -> None:
    """Of the sum of three losses of different curvature, where local steps of plain FedAvg go astray."""
    minimum = np.average(TARGETS, axis=0, weights=[1, 2, 3])
    strategy = Scaffold(num_clients=3, fraction_train=fraction, fraction_evaluate=0.0)
    model, _ = start(strategy, rounds=60, app=controlled())
    np.testing.assert_allclose(model, minimum, rtol=0, atol=1e-3)
    assert strategy.last_cohort is not None and not strategy.last_cohort.not_done
    first, seen = start(Scaffold(num_clients=3, fraction_evaluate=0.0), rounds=1, app=controlled())
    assert np.linalg.norm(first - minimum) < np.linalg.norm(seen[0] - minimum)


def test_scaffold_rejects_clients_without_its_client_half() -> None:
    """No c_k+, no reply that could be used: nothing is learned, and the run ends in order."""
    strategy = Scaffold(num_clients=3)
    result = strategy.start(
        grid=LocalGrid(stranger(), 3),
        initial_arrays=ArrayRecord({"w": Array(np.array([5.0, -5.0], dtype=np.float32))}),
        num_rounds=2,
    )
    assert [dict(result.train_metrics_clientapp[t]) for t in (1, 2)] == [
        {"screening/rejected": 3, "screening/not_done": 0}
    ] * 2
    assert strategy.state.control is None
    assert strategy.last_cohort is not None
    assert "the requested record 'scaffold.client_control' is missing" in strategy.last_cohort.rejected[0].reason


def test_feddyn_notices_clients_that_do_not_do_their_half() -> None:
    """In the paper's form, models of another loss are used all the same, and the round says so."""
    strategy = FedDyn(num_clients=3, recover=False)
    result = strategy.start(
        grid=LocalGrid(stranger(), 3),
        initial_arrays=ArrayRecord({"w": Array(np.array([5.0, -5.0], dtype=np.float32))}),
        num_rounds=2,
    )
    assert [result.train_metrics_clientapp[t]["screening/not_done"] for t in (1, 2)] == [3, 3]
    assert [result.train_metrics_clientapp[t]["screening/rejected"] for t in (1, 2)] == [0, 0]
