"""The loop of a node, with a SuperLink in memory: what is fetched, logged, computed and sent, in which order."""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from acting import PROJECT
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from memory import BUNDLE, NODE, RUN, SERIES, MemoryLink, Site, answered, bundled, sha
from numpy import zeros

from fedstride.error_kinds import ErrorKind, Fault
from fedstride.errors import RunError
from fedstride.flower.for_nodes import client_apps as flower_apps
from fedstride.flower.for_nodes import message_forms
from fedstride.flower.for_nodes.connection import (
    AnnouncedRun,
    AnswerError,
    Bundle,
    FailingError,
    KeyRefusedError,
    NotThereYetError,
    RunGoneError,
    TooLargeError,
    UnreachableError,
)
from fedstride.messages import wire
from node import loop
from node.log.log_lines import RefusedError
from node.log.verification import read
from node.messages import message_parts, replies
from node.processes.frames import Answer, Request
from node.processes.message_processes import DiedError

CONTENT = RecordDict({"metrics": MetricRecord({wire.NUM_EXAMPLES: 77}), "arrays": ArrayRecord([zeros(3)])})
DOWN = UnreachableError("no answer")


def answer(request: Request) -> Answer:
    return answered(CONTENT, b"state")


@pytest.fixture
def link() -> MemoryLink:
    return MemoryLink()


@pytest.fixture
def site(tmp_path: Path, link: MemoryLink) -> Site:
    return Site(tmp_path, link, answer)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_parts.Until, "wait", lambda self, seconds: None)


def events(site: Site) -> list[str]:
    return [row["event"] for row in read(site.log).rows]


def test_a_message_is_answered_and_logged(site: Site, link: MemoryLink) -> None:
    head = link.deliver()
    site.step()
    (reply,) = link.replies()
    assert dict(reply.content.metric_records["metrics"]) == {wire.NUM_EXAMPLES: 77}
    metadata = reply.metadata
    assert (metadata.reply_to_message_id, metadata.src_node_id, metadata.dst_node_id) == (head.id, NODE, 1)
    assert (metadata.run_id, metadata.group_id, metadata.message_type) == (RUN, "1", "train")
    received, answered_ = read(site.log).rows
    assert received | {"event": "received", "app": "test/acts 1.0.0", "app_hash": sha(BUNDLE)} == received
    assert answered_ | {"event": "answered", "examples": 77, "message": head.id} == answered_


def test_the_process_gets_what_belongs_to_the_message(site: Site, link: MemoryLink) -> None:
    head = link.deliver()
    site.step()
    (request,) = site.processes.requests
    folder = Path(request.settings["folder"])
    assert request.settings == {
        "message": head.id, "folder": str(folder), "run": RUN, "node": NODE, "series": SERIES,
        "node_config": {"partition-id": 0}, "overrides": {},
    }  # fmt: skip
    assert {sha(each) for each in request.objects.values()} == set(request.objects)
    assert (folder / "acts.py").is_file() and not (folder / ".info").exists()


def test_a_run_and_its_app_are_asked_for_once(site: Site, link: MemoryLink) -> None:
    for _ in range(3):
        link.deliver()
        site.step()
    assert link.calls.count("run") == link.calls.count("bundle") == 1
    assert len(link.replies()) == 3


def test_the_log_comes_before_the_work_and_before_the_reply(tmp_path: Path, link: MemoryLink) -> None:
    seen: list[tuple[str, list[str]]] = []

    def computes(request: Request) -> Answer:
        seen.append(("computes", events(site)))
        return answer(request)

    site = Site(tmp_path, link, computes)
    send = link.send
    link.send = lambda *given: (seen.append(("sends", events(site))), send(*given))[1]  # type: ignore[method-assign]
    link.deliver()
    site.step()
    assert seen == [("computes", ["received"]), ("sends", ["received", "answered"])]


def test_the_state_of_a_client_is_that_of_its_run_series(site: Site, link: MemoryLink) -> None:
    link.runs[8] = AnnouncedRun(8, 4, sha(BUNDLE), {})
    for run in (RUN, RUN, 8):
        link.deliver(run=run)
        site.step()
    assert [request.state for request in site.processes.requests] == [b"", b"state", b""]


