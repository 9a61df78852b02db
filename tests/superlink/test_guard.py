"""What passes the guard, and what it refuses; numbers in names of tests are rows of the analysis of attacks."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from doors import KNOWN, NODE, TASK, TOKEN, UNKNOWN, WITH_TOKEN, Door, of_node, pushed

from fedstride.flower.for_nodes import request_keys
from superlink import guard
from superlink.allowed_routes import CHUNK, FLEET, NO_TOKEN

LENGTH = b"content-length"


def known() -> list[tuple[bytes, bytes]]:
    return of_node(KNOWN.signed())


def detail(body: bytes) -> str:
    return str(json.loads(body)["detail"])


# ---------------------------------------------------------------- who may ask for what (row 19)


@pytest.mark.parametrize("name", FLEET)
def test_a_known_node_reaches_its_twelve_routes(name: str) -> None:
    door = Door()
    body = pushed() if name == "push-messages" else b"x"
    assert door.ask(f"/v1/fleet/{name}", known(), body) == (200, b"of Flower")
    assert door.flower.got == [(f"/v1/fleet/{name}", body)]


@pytest.mark.parametrize(
    ("path", "method"),
    [
        *[(f"/v1/fleet/{name}", "GET") for name in FLEET],
        *[(path, "POST") for path in ("/v1/fleet/", "/v1/fleet", "/v1/fleet/x", "/v1/fleet/pull-messages/")],
        *[
            (path, "POST")
            for path in ("/v1/fleet/../control/list-runs", "/v1/fleet/%2e%2e/control", "//v1/fleet/get-run")
        ],
        *[(path, "POST") for path in ("/V1/fleet/get-run", "/v1/fleet/get-run;x", "/v1/fleet/get_run", "/health")],
        *[(path, "GET") for path in ("/docs", "/openapi.json", "/", "/v1/control/list-runs", "/v1/responses")],
        ("/health", "POST"),
        ("/v1/responses", "POST"),
        ("/v1/runtime/acquire-task", "POST"),
        ("/v1/runtime/claim-task", "POST"),
        ("/v1/runtime/pull-pending-tasks", "POST"),
    ],
)
def test_19_30_other_routes_do_not_exist_for_anyone(path: str, method: str) -> None:
    door = Door(flwr=True)
    everything = [*known(), *WITH_TOKEN, *TASK]
    for peer in ("127.0.0.1", "192.0.2.9"):
        assert door.ask(path, everything, b"x", method=method, peer=peer)[0] == 404
    assert door.flower.got == []


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "192.0.2.9", "::ffff:127.0.0.1"])
def test_19_submitting_needs_the_token_from_everywhere(peer: str) -> None:
    door = Door()
    for headers in ([], [(b"fedstride-token", b"other")], [*WITH_TOKEN, *WITH_TOKEN], [(b"fedstride-token", b"")]):
        status, body = door.ask("/v1/control/start-run", headers, b"x", peer=peer)
        assert (status, detail(body)) == (403, NO_TOKEN)
    assert door.flower.got == []
    assert door.ask("/v1/control/start-run", WITH_TOKEN, b"x", peer=peer)[0] == 200


def test_19_flwr_without_the_token_is_an_option_for_the_loopback_only() -> None:
    door = Door(flwr=True)
    assert door.ask("/v1/control/list-runs", [], peer="127.0.0.1")[0] == 200
    assert door.ask("/v1/control/list-runs", [], peer="192.0.2.9")[0] == 403
    assert door.ask("/v1/control/list-runs", [(b"fedstride-token", b"other")], peer="127.0.0.1")[0] == 403
    assert door.ask("/v1/fedstride/files?folder=/x", [], method="GET", peer="127.0.0.1")[0] == 403


def test_a_serverapp_needs_the_token_of_its_task() -> None:
    """The refusal is Flower's own, which a ServerApp understands."""
    door = Door()
    for headers in ([], [(b"flwr-task-token", b"other")], [*TASK, *TASK], WITH_TOKEN):
        status, body = door.ask("/v1/runtime/pull-messages", headers, b"x", peer="127.0.0.1")
        assert (status, json.loads(body)["code"]) == (401, 1008)
    assert door.flower.got == []
    assert door.ask("/v1/runtime/pull-messages", TASK, b"x", peer="127.0.0.1")[0] == 200


