"""A node's connection to SuperLinks that answer well, badly, not at all, or with malice; on both transports."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import superlinks as links
from flwr.proto import fleet_pb2, message_pb2
from superlinks import NODE, RUN, Refusal, Relay, SuperLink, object_id

from fedstride.flower.for_nodes import connecting, fleet, message_forms, over_grpc, over_http
from fedstride.flower.for_nodes.connection import (
    AnswerError,
    FailingError,
    KeyRefusedError,
    LinkError,
    MessageHead,
    NotThereYetError,
    RunGoneError,
    SuperLinkAddress,
    TooLargeError,
    UnreachableError,
)
from fedstride.flower.for_nodes.fleet import FleetLink, Transport
from fedstride.flower.for_nodes.request_keys import Keys

MOST = 2**20
LARGE = b"x" * (2 * MOST)


def connect(address: str, transport: str, most: int = MOST) -> FleetLink:
    place = SuperLinkAddress(address, insecure=True, most_bytes=most)
    made: Transport = (over_grpc.GrpcTransport if transport == "grpc" else over_http.HttpTransport)(place)
    return FleetLink(made, Keys(), most)


@pytest.fixture(params=["grpc", "http"])
def superlink(request: pytest.FixtureRequest) -> Iterator[SuperLink]:
    with SuperLink(request.param).serving() as found:
        yield found


@pytest.fixture
def link(superlink: SuperLink) -> Iterator[FleetLink]:
    made = connect(superlink.address, superlink.transport)
    yield made
    made.close()


@pytest.mark.slow
def test_a_node_registers_itself_and_says_goodbye(superlink: SuperLink) -> None:
    made = connect(superlink.address, superlink.transport)
    assert made.node_id == NODE
    made.close()
    assert superlink.calls == ["RegisterNode", "ActivateNode", "DeactivateNode", "UnregisterNode"]


@pytest.mark.slow
def test_requests_carry_a_signed_time(superlink: SuperLink, link: FleetLink) -> None:
    names = {name.lower().removesuffix("-bin") for name in superlink.headers[-1]}
    assert {"flwr-public-key", "flwr-timestamp", "flwr-signature", "flwr-package-version"} <= names


@pytest.mark.slow
def test_without_a_message_there_is_none(link: FleetLink) -> None:
    assert link.receive() is None


@pytest.mark.slow
def test_a_message_and_its_parts(superlink: SuperLink, link: FleetLink) -> None:
    part, whole = b"part", b"whole"
    superlink["PullMessages"] = links.pulled(
        links.message(object_id(whole)), links.tree(object_id(whole), links.tree(object_id(part)))
    )
    arrived = link.receive()
    assert arrived is not None
    assert arrived.objects == (object_id(whole), object_id(part))
    assert arrived.head[:7] == (object_id(whole), RUN, 1, NODE, "1", "train", arrived.head.created)
    superlink["PullObject"] = links.content(part)
    assert link.content(RUN, object_id(part)) == part
    superlink["PullObject"] = links.content(None)
    with pytest.raises(NotThereYetError):
        link.content(RUN, object_id(part))


@pytest.mark.slow
def test_a_run_and_its_app(superlink: SuperLink, link: FleetLink) -> None:
    superlink["GetRun"] = links.run("ab" * 32, signature="s")
    found = link.run(RUN)
    assert (found.app_hash, found.overrides, found.series) == ("ab" * 32, {"signature": "s"}, 3)
    superlink["GetFab"] = links.bundle(b"app", key="signature")
    app = link.bundle(object_id(b"app"), RUN)
    assert (app.content, app.signatures) == (b"app", {"key": "signature"})


@pytest.mark.slow
def test_a_reply_has_the_metadata_of_the_node(superlink: SuperLink, link: FleetLink) -> None:
    head = MessageHead("m" * 64, RUN, 1, NODE, "3", "train", time.time(), 100.0, 11, 22)
    message = message_forms.reply_object(head, NODE, "c" * 64)
    requests: list[bytes] = []

    def pushed(request: bytes) -> bytes:
        requests.append(request)
        return fleet_pb2.PushMessagesResponse(objects_to_push=["c" * 64], session_id="s").SerializeToString()

    superlink["PushMessages"] = pushed
    announced = link.send(message, {object_id(message): ("c" * 64,)}, 0.5)
    assert announced == (frozenset({"c" * 64}), "s")
    sent = fleet_pb2.PushMessagesRequest.FromString(requests[0])
    metadata = sent.messages_list[0].metadata
    assert (metadata.src_node_id, metadata.dst_node_id, metadata.reply_to_message_id) == (NODE, 1, "m" * 64)
    assert (metadata.message_id, metadata.run_id, metadata.group_id) == (object_id(message), RUN, "3")
    assert (metadata.src_task_id, metadata.dst_task_id) == (22, 11) and 0 < metadata.ttl <= 100.0
    assert sent.message_object_trees[0].children[0].object_id == "c" * 64


# ---------------------------------------------------------------- errors that a SuperLink gives


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (links.INTERNAL, FailingError),
        (links.UNAVAILABLE, UnreachableError),
        (links.UNAUTHENTICATED, KeyRefusedError),
        (links.DENIED, RunGoneError),
        (links.OF_A_PROXY, AnswerError),
        (links.OTHER_CLOCK, UnreachableError),
        (links.UNKNOWN_ROUTE, AnswerError),
    ],
    ids=lambda value: getattr(value, "__name__", str(getattr(value, "status", ""))),
)
def test_each_error_has_its_kind(
    superlink: SuperLink, link: FleetLink, refusal: Refusal, kind: type[LinkError]
) -> None:
    superlink["PullMessages"] = refusal
    with pytest.raises(kind) as raised:
        link.receive()
    assert "\n" not in str(raised.value)
    superlink["PullMessages"] = b""
    assert link.receive() is None  # the connection can be used


@pytest.mark.slow
def test_a_reply_that_is_too_large_for_the_superlink() -> None:
    with SuperLink("http").serving() as superlink:
        made = connect(superlink.address, "http")
        superlink["PushObject"] = Refusal(413, links.INTERNAL.code)
        with pytest.raises(TooLargeError):
            made.put(RUN, "s", "a" * 64, b"x")
        made.close()


@pytest.mark.slow
def test_a_part_that_is_gone_or_not_stored(superlink: SuperLink, link: FleetLink) -> None:
    superlink["PullObject"] = message_pb2.PullObjectResponse(object_found=False).SerializeToString()
    with pytest.raises(RunGoneError):
        link.content(RUN, "a" * 64)
    superlink["PushObject"] = message_pb2.PushObjectResponse(stored=False).SerializeToString()
    with pytest.raises(AnswerError, match="did not store"):
        link.put(RUN, "s", "a" * 64, b"x")


# ---------------------------------------------------------------- a hostile SuperLink


ALONE = fleet_pb2.PullMessagesResponse(messages_list=[links.message("a" * 64)]).SerializeToString()
WIDE = links.tree("a" * 64, *[links.tree("")] * 20_000)


def deep(levels: int) -> Any:
    found = links.tree("d" * 64)
    for _ in range(levels - 1):
        found = links.tree("d" * 64, found)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "answer", "kind"),
    [
        ("PullMessages", b"\xff\xff no protobuf", AnswerError),
        ("PullMessages", ALONE, AnswerError),
        ("PullMessages", links.pulled(links.message("a" * 64, dst_node_id=6), links.tree("a" * 64)), AnswerError),
        ("PullMessages", links.pulled(links.message("b" * 64), links.tree("a" * 64)), AnswerError),
        ("PullMessages", links.pulled(links.message("short"), links.tree("short")), AnswerError),
        ("PullMessages", links.pulled(links.message("d" * 64), deep(9)), TooLargeError),
        ("PullMessages", links.pulled(links.message("d" * 64), deep(90)), (AnswerError, TooLargeError)),
        ("PullMessages", links.pulled(links.message("a" * 64), WIDE), TooLargeError),
        ("PullMessages", LARGE, TooLargeError),
        ("GetRun", links.run("ab" * 32, run_id=8), AnswerError),
        ("GetRun", LARGE, TooLargeError),
        ("GetFab", links.bundle(b"another app"), AnswerError),
        ("GetFab", links.bundle(LARGE), TooLargeError),
        ("PullObject", links.content(b"another part"), AnswerError),
        ("PullObject", links.content(LARGE), TooLargeError),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_an_answer_of_another_form_or_size(
    superlink: SuperLink, link: FleetLink, method: str, answer: bytes, kind: Any
) -> None:
    superlink[method] = answer
    asked = {
        "PullMessages": link.receive,
        "GetRun": lambda: link.run(RUN),
        "GetFab": lambda: link.bundle("a" * 64, RUN),
        "PullObject": lambda: link.content(RUN, "a" * 64),
    }
    with pytest.raises(kind):
        asked[method]()


@pytest.mark.slow
def test_a_redirect_is_not_followed() -> None:
    with SuperLink("http").serving() as elsewhere, SuperLink("http").serving() as superlink:
        made = connect(superlink.address, "http")
        superlink["PullMessages"] = Refusal(307, links.INTERNAL.code, location=f"http://{elsewhere.address}/x")
        with pytest.raises(AnswerError, match=r"another address answers .* it is not followed"):
            made.receive()
        assert elsewhere.calls == []
        made.close()


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_the_environments_proxies_are_not_used(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with SuperLink(transport).serving() as superlink:
        made = connect(superlink.address, transport)
        assert made.receive() is None
        made.close()


@pytest.mark.slow
def test_a_body_without_an_end() -> None:
    def endless(_: bytes) -> Iterator[bytes]:
        while True:
            yield b"x" * 65536

    with SuperLink("http").serving() as superlink:
        made = connect(superlink.address, "http")
        superlink["PullMessages"] = endless
        with pytest.raises(TooLargeError):
            made.receive()
        superlink["PullMessages"] = b""
        assert made.receive() is None
        made.close()


@pytest.mark.slow
def test_no_cookie_is_kept() -> None:
    """Those of a hostile server would be kept for ever."""
    with SuperLink("http").serving() as superlink:
        superlink.cookie = "a=b; Path=/"
        made = connect(superlink.address, "http")
        assert made.receive() is None and made.receive() is None
        assert "cookie" not in {name.lower() for name in superlink.headers[-1]}
        made.close()


@pytest.mark.slow
def test_a_value_of_another_type_in_a_runs_configuration(superlink: SuperLink, link: FleetLink) -> None:
    described = links.run_pb2.Run(run_id=RUN, fab_hash="ab" * 32)
    described.override_config["lr"].bytes = b"x"
    superlink["GetRun"] = links.run_pb2.GetRunResponse(run=described).SerializeToString()
    with pytest.raises(AnswerError, match="a value of another type"):
        link.run(RUN)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"ttl": float("nan")}, {"created_at": float("inf")}, {"message_type": "\x1b[2J"}]
)
def test_a_message_with_values_that_none_has(superlink: SuperLink, link: FleetLink, changes: Any) -> None:
    superlink["PullMessages"] = links.pulled(links.message("a" * 64, **changes), links.tree("a" * 64))
    with pytest.raises(AnswerError, match="whose type or time has another form"):
        link.receive()


@pytest.mark.slow
def test_the_last_answers_have_short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    def drips(_: bytes) -> Iterator[bytes]:
        for _ in range(100):
            yield b"x"
            time.sleep(0.1)

    monkeypatch.setattr(fleet, "GOODBYE_SECONDS", 0.3)
    with SuperLink("http").serving() as superlink:
        made = connect(superlink.address, "http")
        superlink["DeactivateNode"] = drips
        since = time.monotonic()
        made.close()
        assert time.monotonic() - since < 3.0


@pytest.mark.slow
def test_a_body_that_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    def drips(_: bytes) -> Iterator[bytes]:
        for _ in range(100):
            yield b"x"
            time.sleep(0.05)

    monkeypatch.setattr(over_http, "ANSWER_SECONDS", 0.3)
    with SuperLink("http").serving() as superlink:
        made = connect(superlink.address, "http")
        superlink["PullMessages"] = drips
        with pytest.raises(UnreachableError, match="takes more than"):
            made.receive()
        made.close()


# ---------------------------------------------------------------- lines that break


@pytest.fixture
def relayed(superlink: SuperLink) -> Iterator[tuple[SuperLink, Relay, FleetLink]]:
    relay = Relay(superlink.address)
    made = connect(relay.address, superlink.transport, 8 * MOST)
    yield superlink, relay, made
    relay.muted = False
    made.close()
    relay.close()


@pytest.mark.slow
def test_a_line_that_is_cut_in_a_download(relayed: tuple[SuperLink, Relay, FleetLink]) -> None:
    superlink, relay, made = relayed
    superlink["PullObject"] = links.content(LARGE)
    relay.left = MOST
    with pytest.raises(UnreachableError):
        made.content(RUN, object_id(LARGE))
    assert again(lambda: made.content(RUN, object_id(LARGE))) == LARGE


@pytest.mark.slow
def test_a_line_that_is_cut_in_an_upload(relayed: tuple[SuperLink, Relay, FleetLink]) -> None:
    superlink, relay, made = relayed
    relay.left = MOST
    with pytest.raises(UnreachableError):
        made.put(RUN, "s", object_id(LARGE), LARGE)
    again(lambda: made.put(RUN, "s", object_id(LARGE), LARGE))
    assert superlink.calls[-1] == "PushObject"


@pytest.mark.slow
def test_an_idle_line_that_is_dropped_without_a_word(
    relayed: tuple[SuperLink, Relay, FleetLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relay that forwards nothing any more: the request is given up, and a new line is made."""
    superlink, relay, made = relayed
    assert made.receive() is None
    monkeypatch.setattr(over_grpc, "SILENCE_SECONDS", 0.5)
    if superlink.transport == "http":
        made._transport._client.timeout = 0.5  # type: ignore[attr-defined]
    relay.muted = True
    with pytest.raises(UnreachableError):
        made.receive()
    relay.muted = False
    monkeypatch.setattr(over_grpc, "SILENCE_SECONDS", 30.0)
    assert again(made.receive) is None