def test_states_that_are_too_large_are_forgotten_the_oldest_first(
    site: Site, link: MemoryLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "STATES", 8)
    link.runs[8] = AnnouncedRun(8, 4, sha(BUNDLE), {})
    for run in (RUN, 8, RUN):
        link.deliver(run=run)
        site.step()
    assert [request.state for request in site.processes.requests] == [b"", b"", b""]


def test_messages_of_several_runs_take_turns(site: Site, link: MemoryLink) -> None:
    link.runs |= {run: AnnouncedRun(run, run, sha(BUNDLE), {}) for run in range(8, 20)}
    for run in (RUN, 8, RUN, 8, *range(9, 20), RUN):
        link.deliver(run=run)
    site.step(16)
    assert [reply.metadata.run_id for reply in link.replies()] == [RUN, 8, RUN, 8, *range(9, 20), RUN]
    assert link.calls.count("bundle") == 14  # the first one was forgotten meanwhile


# ---------------------------------------------------------------- errors of the process


def test_an_error_of_the_app_is_sent(tmp_path: Path, link: MemoryLink) -> None:
    """As its kind; what the app said is in the log of the node."""
    site = Site(tmp_path, link, lambda request: Answer("", {}, (77, "boom: Jane Doe"), b"after"))
    link.deliver()
    site.step()
    (reply,) = link.replies()
    assert (reply.error.code, reply.error.reason) == (wire.FAILED, str(Fault(ErrorKind.APP)))
    row = read(site.log).rows[-1]
    assert row["event"] == "failed" and "boom: Jane Doe" in row["reason"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (Fault(ErrorKind.DATA), Fault(ErrorKind.DATA)),
        (Fault(ErrorKind.SETTING, "client.lr"), Fault(ErrorKind.SETTING, "client.lr")),
        (Fault(ErrorKind.SETTING, "Jane Doe"), Fault(ErrorKind.APP)),  # no key of this message
        (f"{Fault(ErrorKind.DATA)} Jane Doe", Fault(ErrorKind.APP)),
    ],
)
def test_an_app_can_say_the_kind_of_its_error(said: object, told: Fault, tmp_path: Path, link: MemoryLink) -> None:
    site = Site(tmp_path, link, lambda request: Answer("", {}, (2, str(said)), b""))
    link.deliver(config=ConfigRecord({"client.lr": 0.1}))
    site.step()
    assert link.replies()[0].error.reason == str(told)


def test_an_app_cannot_write_a_refusal_into_the_log(tmp_path: Path, link: MemoryLink) -> None:
    site = Site(tmp_path, link, lambda request: Answer("", {}, (wire.REFUSED, "forged"), b""))
    link.deliver()
    site.step()
    assert events(site) == ["received", "failed"]


def test_a_process_that_dies_costs_its_own_message(tmp_path: Path, link: MemoryLink) -> None:
    dies = [True, False]

    def computes(request: Request) -> Answer:
        if dies.pop(0):
            raise DiedError("signal 6 (SIGABRT)")
        return answer(request)

    site = Site(tmp_path, link, computes)
    for _ in range(2):
        link.deliver()
        site.step()
    first, second = link.replies()
    assert (first.error.code, first.error.reason) == (replies.CRASHED, str(Fault(ErrorKind.ENDED)))
    assert second.has_content()


