"""Receiving replies from a SuperLink: Flower's own Grid and its HTTP client, against a server with bad manners."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import numpy as np
import pytest
from crafted import KINDS, Crafted, as_node, craft, missing_object, never_complete, reply_to, sealed
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import ObjectTree, PullObjectRequest, PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse, PushAppMessagesResponse
from flwr.supercore.run import Run
from flwr.superlink.grid.http_grid import HttpGrid

from fedstride.arrays.named import to_record, views
from fedstride.flower import identity
from fedstride.messages import wire
from fedstride.processes import unix_signals
from server_app.exchange.sending import exchange
from server_app.exchange.timeouts import Fixed
from strategies.replies.screening import screen

identity.set_identity()

Answer = Callable[[Any], None]


class SuperLinkServer(ThreadingHTTPServer):
    """The three requests of a ServerApp that receives replies. `held`: replies by the id of the message."""

    daemon_threads = True
    request_queue_size = 128  # a SuperLink refuses no connection when all replies come at once

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.held: dict[str, Crafted] = {}
        self.before: list[Crafted] = []  # messages that nobody asked for
        self.broken: dict[str, Answer] = {}  # how a request for this id goes wrong
        self.confirmed: list[str] = []
        self.lost_confirmations = 0  # the next ones, after which the connection ends without an answer
        self.stopped = False  # whether the run was stopped meanwhile: its next request is refused
        self.questions = 0  # for the connected nodes
        self.pushes: dict[str, bytes] = {}  # answers to what sends messages, during which the run is stopped
        self.asked: list[list[str]] = []
        self.sent = 0  # bytes of answers

    def pulled(self, ids: list[str]) -> bytes:
        self.asked.append(ids)
        found = [self.held.pop(each) for each in ids if each in self.held]
        answer = PullAppMessagesResponse()
        for mid, crafted in zip(ids, found, strict=False):
            proto = answer.messages_list.add()
            proto.metadata.message_id, proto.metadata.reply_to_message_id = crafted.message_id, mid
            answer.message_object_trees.append(crafted.tree)
        for crafted in self.before:
            answer.messages_list.add().metadata.message_id = crafted.message_id
            answer.message_object_trees.append(crafted.tree)
        self.before.clear()
        return answer.SerializeToString()


class Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: ClassVar[dict[str, bytes]] = {}

    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["content-length"]))
        kind = self.path.rsplit("/", 1)[-1]
        if kind == "get-nodes":
            server.questions += 1
            return self.answer(b"", 401 if server.stopped else 200)
        if kind in server.pushes:
            server.stopped = True
            return self.answer(server.pushes[kind])
        if kind == "pull-messages":
            ids = list(PullAppMessagesRequest.FromString(body).message_ids)
            if ids[0] in server.broken:
                return server.broken[ids[0]](self)
            return self.answer(server.pulled(ids))
        if kind == "pull-object":
            object_id = PullObjectRequest.FromString(body).object_id
            if object_id in server.broken:
                return server.broken[object_id](self)
            content = self.objects.get(object_id)
            known = content is not None
            return self.answer(
                PullObjectResponse(
                    object_found=known, object_available=bool(content), object_content=content or b""
                ).SerializeToString()
            )
        if server.lost_confirmations:
            server.lost_confirmations -= 1
            self.close_connection = True
            return None
        server.confirmed.append(body)
        return self.answer(b"")

    def answer(self, body: bytes, status: int = 200, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body) if length is None else length))
        self.end_headers()
        for i in range(0, len(body), 2**16):
            self.wfile.write(body[i : i + 2**16])
            self.server.sent += len(body[i : i + 2**16])  # type: ignore[attr-defined]

    def log_message(self, *details: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[SuperLinkServer]:
    with SuperLinkServer() as running:
        Requests.objects = {}
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


class Federation:
    """Messages to nodes 10, 11, ..., and what each of them replies."""

    def __init__(self, server: SuperLinkServer, nodes: int) -> None:
        self.server = server
        grid = HttpGrid(f"127.0.0.1:{server.server_port}", insecure=True, token="none")
        grid.set_run(Run.create_empty(1))
        grid.push_messages = self._pushed  # type: ignore[method-assign]
        self.grid = grid
        model = ArrayRecord({"fc.weight": Array(np.arange(6.0, dtype=np.float32).reshape(2, 3))})
        self.model = views(model)
        self.messages = [
            Message(RecordDict({wire.ARRAYS: model}), dst_node_id=10 + i, message_type="train")
            for i in range(nodes)
        ]
        for message in self.messages:
            identity.stamp(message)

    def _pushed(self, messages: Any) -> list[str]:
        return [message.metadata.message_id for message in messages]

    def honest(self, i: int) -> Message:
        return reply_to(self.messages[i], client=i)

    def replies(self, i: int, crafted: Crafted | None = None) -> Crafted:
        crafted = sealed(as_node(self.honest(i))) if crafted is None else crafted
        self.server.held[self.messages[i].metadata.message_id] = crafted
        sent = {key: value for key, value in crafted.contents.items() if key not in crafted.withheld}
        Requests.objects |= {**dict.fromkeys(crafted.withheld, b""), **sent}
        return crafted

    def received(self, timeout: float = 100.0) -> tuple[list[int], dict[int, str]]:
        """The clients whose replies are used, and the reason for each node whose reply is not."""
        replies = exchange(self.grid, self.messages, patience=Fixed(timeout))
        cohort = screen([replies[node] for node in sorted(replies)], self.model)
        for reply in cohort.replies:
            np.testing.assert_array_equal(reply.model["fc.weight"], self.model["fc.weight"])
        return [reply.client_id for reply in cohort.replies], {r.node_id: r.reason for r in cohort.rejected}


@pytest.mark.slow
def test_honest_replies_are_used_and_confirmed(server: SuperLinkServer) -> None:
    federation = Federation(server, 3)
    for i in range(3):
        federation.replies(i)
    assert federation.received() == ([0, 1, 2], {})
    assert len(server.confirmed) == 3
    assert all(len(ids) == 1 for ids in server.asked)


@pytest.mark.slow
def test_all_malformed_replies_at_once_cost_their_nodes_only(server: SuperLinkServer) -> None:
    """Every kind between two honest replies; each is rejected with its node id and freed at the SuperLink."""
    federation = Federation(server, len(KINDS) + 2)
    federation.replies(0)
    for i, kind in enumerate(KINDS, start=1):
        federation.replies(i, craft(kind, federation.honest(i)))
    federation.replies(len(KINDS) + 1)
    used, reasons = federation.received(600.0)
    assert used == [0, len(KINDS) + 1]
    assert sorted(reasons) == [11 + i for i in range(len(KINDS))]
    assert len(server.confirmed) == len(KINDS) + 2 - sum(
        "more than" in reason and "objects" in reason for reason in reasons.values()
    )
    assert all(0 < len(reason) < 600 and reason.isprintable() for reason in reasons.values())


@pytest.mark.slow
@pytest.mark.parametrize(("lost", "confirmed"), [(2, 1), (3, 0)])
def test_a_confirmation_whose_connection_breaks_is_repeated(
    server: SuperLinkServer, lost: int, confirmed: int
) -> None:
    """At most twice. The reply is used in any case."""
    federation = Federation(server, 1)
    federation.replies(0)
    server.lost_confirmations = lost
    assert federation.received() == ([0], {})
    assert len(server.confirmed) == confirmed


@pytest.mark.slow
def test_an_object_that_never_comes_costs_no_more_than_the_timeout(server: SuperLinkServer) -> None:
    """The reply counts as absent, and the others do not wait for it."""
    federation = Federation(server, 3)
    federation.replies(0, never_complete(federation.honest(0)))
    for i in (1, 2):
        federation.replies(i)
    arrived: list[tuple[list[int], int, int]] = []
    started = time.monotonic()
    replies = exchange(
        federation.grid, federation.messages, patience=Fixed(8.0), on_replies=lambda *seen: arrived.append(seen)
    )
    assert sorted(replies) == [11, 12]
    assert sorted(node for nodes, _, _ in arrived for node in nodes) == [11, 12]
    assert arrived[-1][1:] == (2, 3)
    assert time.monotonic() - started < 60.0
    assert len(server.confirmed) == 2


@pytest.mark.slow
def test_an_object_that_comes_later_is_waited_for(server: SuperLinkServer) -> None:
    federation = Federation(server, 1)
    crafted = federation.replies(0, never_complete(federation.honest(0)))
    (withheld,) = crafted.withheld

    def send_the_rest() -> None:
        Requests.objects[withheld] = crafted.contents[withheld]

    timer = threading.Timer(0.5, send_the_rest)
    timer.start()
    assert federation.received() == ([0], {})
    timer.join()


@pytest.mark.slow
def test_an_object_that_is_not_announced(server: SuperLinkServer) -> None:
    federation = Federation(server, 2)
    federation.replies(0, missing_object(federation.honest(0)))
    federation.replies(1)
    used, reasons = federation.received()
    assert used == [1]
    assert "refers to an object which was not sent" in reasons[10]


@pytest.mark.slow
def test_an_object_that_the_superlink_does_not_know(server: SuperLinkServer) -> None:
    federation = Federation(server, 2)
    crafted = federation.replies(0)
    other = federation.replies(1)
    del Requests.objects[next(key for key in crafted.contents if key not in other.contents)]
    used, reasons = federation.received()
    assert (used, list(reasons)) == ([1], [10])
    assert "did not send all of its objects" in reasons[10]


@pytest.mark.slow
def test_an_endless_object_is_read_as_far_as_it_is_allowed(server: SuperLinkServer) -> None:
    """It claims a gigabyte and sends it; the server closes the connection instead of reading it."""
    federation = Federation(server, 2)
    crafted = federation.replies(0)
    other = federation.replies(1)
    size = 2**30
    head = b"\x08\x01\x10\x01\x1a" + _varint(size)

    def endless(request: Any) -> None:
        request.send_response(200)
        request.send_header("content-length", str(len(head) + size))
        request.end_headers()
        request.wfile.write(head)
        try:
            for _ in range(size // 2**20):
                request.wfile.write(b"\x00" * 2**20)
                server.sent += 2**20
        except OSError:
            request.close_connection = True

    server.broken[next(key for key in crafted.contents if key not in other.contents)] = endless
    used, reasons = federation.received()
    assert (used, list(reasons)) == ([1], [10])
    assert "more than" in reasons[10] and "bytes" in reasons[10]
    assert server.sent < size // 4


def wide_tree(message_id: str) -> ObjectTree:
    """A message that says that it consists of 200,000 objects."""
    tree = ObjectTree(object_id=message_id)
    for i in range(200_000):
        tree.children.add(object_id=f"{i:064x}")
    return tree


@pytest.mark.slow
def test_a_tree_of_200_000_objects(server: SuperLinkServer) -> None:
    federation = Federation(server, 2)
    crafted = sealed(as_node(federation.honest(0)))
    federation.replies(0, Crafted(crafted.message_id, crafted.contents, wide_tree(crafted.message_id)))
    federation.replies(1)
    used, reasons = federation.received()
    assert (used, list(reasons)) == ([1], [10])
    assert "objects" in reasons[10]


@pytest.mark.slow
def test_a_message_that_nobody_asked_for_is_ignored(server: SuperLinkServer) -> None:
    """A node can send one to the server; it comes along with the reply of another."""
    federation = Federation(server, 2)
    server.before.append(Crafted("0" * 64, {}, wide_tree("0" * 64)))
    for i in range(2):
        federation.replies(i)
    assert federation.received() == ([0, 1], {})


@pytest.mark.slow
@pytest.mark.parametrize("status", [413, 404])
def test_the_superlink_refuses_to_give_out_one_reply(server: SuperLinkServer, status: int) -> None:
    """The reply (413) or one of its objects (404)."""
    federation = Federation(server, 2)
    crafted, other = federation.replies(0), federation.replies(1)
    of_reply = federation.messages[0].metadata.message_id
    of_object = next(key for key in crafted.contents if key not in other.contents)
    server.broken[of_object if status == 404 else of_reply] = lambda request: request.answer(b"", status)
    used, reasons = federation.received()
    assert (used, list(reasons)) == ([1], [10])
    assert {413: "more than the SuperLink gives out", 404: "HTTP 404"}[status] in reasons[10]


@pytest.mark.slow
@pytest.mark.parametrize("of", ["the reply", "an object"])
def test_what_the_superlink_fails_to_give_out_is_asked_for_again(server: SuperLinkServer, of: str) -> None:
    """Its database can be locked for a moment; the node is not to blame."""
    federation = Federation(server, 1)
    crafted = federation.replies(0)
    broken = federation.messages[0].metadata.message_id if of == "the reply" else crafted.message_id
    tries: list[int] = []

    def once(request: Any) -> None:
        tries.append(1)
        del server.broken[broken]
        request.answer(b"", 500)

    server.broken[broken] = once
    assert federation.received() == ([0], {})
    assert len(tries) == 1


@pytest.mark.slow
def test_an_answer_that_is_cut_short_is_asked_for_again(server: SuperLinkServer) -> None:
    federation = Federation(server, 1)
    crafted = federation.replies(0)
    cut = next(iter(crafted.contents))
    tries: list[int] = []

    def twice(request: Any) -> None:
        tries.append(1)
        if len(tries) == 2:
            del server.broken[cut]
        request.answer(b"\x08\x01", length=100)
        request.close_connection = True

    server.broken[cut] = twice
    assert federation.received() == ([0], {})
    assert len(tries) == 2


@pytest.mark.slow
def test_a_reply_to_another_message(server: SuperLinkServer) -> None:
    """Node 10 sends node 11's reply, whose objects it has copied."""
    federation = Federation(server, 2)
    federation.replies(0, sealed(as_node(federation.honest(1))))
    federation.replies(1)
    used, reasons = federation.received()
    assert (used, list(reasons)) == ([1], [10])
    assert "does not reply to the message" in reasons[10]