def again(call: Any) -> Any:
    """The result of a call that may fail while a new line is made."""
    until = time.monotonic() + 20.0
    while True:
        try:
            return call()
        except UnreachableError:
            assert time.monotonic() < until
            time.sleep(0.2)


# ---------------------------------------------------------------- heartbeats


@pytest.mark.slow
def test_heartbeats_go_on_after_an_error_and_a_forgotten_node_is_activated_again(
    superlink: SuperLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "HEARTBEAT_EVERY", 0.05)
    monkeypatch.setattr(fleet, "HEARTBEAT_AGAIN", 0.05)
    superlink["SendNodeHeartbeat"] = links.UNKNOWN_ROUTE
    made = connect(superlink.address, superlink.transport)
    wait_for(lambda: superlink.calls.count("SendNodeHeartbeat") >= 3)
    superlink["SendNodeHeartbeat"] = b""  # success is false
    wait_for(lambda: superlink.calls.count("ActivateNode") >= 2)
    superlink["SendNodeHeartbeat"] = links.UNAUTHENTICATED
    wait_for(lambda: made._refused is not None)
    with pytest.raises(KeyRefusedError):
        made.receive()
    made.close()


def wait_for(true: Any) -> None:
    until = time.monotonic() + 20.0
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


# ---------------------------------------------------------------- the first connection


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_another_transport_is_named_within_seconds(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "uses_http", lambda: transport == "grpc")
    with SuperLink(transport).serving() as superlink:
        superlink["PullMessages"] = links.UNAUTHENTICATED
        since = time.monotonic()
        with pytest.raises(AnswerError, match=r"speaks .* pip install 'fedstride\[node"):
            connecting.connected(SuperLinkAddress(superlink.address, insecure=True), None, wait=False, say=print)
        assert time.monotonic() - since < 15.0


@pytest.mark.slow
def test_the_port_for_submitting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for http in (True, False):
        monkeypatch.setattr(connecting, "uses_http", lambda http=http: http)
        with SuperLink("http").serving() as superlink:
            superlink.handlers.clear()
            with pytest.raises(
                AnswerError, match=r"is the port for submitting runs of a SuperLink of Flower 1\.39"
            ):
                connecting.connected(
                    SuperLinkAddress(superlink.address, insecure=True), None, wait=False, say=print
                )


@pytest.mark.slow
@pytest.mark.parametrize("http", [False, True])
def test_no_answer_ends_unless_the_node_waits(http: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "uses_http", lambda: http)
    monkeypatch.setattr(connecting, "FIRST_SECONDS", 1.0)
    with pytest.raises(UnreachableError, match=r"[Cc]onnection refused"):
        connecting.connected(SuperLinkAddress("127.0.0.1:1", insecure=True), None, wait=False, say=print)
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        connecting.connected(SuperLinkAddress("127.0.0.1:1", insecure=True), None, wait=True, say=say)
    assert said[0].endswith("; waiting for it")