def forged(kind: str) -> Answer:
    """An answer as an app could write it."""
    good = answered(CONTENT)
    objects = dict(good.objects)
    if kind == "a part is missing":
        objects.pop(next(each for each in objects if each != good.root))
    if kind == "a part too many":
        objects[sha(b"Array  0\0")] = b"Array  0\0"
    root = good.root
    if kind == "another kind":
        root = next(each for each in objects if objects[each].startswith(b"MetricRecord"))
        objects = {root: objects[root]}
    if kind == "a chain of shared parts":  # each names the two before it: the tree doubles with each
        previous = [sha(b"Array  0\0")] * 2
        objects = {previous[0]: b"Array  0\0"}
        for _ in range(message_forms.MOST_DEPTH - 1):
            body = b"RecordDict " + ",".join(previous * 8).encode() + b" 0\0"
            objects[sha(body)] = body
            previous = [sha(body)] * 2
        root = previous[0]
    if kind == "many times the same part":
        child = b"Array  0\0"
        body = b"RecordDict " + ",".join([sha(child)] * 10_000).encode() + b" 0\0"
        outer = b"RecordDict " + ",".join([sha(body)] * 10_000).encode() + b" 0\0"
        objects = {sha(each): each for each in (child, body, outer)}
        root = sha(outer)
    if kind == "no head":
        objects = {sha(b"x"): b"x"}
        root = sha(b"x")
    if kind == "too deep":
        child = b""
        for _ in range(message_forms.MOST_DEPTH + 1):
            child = b"RecordDict " + sha(child).encode() * bool(child) + b" 0\0"
            objects[sha(child)] = child
        root = sha(child)
    return Answer(root, objects, None, b"forged")


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "a part is missing",
        "a part too many",
        "another kind",
        "no head",
        "too deep",
        "a chain of shared parts",
        "many times the same part",
    ],
)
def test_a_reply_of_another_form_is_not_sent(kind: str, tmp_path: Path, link: MemoryLink) -> None:
    site = Site(tmp_path, link, lambda request: forged(kind))
    for _ in range(2):
        link.deliver()
        site.step()
    assert [reply.error.code for reply in link.replies()] == [8, 8]
    assert site.processes.requests[1].state == b""  # nothing of it is kept


def test_no_error_of_a_message_ends_the_node(tmp_path: Path, link: MemoryLink) -> None:
    def fails(request: Request) -> Answer:
        raise ZeroDivisionError("a fault of the node")

    site = Site(tmp_path, link, fails)
    for _ in range(2):
        link.deliver()
        site.step()
    assert [reply.error.code for reply in link.replies()] == [wire.REFUSED] * 2
    assert link.replies()[0].error.reason == str(Fault(ErrorKind.NODE))  # the error itself may name data


def test_an_error_of_the_node_itself_ends_it(tmp_path: Path, link: MemoryLink) -> None:
    def fails(request: Request) -> Answer:
        raise RunError("no process can be started")

    site = Site(tmp_path, link, fails)
    link.deliver()
    with pytest.raises(RunError):
        site.step()


# ---------------------------------------------------------------- errors of the SuperLink


@pytest.mark.parametrize("method", ["run", "bundle", "content", "confirm", "send", "put"])
def test_a_request_without_an_answer_is_repeated(method: str, site: Site, link: MemoryLink) -> None:
    link.faults[method] = [DOWN, DOWN, None, DOWN]
    link.deliver()
    site.step()
    assert len(link.replies()) == 1 and link.replies()[0].has_content()


def test_without_an_answer_the_node_asks_on_and_says_so_once(
    site: Site, link: MemoryLink, caplog: pytest.LogCaptureFixture
) -> None:
    link.faults["receive"] = [DOWN, AnswerError("a message for another node"), TooLargeError("too large")]
    caplog.set_level(logging.INFO, logger="flwr")
    site.step(5)
    said = [record.getMessage() for record in caplog.records if record.name == "flwr"]
    assert [text for text in said if "SuperLink" in text] == [
        "the SuperLink does not answer as it should (no answer); it is asked again until it does",
        "the SuperLink answers again",
    ]
    assert len(site.pauses) == 5


def test_a_part_that_is_not_there_is_awaited(site: Site, link: MemoryLink) -> None:
    link.faults["content"] = [None, NotThereYetError("later"), NotThereYetError("later")]
    link.deliver()
    site.step()
    assert link.replies()[0].has_content()


@pytest.mark.parametrize("method", ["run", "bundle", "content", "confirm"])
def test_a_run_that_has_ended_is_not_answered(method: str, site: Site, link: MemoryLink) -> None:
    link.faults[method] = [RunGoneError("it ended")]
    link.deliver()
    link.deliver()
    site.step(2)
    assert len(link.replies()) == 1
    refused = [row for row in read(site.log).rows if row["event"] == "refused"]
    assert "did not arrive whole, or its run ended (it ended)" in refused[0]["reason"]


