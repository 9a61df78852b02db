"""Messages out, replies in, through any Grid; and the cohort as a Grid of its own.

Knows push and pull; does not know what a message says. Flower's `send_and_receive` asks only every
three seconds on a deployment and hands all replies over at the end; here they come one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fedstride import flower

POLL_SECONDS = (0.02, 0.2)  # shortest and longest pause between two looks for replies


def exchange(
    grid: Grid,
    messages: Sequence[Message],
    *,
    timeout: float,
    on_reply: Callable[[int, int], None] = lambda done, total: None,
) -> dict[int, Message]:
    """Send the messages and wait for their replies: reply by node id; who did not answer is absent.

    Each message is answered at most once, whatever arrives. `on_reply(done, total)` is called after each.
    """
    ids = list(grid.push_messages(messages))
    waiting = {mid: message.metadata.dst_node_id for mid, message in zip(ids, messages, strict=True) if mid}
    deadline = time.monotonic() + timeout
    replies: dict[int, Message] = {}
    pause = POLL_SECONDS[0]
    while waiting:
        arrived = False
        for reply in grid.pull_messages(list(waiting)):
            node = waiting.pop(reply.metadata.reply_to_message_id, None)
            if node is not None:
                flower.set_source(reply, node)
                replies[node] = reply
                arrived = True
                on_reply(len(replies), len(messages))
        if arrived:
            pause = POLL_SECONDS[0]
        elif waiting:
            if time.monotonic() >= deadline:
                break
            time.sleep(pause)
            pause = min(2 * pause, POLL_SECONDS[1])
    return replies


class CohortGrid(Grid):
    """A Grid that shows a strategy the nodes of the round's cohort and no others.

    So the draw is ours and reproducible, and Flower's own sampling has nothing left to choose.
    """

    def __init__(self, grid: Grid, nodes: Sequence[int]) -> None:
        self._grid = grid
        self._nodes = list(nodes)

    def get_node_ids(self) -> Iterable[int]:
        """The cohort, in the order of client ids."""
        return list(self._nodes)

    @property
    def run(self) -> Any:
        """The run of the Grid behind."""
        return self._grid.run

    def set_run(self, run: Any) -> None:
        """Passed on."""
        self._grid.set_run(run)

    def create_message(self, *args: Any, **options: Any) -> Message:
        """Passed on."""
        return self._grid.create_message(*args, **options)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Passed on."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Passed on."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Passed on."""
        return self._grid.send_and_receive(messages, timeout=timeout)
