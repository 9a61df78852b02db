"""All code that depends on Flower's private names or on differences between Flower's versions.

No other module imports private names of Flower, except `superlink.py` for the replies at a SuperLink,
`lab/node/seams.py` and `passages.py` for the processes and messages of a SuperNode, and `lab/flower/control.py`
for questions to a SuperLink.
Each case gives the Flower version and the reason. The oldest supported version is 1.21, the first one with
`flwr.serverapp.strategy`.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp import strategy as _strategies
from flwr.serverapp.strategy import Strategy
from flwr.serverapp.strategy.fedopt import FedOpt
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from .placing import size_of

log = logging.getLogger("flwr").log
"""Flower's log function: `flwr.common.log` up to 1.34, `flwr.supercore.log` from 1.35 on. Both use the logger
`flwr`."""

AVERAGES_METRICS = aggregate_metricrecords
"""The default `train_metrics_aggr_fn` of a Flower strategy (from 1.21 on; private in all versions)."""

ADAPTIVE: tuple[Any, ...] = (
    *([_strategies.FedAvgM] if hasattr(_strategies, "FedAvgM") else []),  # not in 1.21
    FedOpt,
)
"""Flower's strategies whose server optimiser treats buffers like parameters (1.39). A momentum or Adam step on
a running variance can make it negative, so our wrappers replace the buffers in the result by their averages."""


def set_identity(run_id: int = 1, node_id: int = 1) -> None:
    """Set the task identity of this process, which `Message` requires from 1.38 on.

    Flower's own runtimes set it; a process without such a runtime calls this function.
    """
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # up to 1.37 a message needs no identity
        return
    TaskIdentity.run_id = run_id
    TaskIdentity.node_id = node_id
    TaskIdentity.task_id = 1


def stamp(message: Message) -> str:
    """Give a message a new id, as the SuperLink does on arrival, and return the id."""
    message_id = uuid.uuid4().hex
    message.metadata.__dict__["_message_id"] = message_id
    return message_id


def set_source(reply: Message, node: int) -> None:
    """Set the source of a reply to the node to which the message was sent.

    If a node is gone, the SuperLink replies instead of it, with its own id as the source (error code 5, 1.39).
    Also, the server does not trust the source that a reply names.
    """
    reply.metadata.__dict__["_src_node_id"] = node


def is_simulation(grid: object) -> bool:
    """Whether this is the Grid of a Flower simulation, in which all nodes exist from the start (1.39)."""
    return type(grid).__name__ == "InMemoryGrid"


TOKEN_REFUSED = (401, 403)
"""The HTTP status of the SuperLink's answer to a request of a run that has ended (1.39)."""


def no_longer_runs(error: BaseException) -> bool:
    """Whether this is Flower's error for a request of a run that was stopped meanwhile (1.39).

    The SuperLink then refuses the run's token. The first thread that notices it sends SIGINT to its process; what
    another thread asks before the signal arrives fails with the bare HTTP status.
    """
    if type(error).__name__ == "RunNotRunningException":
        return True
    status = getattr(getattr(error, "response", None), "status_code", None)
    return type(error).__name__ == "HTTPStatusError" and status in TOKEN_REFUSED


class Node(NamedTuple):
    """What the SuperLink knows of a connected node. Nothing of it is a statement of the node itself."""

    id: int  # drawn by the SuperLink for each key
    key: str  # 32 hexadecimal digits of its public key's SHA-256; the node id where nodes have no keys
    name: str = ""  # with which its key was registered
    registered: str = ""  # when its key was registered, as in ISO 8601
    connected: str = ""  # since when it is connected, as in ISO 8601

    def __str__(self) -> str:
        return f"node {self.id}" + (f" ({self.name[:100]!r})" if self.name else "")


def has_keys(grid: Grid) -> bool:
    """Whether the nodes of this Grid have keys that last longer than the run: those of a deployment (1.39).

    In a simulation, the keys are random. Other Grids inherit `get_nodes`, which knows the node ids only.
    """
    return type(grid).get_nodes is not Grid.get_nodes and not is_simulation(grid)


def nodes(grid: Grid) -> list[Node]:
    """The connected nodes, in the order in which their keys were registered (1.39)."""
    if type(grid).get_nodes is Grid.get_nodes:  # which makes an object for each id, in each round
        return [_without_key(node) for node in sorted(grid.get_node_ids())]
    keyed = has_keys(grid)
    found = []
    for info in grid.get_nodes():
        key = hashlib.sha256(info.public_key).hexdigest()[:32] if keyed and info.public_key else str(info.node_id)
        found.append(Node(info.node_id, key, info.name, info.registered_at, info.last_activated_at))
    return sorted(found, key=lambda node: (node.registered, node.id))


@lru_cache(maxsize=100_000)
def _without_key(node: int) -> Node:
    return Node(node, str(node))


def chain(strategy: Strategy) -> Iterator[Strategy]:
    """A strategy and the strategies that it wraps, the outermost first; Flower's privacy wrappers included."""
    inner: Any = strategy
    while isinstance(inner, Strategy):
        yield inner
        inner = getattr(inner, "strategy", None)


def forget_current_arrays(strategy: Strategy) -> None:
    """Make FedAvgM and FedOpt use the model of the next `configure_train` as their current weights.

    FedAvgM (1.39) stores the weights of the first round and then uses its own results only. Without this call it
    would ignore the changes that a wrapper made to a result (A3-9).
    """
    for inner in chain(strategy):
        if isinstance(inner, ADAPTIVE):
            inner.current_arrays = None


# The attributes in which Flower's strategies keep their state between rounds (1.39).
_STATE = ("m_t", "v_t", "momentum_vector")


def builtin_state(strategy: Strategy) -> dict[str, Any]:
    """The state of a Flower strategy and of the strategies that it wraps, as a flat dict of arrays."""
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
    """Bytes of a record's serialised arrays, headers included."""
    return sum(map(size_of, record.values()))


def bundle(folder: Path) -> bytes:
    """The bundle that `flwr run` makes of an app's folder (1.39). Raises ValueError if it cannot."""
    from flwr.cli.build import build_fab_from_disk

    return bytes(build_fab_from_disk(folder))
