"""Runs the app in this process; checks which files its modules come from, and its final models."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import flwr
import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid

import client_app
import fedstride
import server_app
import strategies
from fedstride.flower import identity

HERE = Path(__file__).resolve().parent
SERVER = 1
NODES = (2, 3, 4)


def context(node: int) -> Context:
    """The context that Flower gives to an app."""
    return Context(1, node, {"partition-id": node - NODES[0]}, RecordDict(), {})


class Here(Grid):
    """Three nodes in this process, which answer immediately."""

    def get_node_ids(self) -> list[int]:
        """All nodes."""
        return list(NODES)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """The clients' replies."""
        return [client_app.app(message, context(message.metadata.dst_node_id)) for message in messages]

    def set_run(self, run: Any) -> None:
        """Does nothing: there is only one run."""

    @property
    def run(self) -> Any:
        """Not used."""
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """Not used."""
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Not used."""
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Not used."""
        raise NotImplementedError


assert Path(strategies.__file__).parent == HERE / "strategies", "fedstride's strategies replaced those of the app"
assert Path(fedstride.__file__).parent.parent.name == "site-packages", "fedstride is not the installed one"

identity.set_identity()
server_app.app(Here(), context(SERVER))

middle = client_app.TARGETS.mean(axis=0)
for name, model in server_app.results.items():
    far = float(np.linalg.norm(model - middle))
    assert far < 1.5, f"{name} ended at {model}, {far:.3f} from {middle}"
heavy = {"torch", "hydra", "ray", "pandas", "matplotlib"} & set(sys.modules)
assert not heavy, f"the strategies loaded {heavy}"
print(f"own app: {len(server_app.results)} federations with Flower {flwr.__version__}, numpy {np.__version__}")