@pytest.mark.parametrize(
    "header",
    [b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-anything", b"x-real-ip", b"via"],
)
def test_19_a_forwarded_request_needs_the_option(header: bytes) -> None:
    forwarded = [(header, b"127.0.0.1")]
    for path, method in (("/health", "GET"), ("/v1/fleet/get-run", "POST"), ("/v1/control/list-runs", "POST")):
        status, body = Door().ask(path, [*known(), *WITH_TOKEN, *forwarded], method=method, peer="127.0.0.1")
        assert status == 403 and "--behind-proxy" in detail(body)
        assert Door(behind_proxy=True).ask(path, [*known(), *WITH_TOKEN, *forwarded], method=method)[0] == 200


def test_health_needs_nothing_and_names_the_version() -> None:
    door = Door()
    assert door.ask("/health", method="GET") == (200, b'{"status":"ok"}')
    assert door.ask("/health", method="HEAD") == (200, b"")
    assert door.flower.got == []


def test_with_grpc_there_are_no_routes_of_nodes() -> None:
    assert Door(fleet=False).ask("/v1/fleet/pull-messages", known())[0] == 404


@pytest.mark.parametrize("kind", ["websocket", "other"])
def test_19_other_scopes_are_closed(kind: str) -> None:
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    asyncio.run(Door().guard({"type": kind, "path": "/health"}, None, send))  # type: ignore[arg-type]
    assert sent == ([{"type": "websocket.close", "code": 1008}] if kind == "websocket" else [])


# ---------------------------------------------------------------- nodes


def test_18_a_node_is_known_before_its_body_is_read() -> None:
    """Only joining may be asked by a key that is not known: Flower answers it."""
    door = Door()
    old = KNOWN.signed()._replace(signature=b"x")
    for headers in ([], of_node(UNKNOWN.signed()), of_node(old), [*known(), *known()]):
        status, body = door.ask("/v1/fleet/push-object", headers, b"x")
        assert status == 401 and detail(body).startswith(guard.REFUSED)
    for name in ("register-node", "activate-node"):
        assert door.ask(f"/v1/fleet/{name}", of_node(UNKNOWN.signed()))[0] == 200
        assert door.ask(f"/v1/fleet/{name}", [])[0] == 401
    assert len(door.flower.got) == 2


@pytest.mark.parametrize(
    ("seconds", "fault"), [(-304, ""), (-306, request_keys.OTHER_CLOCK), (4, ""), (6, request_keys.OTHER_CLOCK)]
)
def test_a_signed_time_is_valid_for_five_minutes(seconds: float, fault: str) -> None:
    """A node whose clock is wrong reads so."""
    signed = KNOWN.signed()
    now = datetime.fromisoformat(signed.time) - timedelta(seconds=seconds)
    assert request_keys.fault(signed.public_key, signed.time, signed.signature, now) == fault


@pytest.mark.parametrize("moment", ["", "x", "2026-01-01T00:00:00", "ä"])
def test_a_time_that_is_none(moment: str) -> None:
    signed = KNOWN.signed()
    assert (
        request_keys.fault(signed.public_key, moment, signed.signature, datetime.now(UTC)) == "Invalid signature"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"src_node_id": NODE + 1}, f"node {NODE} answers in the name of {NODE + 1}"),
        ({"src_node_id": 1}, f"node {NODE} answers in the name of 1"),
        ({"dst_node_id": NODE + 1}, "sends an instruction"),
        ({"reply_to_message_id": ""}, "sends an instruction"),
    ],
)
def test_22_a_node_cannot_speak_for_another(changes: dict[str, Any], said: str) -> None:
    door = Door()
    status, body = door.ask("/v1/fleet/push-messages", known(), pushed(**changes))
    assert status == 400 and said in detail(body)
    assert door.ask("/v1/fleet/push-messages", known(), pushed() + pushed())[0] == 400  # two messages
    assert door.ask("/v1/fleet/push-messages", known(), b"\xff\xff")[0] == 400
    assert door.flower.got == []
    assert door.ask("/v1/fleet/push-messages", known(), pushed()) == (200, b"of Flower")