@pytest.mark.parametrize("error", [AnswerError("another app"), TooLargeError("too large")])
@pytest.mark.parametrize("method", ["bundle", "content"])
def test_a_message_that_cannot_be_fetched_is_refused(
    method: str, error: Exception, site: Site, link: MemoryLink
) -> None:
    link.faults[method] = [error]  # type: ignore[list-item]
    link.deliver()
    site.step()
    (reply,) = link.replies()
    assert (reply.error.code, reply.error.reason) == (wire.REFUSED, str(Fault(ErrorKind.MESSAGE)))
    assert events(site) == ["received", "refused"]
    assert site.processes.requests == []


def test_a_message_of_too_many_bytes_is_refused_before_it_is_joined(
    site: Site, link: MemoryLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_parts.fetched, "__defaults__", (10,))
    link.deliver()
    site.step()
    assert link.replies()[0].error.reason == str(Fault(ErrorKind.MESSAGE))
    assert "a message of more than 10 bytes" in read(site.log).rows[-1]["reason"]


def test_an_error_of_the_superlink_itself_is_given_up_after_a_time(
    site: Site, link: MemoryLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may never accept this reply, and other runs wait."""
    monkeypatch.setattr(message_parts, "FAILING_SECONDS", -1.0)
    link.faults["send"] = [FailingError("INTERNAL")]
    for _ in range(2):
        link.deliver()
        site.step()
    assert len(link.replies()) == 1


def test_after_an_error_nothing_is_asked_for_any_more(site: Site, link: MemoryLink) -> None:
    """The part that is asked for beside the one that failed would be asked for until the message expires."""
    before = threading.active_count()
    for _ in range(5):
        link.deliver()
        arrived = link._queue.pop()
        link._queue.append(arrived._replace(objects=(*arrived.objects, *["0" * 64] * 3)))
        link.faults["content"] = [AnswerError("wrong")]
        site.step()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_a_message_whose_time_is_over_is_refused(site: Site, link: MemoryLink) -> None:
    link.deliver(ttl=-5.0)
    site.step()
    assert site.processes.requests == [] and "bundle" not in link.calls
    assert read(site.log).rows[-1]["reason"].endswith("was over when it arrived; check the clocks")


def test_the_state_of_an_app_is_not_given_to_another_one(site: Site, link: MemoryLink) -> None:
    """Whatever run series the SuperLink names."""
    other = bundled({"pyproject.toml": PROJECT.replace("acts", "other").encode()})
    link.runs[8] = AnnouncedRun(8, SERIES, sha(other), {})
    link.bundles[sha(other)] = Bundle(other, {})
    for run in (RUN, 8):
        link.deliver(run=run)
        site.step()
    assert [request.state for request in site.processes.requests] == [b"", b""]


def test_a_reply_that_is_not_taken_is_given_up(site: Site, link: MemoryLink) -> None:
    link.faults["put"] = [RunGoneError("stopped")]
    link.deliver()
    link.deliver()
    site.step(2)
    assert len(site.processes.requests) == 2


@pytest.mark.parametrize("method", ["receive", "run", "send"])
def test_a_node_whose_key_is_refused_ends(method: str, site: Site, link: MemoryLink) -> None:
    link.faults[method] = [KeyRefusedError("unknown key")]
    link.deliver()
    with pytest.raises(KeyRefusedError):
        site.step()


def test_what_the_superlink_says_of_a_run_does_not_decide_the_folder(site: Site, link: MemoryLink) -> None:
    """The name, the version and the folder are those of the bundle."""
    evil = bundled(
        {"pyproject.toml": b'[project]\nname = "../../x"\nversion = "1"\n[tool.flwr.app]\npublisher = "p"'}
    )
    link.runs[RUN] = AnnouncedRun(RUN, SERIES, sha(evil), {})
    link.bundles[sha(evil)] = Bundle(evil, {})
    link.deliver()
    site.step()
    assert Path(site.processes.requests[0].settings["folder"]).name == sha(evil)


# ---------------------------------------------------------------- the log


def test_without_its_log_a_node_refuses(site: Site, link: MemoryLink, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(event: str, **values: Any) -> None:
        raise OSError(28, "No space left on device")

    link.deliver()
    with monkeypatch.context() as patch:
        patch.setattr(site.journal, "write", fails)
        site.step()
    (reply,) = link.replies()
    assert (reply.error.code, reply.error.reason) == (wire.REFUSED, str(Fault(ErrorKind.LOG)))
    assert site.processes.requests == []
    link.deliver()
    site.step()
    assert link.replies()[1].has_content()


def test_a_reply_that_cannot_be_logged_is_held_back(tmp_path: Path, link: MemoryLink) -> None:
    site = Site(tmp_path, link, answer)

    def refuses(reply: Any) -> None:
        raise RefusedError("the log is full", ErrorKind.LOG)

    site.node._node_log.leaves = refuses  # type: ignore[method-assign]
    link.deliver()
    site.step()
    (reply,) = link.replies()
    assert (reply.error.code, reply.error.reason) == (wire.REFUSED, str(Fault(ErrorKind.LOG)))


def test_what_a_message_asks_for_is_logged(tmp_path: Path, link: MemoryLink) -> None:
    asked = ConfigRecord({wire.SERVER_ROUND: 3, wire.STRATEGY: "fedlws", "secret": "x"})
    site = Site(tmp_path, link, answer)
    link.deliver(config=asked)
    site.step()
    row = read(site.log).rows[-1]
    assert row | {"round": 3, "strategy": "fedlws"} == row and "secret" not in row


def test_overrides_in_the_log_do_not_look_like_others(site: Site, link: MemoryLink) -> None:
    overrides = {"lr": "0.1 privacy=central", "a": "x" * 5000, "secret": "path"}
    link.runs[RUN] = AnnouncedRun(RUN, SERIES, sha(BUNDLE), overrides)
    link.deliver()
    site.step()
    text = read(site.log).rows[0]["overrides"]
    whole = sha(json.dumps(overrides, sort_keys=True).encode())
    assert '"lr": "0.1 privacy=central", "secret": "path"' in text and text.endswith(f"{whole})")


def test_the_log_has_all_columns_that_a_run_names(site: Site, link: MemoryLink) -> None:
    """The overrides are one text, in which the columns may come last."""
    columns = ",".join(f"laboratory_value_{number}" for number in range(25))
    given = f"task=own_table model=mlp task.columns=[{columns}]"
    link.runs[RUN] = AnnouncedRun(RUN, SERIES, sha(BUNDLE), {"overrides": given, "signature": "x" * 900})
    link.deliver()
    site.step()
    assert given in read(site.log).rows[0]["overrides"]
    link.runs[RUN] = AnnouncedRun(RUN, SERIES, sha(BUNDLE), {"overrides": given * 3})
    link.deliver()
    site.step()
    cut = read(site.log).rows[-2]["overrides"]
    assert len(cut) < 1000 and "SHA-256 of the whole" in cut


def test_of_several_values_the_log_has_all(site: Site, link: MemoryLink) -> None:
    link.deliver(a=ConfigRecord({wire.PRIVACY: "none"}), b=ConfigRecord({wire.PRIVACY: "central"}))
    site.step()
    assert read(site.log).rows[-1]["privacy"] == "['none', 'central']"


def test_of_many_records_the_first_ones_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    monkeypatch.setattr(replies, "plain_record", lambda content, most: seen.append(content))
    root, *objects = flower_apps.objects(
        RecordDict({str(n): ConfigRecord({"n": n}) for n in range(replies.MOST_PLAIN_RECORDS + 50)})
    )
    replies.Contents.of(root.decode(), {sha(each): each for each in objects})
    assert len(seen) == replies.MOST_PLAIN_RECORDS


# ---------------------------------------------------------------- health


def test_the_file_says_what_the_node_does(tmp_path: Path, link: MemoryLink) -> None:
    seen: list[str] = []

    def computes(request: Request) -> Answer:
        seen.append(json.loads((tmp_path / "status.json").read_text())["does"])
        return answer(request)

    site = Site(tmp_path, link, computes)
    link.deliver()
    site.step()
    assert seen == [f"answers a train message of run {RUN}"]
    assert json.loads((tmp_path / "status.json").read_text())["does"] == "waits for messages"
    shutil.rmtree(tmp_path / "apps", ignore_errors=True)
