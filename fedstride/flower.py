"""All of Flower that is private, worked around, or changed between versions, each with version and reason.

Knows Flower's insides from 1.21 on, which brought `flwr.serverapp.strategy`; nothing else in fedstride does.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp import strategy as _strategies
from flwr.serverapp.strategy import Strategy
from flwr.serverapp.strategy.fedopt import FedOpt
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

log = logging.getLogger("flwr").log
"""Flower's own: `flwr.common.log` to 1.34, `flwr.supercore.log` from 1.35 on; the logger's name is one."""

AVERAGES_METRICS = aggregate_metricrecords
"""What a strategy has as `train_metrics_aggr_fn` where its user gave none (1.21 on; private in all)."""

ADAPTIVE: tuple[Any, ...] = (
    *([_strategies.FedAvgM] if hasattr(_strategies, "FedAvgM") else []),  # not in 1.21
    FedOpt,
)
"""Flower's strategies whose server optimiser treats buffers as if they were parameters (1.39): a
momentum or an Adam step on a running variance can make it negative. Our wrappers put the buffers'
averages in their place."""


def set_identity(run_id: int = 1, node_id: int = 1) -> None:
    """Give this process the identity that `Message` asks for (1.38 on; set by Flower's own runtimes)."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # to 1.37 a message asks for none
        return
    TaskIdentity.run_id = run_id
    TaskIdentity.node_id = node_id
    TaskIdentity.task_id = 1


def stamp(message: Message) -> str:
    """Give a message an id, as the SuperLink does on arrival; returns it."""
    message_id = uuid.uuid4().hex
    message.metadata.__dict__["_message_id"] = message_id
    return message_id


def set_source(reply: Message, node: int) -> None:
    """Say which node a reply is from, by the message that it answers.

    Where a node is gone, the SuperLink answers in its place and names itself (error code 5, 1.39); and
    who a reply is from is not for the reply to say.
    """
    reply.metadata.__dict__["_src_node_id"] = node


def is_simulation(grid: object) -> bool:
    """True for the Grid of `flwr run` simulation, where all nodes are there from the start (1.39)."""
    return type(grid).__name__ == "InMemoryGrid"


def chain(strategy: Strategy) -> Iterator[Strategy]:
    """A strategy and those that it holds, from the outermost in: Flower's privacy wrappers hold one too."""
    inner: Any = strategy
    while isinstance(inner, Strategy):
        yield inner
        inner = getattr(inner, "strategy", None)


def forget_current_arrays(strategy: Strategy) -> None:
    """Make FedAvgM and FedOpt take the model of the next `configure_train` as their current weights.

    FedAvgM (1.39) stores them in the first round and from then on trusts what it returned itself, so
    a wrapper that changes the result would be ignored (A3-9).
    """
    for inner in chain(strategy):
        if isinstance(inner, ADAPTIVE):
            inner.current_arrays = None


# The attributes that carry a built-in strategy's state from round to round (1.39).
_STATE = ("m_t", "v_t", "momentum_vector")


def builtin_state(strategy: Strategy) -> dict[str, Any]:
    """The state of one of Flower's own strategies, and of those it holds, as a flat dict of arrays."""
    state: dict[str, Any] = {}
    for depth, inner in enumerate(chain(strategy)):
        for attribute in _STATE:
            value = getattr(inner, attribute, None)
            if isinstance(value, dict):
                state |= {f"{depth}.{attribute}/{name}": np.array(array) for name, array in value.items()}
            elif isinstance(value, list):
                state |= {f"{depth}.{attribute}#{i:06d}": np.array(array) for i, array in enumerate(value)}
    return state


def load_builtin_state(strategy: Strategy, state: dict[str, Any]) -> None:
    """Restore what `builtin_state` returned."""
    for depth, inner in enumerate(chain(strategy)):
        for attribute in _STATE:
            if not hasattr(inner, attribute):
                continue
            start = f"{depth}.{attribute}"
            named = {k.removeprefix(f"{start}/"): v for k, v in state.items() if k.startswith(f"{start}/")}
            listed = [v for k, v in sorted(state.items()) if k.startswith(f"{start}#")]
            setattr(inner, attribute, named or listed or None)


def records_bytes(record: ArrayRecord) -> int:
    """Bytes of a record's arrays as they travel, headers included."""
    return sum(len(array.data) for array in record.values())
