"""A Flower Grid in this process: the same ServerApp and ClientApp, without a server and without Ray.

The clients run one after the other, in this process. Each runs when its reply is pulled, so that the server's loop
receives every reply as soon as it exists. `worker_grid.py` has the same Grid with clients in other processes.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedstride.flower import identity
from fedstride.messages import wire
from fedstride.messages.records import array_records

from ..attacks.labels import FLIPS, on_flipped_labels

RUN_ID = 1
SERVER_ID = 1
AT_ONCE = 64
"""Messages without a model that are answered at once, at most."""


class LocalGrid(Grid):
    """`clients` nodes in this process, numbered from 2, with partition ids from 0.

    An exception in the ClientApp becomes an error reply with code 2, as on a SuperNode. Each node keeps its
    `Context.state` between messages. Messages are not serialised. `data`: a path for each node, with its own data.
    `sites`: what messages call the nodes then, by id. `repeats`: a run beside it says the same of the clients.
    """

    def __init__(
        self,
        client_app: ClientApp,
        clients: int,
        data: Sequence[str] = (),
    ) -> None:
        identity.set_identity(run_id=RUN_ID, node_id=SERVER_ID)
        self._app = client_app
        self._contexts = {
            SERVER_ID + 1 + i: Context(
                run_id=RUN_ID,
                node_id=SERVER_ID + 1 + i,
                node_config={
                    "partition-id": i,
                    "num-partitions": clients,
                    wire.DESK: True,
                    **({"data": data[i]} if data else {}),
                },
                state=RecordDict(),
                run_config={},
            )
            for i in range(clients)
        }
        self.sites = dict(zip(self._contexts, names_of(data), strict=False))
        self.repeats = False
        self._queue: deque[Message] = deque()
        self._run: Any = None

    def keep_client_states_in(self, folder: Path) -> None:
        """Store the clients' states below this run folder, in `clients/`."""
        for context in self._contexts.values():
            context.node_config["state"] = str(folder / wire.CLIENT_STATES)

    def flip_labels(self, clients: Iterable[int]) -> None:
        """Let these clients, by partition id, train on flipped labels."""
        for client in clients:
            self._contexts[SERVER_ID + 1 + client].node_config[FLIPS] = True

    def repeat(self) -> None:
        """Say nothing of the clients that a run beside this one says."""
        self.repeats = True
        for context in self._contexts.values():
            context.node_config[wire.REPEATS] = True

    @property
    def run(self) -> Any:
        """The description of the run that `set_run` stored."""
        return self._run

    def set_run(self, run: Any) -> None:
        """Store Flower's description of the run."""
        self._run = run

    def get_node_ids(self) -> Iterable[int]:
        """The ids of all nodes."""
        return list(self._contexts)

    def create_message(self, *args: Any, **options: Any) -> Message:
        """Deprecated in Flower; use `Message(...)`."""
        raise NotImplementedError("create_message is deprecated in Flower: build a flwr.app.Message")

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Queue the messages; returns their ids."""
        ids = []
        for message in messages:
            ids.append(identity.stamp(message))
            self._queue.append(message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Run the client of the first queued message with one of these ids; its reply. Empty if none is queued.

        Of messages without a model, the clients of the first `AT_ONCE`: each call looks through all ids.
        """
        wanted = set(message_ids)
        asked = [message for message in self._queue if message.metadata.message_id in wanted]
        small = itertools.takewhile(lambda message: not has_arrays(message), asked)
        return [self._next(message) for message in list(itertools.islice(small, AT_ONCE)) or asked[:1]]

    def _next(self, message: Message) -> Message:
        self._queue.remove(message)
        return self._deliver(message)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """All replies, in the order of the messages; `timeout` has no effect here."""
        waiting = list(self.push_messages(messages))
        return [reply for message_id in waiting for reply in self.pull_messages([message_id])]

    def _deliver(self, message: Message) -> Message:
        return replied(self._app, message, self._contexts[message.metadata.dst_node_id])


def names_of(files: Sequence[str]) -> list[str]:
    """What to call the sites with these data: the names of files and folders, without their endings.

    Where two have one name, each has its number before it.
    """
    names = [Path(file).stem for file in files]
    return names if len(set(names)) == len(names) else [f"{at} ({name})" for at, name in enumerate(names)]


def has_arrays(message: Message) -> bool:
    """Whether the message has a model, or other arrays. Without any, it is answered quickly, as a roll call is."""
    return message.has_content() and bool(array_records(message.content))


def replied(app: ClientApp, message: Message, context: Context) -> Message:
    """The ClientApp's reply. An exception becomes an error reply, since one client must not end the run."""
    try:
        return on_flipped_labels(message, context) if FLIPS in context.node_config else app(message, context)
    except (Exception, SystemExit) as error:
        return failure(message, f"{type(error).__name__}: {error}")


def failure(message: Message, reason: str) -> Message:
    """The reply of a client that failed."""
    return Message(Error(wire.FAILED, reason), reply_to=message)
