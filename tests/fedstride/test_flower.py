"""The private behaviour of Flower on which fedstride relies: these tests fail if a new version changes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedMedian, Strategy
from flwr.superlink.grid.inmemory_grid import InMemoryGrid

from client_app.app import app
from fedstride.arrays.named import to_record, views
from fedstride.arrays.on_device import records_bytes
from fedstride.flower import grids, identity, strategy_internals
from lab.engine.local_grid import LocalGrid

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_messages_have_the_identity_of_the_process() -> None:
    code = (
        "from fedstride.flower import identity; identity.set_identity(run_id=5, node_id=6);"
        "from flwr.app import Message, RecordDict;"
        "m = Message(content=RecordDict(), message_type='train', dst_node_id=9);"
        "print(m.metadata.run_id, m.metadata.src_node_id)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["5", "6"]


def test_stamps_are_unique_ids() -> None:
    identity.set_identity()
    messages = [Message(content=RecordDict(), message_type=MessageType.TRAIN, dst_node_id=2) for _ in range(2)]
    ids = [identity.stamp(message) for message in messages]
    assert ids == [message.metadata.message_id for message in messages]
    assert ids[0] != ids[1]


def test_the_source_that_a_reply_names_is_replaced() -> None:
    identity.set_identity(node_id=99)
    asked = Message(content=RecordDict(), message_type=MessageType.TRAIN, dst_node_id=7)
    identity.stamp(asked)
    for reply in (Message(content=RecordDict(), reply_to=asked), Message(Error(5, "gone"), reply_to=asked)):
        identity.set_source(reply, 7)
        assert reply.metadata.src_node_id == 7


def test_only_flowers_simulation_counts_as_one() -> None:
    assert grids.is_simulation(InMemoryGrid.__new__(InMemoryGrid))
    assert not grids.is_simulation(LocalGrid(app, 2))


# ---------------------------------------------------------------- the built-in strategies


MAKE = {
    "fedadam": lambda: FedAdam(eta=0.1, min_train_nodes=1, min_available_nodes=1),
    "fedavgm": lambda: FedAvgM(server_momentum=0.9, min_train_nodes=1, min_available_nodes=1),
}


def play(strategy: Strategy, server_round: int, model: dict[str, np.ndarray], forget: bool = False) -> dict:
    """One round with two clients, whose updates are 1 and 2 times the number of the round."""
    grid = LocalGrid(app, 2)
    if forget:
        strategy_internals.forget_current_arrays(strategy)
    sent = list(strategy.configure_train(server_round, to_record(model), ConfigRecord(), grid))
    replies = []
    for message, far in zip(sent, (1.0, 2.0), strict=True):
        identity.stamp(message)
        arrays = {name: array + np.float32(far * server_round) for name, array in model.items()}
        content = RecordDict({"arrays": to_record(arrays), "metrics": MetricRecord({"num-examples": 1})})
        replies.append(Message(content=content, reply_to=message))
    record, _ = strategy.aggregate_train(server_round, replies)
    assert record is not None
    return {name: np.asarray(array, np.float32) for name, array in views(record).items()}


START = {"w": np.float32([1.0, -1.0]), "b": np.float32([0.5])}


@pytest.mark.parametrize("name", MAKE)
def test_the_state_of_a_built_in_strategy_restores_its_bits(name: str) -> None:
    unbroken, broken = MAKE[name](), MAKE[name]()
    first = play(unbroken, 1, START)
    play(broken, 1, START)
    state = strategy_internals.builtin_state(broken)
    assert state and all(isinstance(value, np.ndarray) for value in state.values())
    fresh = MAKE[name]()
    strategy_internals.load_builtin_state(fresh, state)
    second, again = play(unbroken, 2, first), play(fresh, 2, first)
    assert all(second[key].tobytes() == again[key].tobytes() for key in START)
    forgetful = play(MAKE[name](), 2, first)
    assert any(second[key].tobytes() != forgetful[key].tobytes() for key in START)


def test_the_state_is_a_copy() -> None:
    strategy = MAKE["fedavgm"]()
    play(strategy, 1, START)
    state = strategy_internals.builtin_state(strategy)
    before = {key: array.copy() for key, array in state.items()}
    play(strategy, 2, START)
    assert all(np.array_equal(state[key], before[key]) for key in before)


def test_fedadams_state_is_by_name_and_fedavgms_by_position() -> None:
    adam, momentum = MAKE["fedadam"](), MAKE["fedavgm"]()
    play(adam, 1, START)
    play(momentum, 1, START)
    assert set(strategy_internals.builtin_state(adam)) == {"0.m_t/w", "0.m_t/b", "0.v_t/w", "0.v_t/b"}
    assert set(strategy_internals.builtin_state(momentum)) == {
        "0.momentum_vector#000000",
        "0.momentum_vector#000001",
    }


@pytest.mark.parametrize("strategy", [FedAvg(), FedMedian(), MAKE["fedadam"](), MAKE["fedavgm"]()])
def test_a_strategy_before_its_first_round_has_no_state(strategy: Strategy) -> None:
    assert strategy_internals.builtin_state(strategy) == {}
    strategy_internals.load_builtin_state(strategy, {})
    assert strategy_internals.builtin_state(strategy) == {}


def test_fedavgm_forgets_the_model_that_it_returned() -> None:
    """A3-9: without this, FedAvgM continues from its own result and ignores the model that is sent."""
    elsewhere = {name: array + 100 for name, array in START.items()}
    second = {}
    for forget in (True, False):
        strategy = FedAvgM(server_learning_rate=0.5, server_momentum=0.9, min_train_nodes=1, min_available_nodes=1)
        assert play(strategy, 1, START)["w"][0] == pytest.approx(1.0 + 0.5 * 1.5)
        second[forget] = play(strategy, 2, elsewhere, forget)["w"][0]
    assert second[True] == pytest.approx(101.0 + 0.5 * (0.9 * 1.5 + 3.0))
    assert second[False] == pytest.approx(1.75 + 0.5 * (0.9 * 1.5 + 102.25))


def test_forgetting_does_not_change_other_strategies() -> None:
    strategy = FedAvg()
    before = dict(vars(strategy))
    strategy_internals.forget_current_arrays(strategy)
    assert vars(strategy) == before


def test_bytes_of_a_record_with_headers() -> None:
    record = ArrayRecord({"a": Array(np.zeros(10, np.float32)), "b": Array(np.zeros((), np.float64))})
    assert records_bytes(record) == (128 + 40) + (128 + 8)