# ---------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    ("path", "headers", "most"),
    [
        ("/v1/fleet/push-object", known, CHUNK),
        ("/v1/fleet/pull-messages", known, 64 * 1024),
        ("/v1/fleet/register-node", known, 16 * 1024),
        ("/v1/control/list-runs", lambda: WITH_TOKEN, 64 * 1024),
        ("/v1/control/start-run", lambda: WITH_TOKEN, 16 * 2**20),
        ("/v1/runtime/push-object", lambda: TASK, 16 * 2**20),
    ],
)
def test_30_a_body_above_the_bound_is_refused_once(path: str, headers: Any, most: int) -> None:
    """By its length, before anything is read; and while it arrives, before Flower is asked."""
    door = Door()
    full = b"x" * most
    assert door.ask(path, [*headers(), (LENGTH, str(most + 1).encode())])[0] == 413
    assert door.ask(path, [*headers(), (b"transfer-encoding", b"chunked")], full, b"x")[0] == 413
    assert door.flower.got == []
    assert door.ask(path, [*headers(), (LENGTH, str(most).encode())], full[:1000], full[1000:])[0] == 200
    assert door.flower.got == [(path, full)]


def test_18_a_slow_body_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.05)
    door = Door()

    async def receive() -> Any:
        await asyncio.sleep(10)

    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    scope = {
        "type": "http", "method": "POST", "path": "/v1/fleet/get-run", "raw_path": b"/v1/fleet/get-run",
        "headers": known(), "client": ("192.0.2.9", 1),
    }  # fmt: skip
    asyncio.run(door.guard(scope, receive, send))
    assert sent[0]["status"] == 408 and door.flower.got == []


def test_18_large_bodies_wait_for_their_turn_and_small_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty pieces of 5 MiB at once, and a heartbeat, which does not wait: no 503, never more than 64 MiB."""
    door = Door()
    door.flower.holds = True
    piece, held, most = b"x" * (5 * 2**20), 0, 0
    inner = door.flower.app

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        nonlocal held, most
        size = 5 * 2**20 if scope["path"].endswith("push-object") else 0
        held += size
        most = max(most, held)
        await inner(scope, receive, send)
        held -= size

    monkeypatch.setattr(door.flower, "app", counting)
    nodes = [request_keys.Keys() for _ in range(10)]
    monkeypatch.setattr(door.flower, "node_of", lambda key: NODE)

    async def all_at_once() -> list[tuple[int, bytes]]:
        length = [(LENGTH, str(len(piece)).encode())]
        asked = [
            asyncio.create_task(door.asked("/v1/fleet/push-object", [*of_node(node.signed()), *length], piece))
            for node in nodes
            for _ in range(2)
        ]
        while not most:  # until Flower has the first piece
            await asyncio.sleep(0)
        beat = asyncio.create_task(door.asked("/v1/fleet/send-node-heartbeat", [*known(), (LENGTH, b"1")], b"x"))
        while all(path.endswith("push-object") for path, _ in door.flower.got):  # until the heartbeat is there
            await asyncio.sleep(0)
        assert not any(push.done() for push in asked)
        door.flower.holds = False
        assert (await beat)[0] == 200
        return await asyncio.gather(*asked)

    assert {status for status, _ in asyncio.run(all_at_once())} == {200}
    assert 5 * 2**20 <= most <= 64 * 2**20


@pytest.mark.slow
def test_18_only_a_full_queue_is_answered_503(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door()
    door.flower.holds = True
    length = [(LENGTH, str(CHUNK).encode())]

    async def flood() -> list[int]:
        asked = [
            asyncio.create_task(door.asked("/v1/fleet/push-object", [*known(), *length], b"x" * CHUNK))
            for _ in range(80)
        ]
        while sum(push.done() for push in asked) < 80 - 64 - 3:  # one node: 18 MiB at once, 64 that wait
            await asyncio.sleep(0)
        door.flower.holds = False
        return [status for status, _ in await asyncio.gather(*asked)]

    found = asyncio.run(flood())
    assert found.count(503) == 80 - 64 - 3  # one node: 18 MiB at once, 64 that wait
    assert found.count(200) == 64 + 3


def test_20_the_token_is_in_no_refusal() -> None:
    door = Door()
    for path in ("/v1/control/list-runs", "/health", "/x"):
        assert TOKEN.encode() not in door.ask(path)[1]
