"""The roll call: each connected node is asked once which client it is, and its reply is waited for.

What a reply means is decided in `roster.py`. Here is known which nodes were asked, which have not answered yet,
which of them are slow, and where a person has still to approve the run.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from logging import WARNING

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedstride.flower import grids
from fedstride.flower.grids import ConnectedNode
from fedstride.flower.logs import log
from fedstride.messages import wire

from ..config.schema import Config
from .roll_call_replies import waits
from .sending import Waiting, collect, nodes_of, send
from .timeouts import CEILING, CallWait, Fixed, Patience

CALL_SECONDS = 600.0  # longest wait for replies at the start of a run
LATE_CALL_SECONDS = 120.0  # longest wait of a round for the reply of a node that joined late
APPROVAL_SECONDS = 10.0  # after which a node is asked again where a person has still to approve the run


class RollCall:
    """Asks nodes which client they are. `content`: the configuration that is sent to each of them."""

    def __init__(self, grid: Grid, config: Config, content: ConfigRecord) -> None:
        self.content = content
        self._grid = grid
        self._config = config
        self._nodes: list[ConnectedNode] = []  # those that were connected at the last call
        self._asked: set[tuple[int, str]] = set()  # the nodes that were asked, each with its connection
        self._pending: Waiting = {}  # messages without a reply
        self._slow: set[str] = set()  # keys of nodes that did not reply in time
        self._held: dict[str, float] = {}  # when nodes are asked again where the run waits for an approval, by key
        self._seconds: deque[float] = deque(maxlen=1000)  # that replies took

    def wait_at_start(self) -> Patience:
        """How long replies are waited for at the start of the run."""
        return self._patience(self._longest)

    def wait_in_round(self) -> Patience:
        """How long replies are waited for in a round."""
        return self._patience(min(self._longest, LATE_CALL_SECONDS))

    def replies(self, nodes: Sequence[ConnectedNode], patience: Patience) -> dict[int, Message]:
        """Ask those of the connected nodes that are newly so; the replies of these, and late ones, by node id.

        A node that did not reply to an earlier message in time is not waited for again.
        """
        now = time.monotonic()
        if nodes == self._nodes and not self._pending and all(now < again for again in self._held.values()):
            return {}  # as in most rounds
        self._nodes = list(nodes)
        newcomers = self._newcomers(now)
        known = {node.id for node in nodes} - {node.id for node in newcomers}
        self._pending = {mid: sent for mid, sent in self._pending.items() if sent.metadata.dst_node_id in known}
        replies = collect(self._grid, self._pending, Fixed(0.0))

        self._asked |= {(node.id, node.connected) for node in newcomers}
        later = self._send(node.id for node in newcomers if node.key in self._slow)
        waiting = self._send(node.id for node in newcomers if node.key not in self._slow)
        replies |= collect(self._grid, waiting, patience)
        for node in self._among(waiting):
            self._slow.add(node.key)
            log(WARNING, "%s; it can take part when it replies", _mute(node))
        self._pending |= waiting | later
        for node in nodes:
            if node.id in replies:
                self._hold(node, replies)
        return replies

    def ask_again(self, node: int) -> None:
        """Ask this node once more; its reply is taken at a later call."""
        self._pending |= self._send([node])

    def may_bring_more(self, nodes: Sequence[ConnectedNode], elapsed: float) -> bool:
        """Whether more replies can be expected, so many seconds after the start of the run."""
        if grids.is_simulation(self._grid):
            return False
        return (
            not self._asked.issuperset((node.id, node.connected) for node in nodes if node.key not in self._held)
            or (bool(len(nodes) < self._config.clients or self._held) and elapsed < self._config.node_wait)
            or (bool(self._pending) and elapsed < self._longest)
        )

    def without_answer(self, nodes: Sequence[ConnectedNode]) -> dict[int, str]:
        """Those of the nodes that have not answered yet, each with the reason."""
        silent = nodes_of(self._pending)
        held = {node.id: f"{node} waits for an approval" for node in nodes if node.key in self._held}
        return held | {node.id: _mute(node) for node in nodes if node.id in silent}

    @property
    def _longest(self) -> float:
        """The longest wait at the start of the run, in seconds."""
        if self._config.timeout is not None:
            return self._config.timeout
        return CEILING if grids.is_simulation(self._grid) else CALL_SECONDS

    def _patience(self, longest: float) -> Patience:
        learns = self._config.timeout is None and not grids.is_simulation(self._grid)
        return CallWait(self._seconds, longest) if learns else Fixed(longest)

    def _newcomers(self, now: float) -> list[ConnectedNode]:
        """The connected nodes that are to be asked now."""
        self._asked &= {(node.id, node.connected) for node in self._nodes}  # asked again when they come back
        newcomers = [node for node in self._nodes if (node.id, node.connected) not in self._asked]
        return [node for node in newcomers if self._held.get(node.key, now) <= now]

    def _among(self, waiting: Waiting) -> list[ConnectedNode]:
        silent = nodes_of(waiting)
        return [node for node in self._nodes if node.id in silent]

    def _send(self, nodes: Iterable[int]) -> Waiting:
        content = RecordDict({wire.CONFIG: self.content})  # the same for all: it takes longer than a message
        return send(
            self._grid,
            [Message(content=content, message_type=MessageType.QUERY, dst_node_id=node) for node in nodes],
        )

    def _hold(self, node: ConnectedNode, replies: dict[int, Message]) -> None:
        """Ask the node again later if a person there has still to approve the run; that is not a reply."""
        if not waits(replies[node.id]):
            self._held.pop(node.key, None)
            return
        del replies[node.id]
        if node.key not in self._held:
            log(WARNING, "%s answers when somebody there has approved the run (fedstride node-approve)", node)
        self._held[node.key] = time.monotonic() + APPROVAL_SECONDS
        self._asked.discard((node.id, node.connected))


def _mute(node: ConnectedNode) -> str:
    return f"{node} did not reply to the roll call in time; see its log"