@contextlib.contextmanager
def stopped() -> Iterator[None]:
    """Expects the signal that Flower sends to its process, as a ServerApp handles it."""
    with pytest.raises(KeyboardInterrupt), unix_signals.handled(unix_signals.RaiseOnce()):
        yield


@pytest.mark.parametrize("lost", ["message", "object"])
def test_a_stop_while_messages_are_sent_is_no_failure(server: SuperLinkServer, lost: str) -> None:
    """The SuperLink no longer accepts a message, or has deleted the message whose object comes."""
    federation = Federation(server, 1)
    del federation.grid.push_messages  # Flower's own
    message_id = "" if lost == "message" else "m"
    missing = [] if lost == "message" else [federation.messages[0].content.object_id]
    pushed = PushAppMessagesResponse(message_ids=[message_id], objects_to_push=missing, session_id="s")
    server.pushes = {"push-messages": pushed.SerializeToString(), "push-object": b""}
    with stopped():
        exchange(federation.grid, federation.messages, patience=Fixed(100.0))
    assert server.questions == 1


def test_a_stop_while_a_reply_is_fetched_is_no_failure_of_its_client(server: SuperLinkServer) -> None:
    federation = Federation(server, 1)
    crafted = federation.replies(0)

    def deleted(request: Any) -> None:
        server.stopped = True
        request.answer(PullObjectResponse().SerializeToString())

    server.broken[crafted.message_id] = deleted
    with stopped():
        exchange(federation.grid, federation.messages, patience=Fixed(100.0))
    assert server.questions == 1


