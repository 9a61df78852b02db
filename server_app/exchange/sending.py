"""Sends messages and collects replies, through any Grid; and a Grid that contains only the cohort.

Flower's `send_and_receive` looks for replies only every three seconds on a deployment and returns them all at the
end. `exchange` looks more often and reports each reply when it arrives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fedstride.arrays.named import Arrays
from fedstride.flower.for_superlinks.replies import behind, notice_stop
from fedstride.flower.grids import repeats
from fedstride.flower.identity import set_source
from fedstride.messages.packed_arrays import Packer
from fedstride.processes.polling import Growing

from .receiving import Receiver, receiver
from .timeouts import Patience

POLL_SECONDS = (0.03, 0.2)
"""Shortest and longest pause between two requests for replies. They grow with the time since the last reply, so
that a reply is not noticed much later than it comes, and a SuperLink is not asked often in a long training."""

Waiting = dict[str, Message]
"""The messages that have no reply yet, by message id."""

FETCH_SECONDS = 5.0
"""A reply that is announced, but not yet here, is waited for at least so long."""


def exchange(
    grid: Grid,
    messages: Sequence[Message],
    *,
    patience: Patience,
    returns: Mapping[str, Arrays] | None = None,
    unpacking: Container[int] = (),
    on_replies: Callable[[Sequence[int], int, int], None] = lambda nodes, done, total: None,
) -> dict[int, Message]:
    """Send the messages, wait for the replies, and return them by node id. A node that did not reply is absent.

    Waits as long as `patience` says. Only the first reply to a message is used, and one with more than is allowed
    or of another form is an error (see `receiving.py`). `returns`: records of arrays that are asked back, by name.
    `unpacking`: see `send`. `on_replies(nodes, done, total)` is called with those that have replied since the last
    call.
    """
    return collect(
        grid,
        send(grid, messages, unpacking),
        patience,
        returns=returns,
        on_replies=lambda nodes, done: on_replies(nodes, done, len(messages)),
    )


def send(grid: Grid, messages: Sequence[Message], unpacking: Container[int] = ()) -> Waiting:
    """Send the messages. Those that the SuperLink does not accept are not in the result.

    `unpacking`: the nodes that understand a packed model. On a deployment they get it packed, and reply so.
    """
    packs = [message for message in messages if message.metadata.dst_node_id in unpacking]
    try:
        with _packed(packs if behind(grid) else []):
            ids = list(grid.push_messages(messages))
    except Exception:
        notice_stop(grid)
        raise
    if not all(ids):
        notice_stop(grid)
    return {mid: message for mid, message in zip(ids, messages, strict=True) if mid}


@contextmanager
def _packed(messages: Sequence[Message]) -> Iterator[None]:
    """Within this context the messages are packed; for all else they have their arrays by name."""
    packer, contents = Packer(), [message.content for message in messages]
    try:
        for message, content in zip(messages, contents, strict=True):
            message.content = packer.packed(content)
        yield
    finally:
        for message, content in zip(messages, contents, strict=True):
            message.content = content


def collect(
    grid: Grid,
    waiting: Waiting,
    patience: Patience,
    *,
    returns: Mapping[str, Arrays] | None = None,
    on_replies: Callable[[Sequence[int], int], None] = lambda nodes, done: None,
) -> dict[int, Message]:
    """Wait for replies and return them by node id. Their messages are removed from `waiting`."""
    with closing(receiver(grid, dict(waiting), returns)) as received:
        replies = _collected(received, waiting, patience, on_replies)
    if any(reply.has_error() for reply in replies.values()):
        notice_stop(grid)
    return replies


def nodes_of(waiting: Waiting) -> set[int]:
    """The nodes that have not replied yet."""
    return {message.metadata.dst_node_id for message in waiting.values()}


def _collected(
    received: Receiver, waiting: Waiting, patience: Patience, on_replies: Callable[[Sequence[int], int], None]
) -> dict[int, Message]:
    started = time.monotonic()
    replies: dict[int, Message] = {}
    pauses = Growing(*POLL_SECONDS)
    while waiting:
        arrived, asked = list[int](), time.monotonic()
        for message_id, reply in received.replies(waiting):
            message = waiting.pop(message_id, None)
            if message is not None:
                node = message.metadata.dst_node_id
                set_source(reply, node)
                replies[node] = reply
                arrived.append(node)
                patience.replied(node, time.monotonic() - started, failed=reply.has_error())
        if arrived:
            on_replies(arrived, len(replies))
            pauses.restart()
        elif waiting:
            least = FETCH_SECONDS if received.is_fetching() else 0.0
            if time.monotonic() >= started + max(patience.seconds(nodes_of(waiting)), least):
                break
            rest = max(pauses.pause(), time.monotonic() - asked)  # a SuperLink with many nodes has other work too
            if received.is_fetching():
                received.wait(rest)
            else:
                time.sleep(rest)
    return replies


class CohortGrid(Grid):
    """A Grid that contains only the nodes of the round's cohort.

    The cohort is drawn from the run's seed, which is reproducible. A strategy that samples nodes itself, as
    Flower's do, gets exactly the cohort.
    """

    def __init__(self, grid: Grid, nodes: Sequence[int]) -> None:
        self._grid = grid
        self._nodes = list(nodes)

    def get_node_ids(self) -> Iterable[int]:
        """The nodes of the cohort, in the order of client ids."""
        return list(self._nodes)

    @property
    def sites(self) -> Mapping[int, str]:
        """What the wrapped Grid calls the data of its nodes; empty if it has no names for them."""
        return getattr(self._grid, "sites", {})

    @property
    def repeats(self) -> bool:
        """Whether the wrapped Grid is that of a run beside another one."""
        return repeats(self._grid)

    @property
    def run(self) -> Any:
        """The run of the wrapped Grid."""
        return self._grid.run

    def set_run(self, run: Any) -> None:
        """Forwarded to the wrapped Grid."""
        self._grid.set_run(run)

    def create_message(self, *args: Any, **options: Any) -> Message:
        """Forwarded to the wrapped Grid."""
        return self._grid.create_message(*args, **options)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Forwarded to the wrapped Grid."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Forwarded to the wrapped Grid."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Forwarded to the wrapped Grid."""
        return self._grid.send_and_receive(messages, timeout=timeout)
