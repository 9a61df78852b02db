"""A Grid in this process: the same ServerApp and ClientApp, no server, no Ray.

Knows how Flower delivers messages; does not know what the apps do: they are arguments. Clients work one
after the other, when their reply is asked for, so that the loop sees each reply as it comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedstride import flower

CLIENT_RAISED = 2  # Flower's error code for an exception in a ClientApp
RUN_ID = 1
SERVER_ID = 1
STATES = "clients"  # where clients keep their states, in a run's folder


class LocalGrid(Grid):
    """`clients` nodes in this process, numbered from 2, with partition ids from 0.

    A ClientApp that raises gives an error reply with code 2, as on a SuperNode. Each node keeps its
    `Context.state` from message to message. Messages are not serialised.
    """

    def __init__(self, client_app: ClientApp, clients: int, run_config: dict[str, Any] | None = None) -> None:
        flower.set_identity(run_id=RUN_ID, node_id=SERVER_ID)
        self._app = client_app
        self._contexts = {
            SERVER_ID + 1 + i: Context(
                run_id=RUN_ID,
                node_id=SERVER_ID + 1 + i,
                node_config={"partition-id": i, "num-partitions": clients},
                state=RecordDict(),
                run_config=dict(run_config or {}),
            )
            for i in range(clients)
        }
        self._queue: deque[Message] = deque()
        self._run: Any = None

    def keep_in(self, folder: Path) -> None:
        """Let clients keep their states below this folder, the run's: in `clients/`."""
        for context in self._contexts.values():
            context.node_config["state"] = str(folder / STATES)

    @property
    def run(self) -> Any:
        """What `set_run` was given."""
        return self._run

    def set_run(self, run: Any) -> None:
        """Keep Flower's description of the run."""
        self._run = run

    def get_node_ids(self) -> Iterable[int]:
        """All nodes."""
        return list(self._contexts)

    def create_message(self, *args: Any, **options: Any) -> Message:
        """Deprecated in Flower; use `Message(...)`."""
        raise NotImplementedError("create_message is deprecated in Flower: build a flwr.app.Message")

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Queue the messages; their ids."""
        ids = []
        for message in messages:
            ids.append(flower.stamp(message))
            self._queue.append(message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Let the next waiting client work; its reply, or nothing if none of these is waiting."""
        wanted = set(message_ids)
        for message in list(self._queue):
            if message.metadata.message_id in wanted:
                self._queue.remove(message)
                return [self._deliver(message)]
        return []

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """All replies, in the order of the messages; nothing here can time out."""
        waiting = list(self.push_messages(messages))
        return [reply for message_id in waiting for reply in self.pull_messages([message_id])]

    def _deliver(self, message: Message) -> Message:
        try:
            return self._app(message, self._contexts[message.metadata.dst_node_id])
        except (Exception, SystemExit) as error:  # whatever a client does, the server goes on
            return Message(Error(CLIENT_RAISED, f"{type(error).__name__}: {error}"), reply_to=message)