def test_a_message_that_is_not_accepted_in_a_run_that_goes_on(server: SuperLinkServer) -> None:
    federation = Federation(server, 1)
    federation.grid.push_messages = lambda messages: [""]  # type: ignore[method-assign]
    assert exchange(federation.grid, federation.messages, patience=Fixed(100.0)) == {}
    assert server.questions == 1


@pytest.mark.slow
def test_an_error_of_a_client_stays_its_error(server: SuperLinkServer) -> None:
    federation = Federation(server, 2)
    failed = Message(Error(2, "ValueError: no data"), reply_to=federation.messages[0])
    federation.replies(0, sealed(as_node(failed)))
    federation.replies(1)
    assert federation.received() == ([1], {10: "the client failed: ValueError: no data"})


def test_the_bounds_hold_in_process_too() -> None:
    """A Grid that gives out messages: the same reason as from a SuperLink."""
    from lab.engine.local_grid import LocalGrid

    def client(message: Message, context: Any) -> Message:
        reply = reply_to(message)
        if context.node_id == 2:
            reply.content[wire.METRICS] = MetricRecord({"list": [0.0] * 10_001})
        return reply

    grid = LocalGrid(client, 2)  # type: ignore[arg-type]
    messages = [Message(RecordDict(), dst_node_id=node, message_type="train") for node in (2, 3)]
    replies = exchange(grid, messages, patience=Fixed(100))
    assert replies[2].error.code == wire.UNUSABLE
    assert replies[2].error.reason == (
        "what it sent is not used: 10001 items in 'list', at most 10000 are allowed"
    )
    assert replies[3].has_content()


def test_a_grid_in_process_answers_many_small_messages_at_once_and_models_one_by_one() -> None:
    from lab.engine.local_grid import AT_ONCE, LocalGrid

    grid = LocalGrid(lambda message, context: reply_to(message), 200)  # type: ignore[arg-type, return-value]
    model = to_record({"w": np.zeros(2, np.float32)})
    contents = [RecordDict()] * 100 + [RecordDict({wire.ARRAYS: model})] * 2 + [RecordDict()]
    messages = [
        Message(content, dst_node_id=node, message_type="query") for node, content in enumerate(contents, start=2)
    ]
    waiting = list(grid.push_messages(messages))
    pulled = []
    while waiting:
        replies = [reply.metadata.reply_to_message_id for reply in grid.pull_messages(waiting)]
        assert replies == waiting[: len(replies)]
        del waiting[: len(replies)]
        pulled.append(len(replies))
    assert pulled == [AT_ONCE, 100 - AT_ONCE, 1, 1, 1]
    assert list(grid.pull_messages(["no id"])) == []


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def test_message_metadata_is_what_flower_sends() -> None:
    """The fake SuperLink above lists replies as the real one does: message id, and what it replies to."""
    message = Message(RecordDict(), dst_node_id=2, message_type="train")
    identity.stamp(message)
    proto = message_to_proto(Message(RecordDict(), reply_to=message))
    assert proto.metadata.reply_to_message_id == message.metadata.message_id
