"""A hostile SuperLink and a signed run: what was not signed is refused, before the app has a process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from memory import RUN, MemoryLink, Site, answered
from signing import (
    APP,
    KEY,
    OTHER,
    OTHER_KEY,
    OWN,
    WORD,
    Checking,
    head_of,
    objects,
    run_of,
    signed_text,
    signer_of,
    terms_of,
)

from fedstride.arrays.named import to_record
from fedstride.error_kinds import ErrorKind, Fault
from fedstride.errors import ConfigError
from fedstride.flower.for_nodes.connection import Arrived
from fedstride.flower.identity import set_identity
from fedstride.messages import wire
from fedstride.messages.packed_arrays import Packer
from fedstride.messages.signed_runs import DAY, MessageForm, form_of_arrays
from fedstride.messages.varying_values import Varies
from node.log.log_lines import RefusedError
from node.log.verification import read
from node.messages import replies
from node.policy.file_access import owner_of
from node.policy.permission import PolicyTerms as TermsOfSite
from node.policy.policy_file import Policy
from node.processes.frames import Request
from node.signed_runs.approvals import GOES_ON, Approvals, Asking, approve, find, in_words, waiting
from node.signed_runs.approvals import ApprovalBasis as SiteOfData
from node.signed_runs.ledger import Ledger
from node.signed_runs.message_checks import SignedRuns

ARRAYS = {"w": np.zeros((2, 3), np.float32), "b": np.zeros(3, np.float32)}
FIXED: dict[str, Any] = {
    "a.bool": True, "a.int": 1, "a.float": 1.0, "a.text": "x", "a.texts": ["x", "y"], "a.numbers": [1, 2],
    "a.floats": [0.5, 1.0], wire.RUN: WORD,
}  # fmt: skip
FACTORS = "two_d_lrd.rate_factors"
VARIES = {
    wire.SERVER_ROUND: Varies("int", 1, 3, rises=True),
    wire.ACCEPTED: Varies("int", 0, 3, rises=True),
    FACTORS: Varies("float", 0.0, 1.0, most_values=3),
    "spec.mean": Varies("float", -1e9, 1e9, most_values=2, once=True),
    "feddisco.known": Varies("int", 0, 9, most_values=4, optional=True),
}
SENT: dict[str, Any] = {wire.SERVER_ROUND: 1, wire.ACCEPTED: 0, FACTORS: [1.0, 0.5], "spec.mean": [0.0, 2.5]}
DIGEST = form_of_arrays((name, str(each.dtype), each.shape) for name, each in ARRAYS.items())
FORMS = (
    MessageForm("roll call", "query", FIXED, {}, {}),
    MessageForm("training", "train", FIXED, VARIES, {"arrays": DIGEST, "frozen": DIGEST}, ("frozen",)),
)


@pytest.fixture(autouse=True)
def _identity() -> None:
    set_identity()


@pytest.fixture
def node(tmp_path: Path) -> Checking:
    return Checking(tmp_path)


def message(kind: str = "train", arrays: Any = ARRAYS, more: Mapping[str, Any] = {}, **config: Any) -> Message:
    """A message of the signed run. A value None removes a key."""
    values = {**FIXED, **(SENT if kind == "train" else {}), **config}
    records: dict[str, Any] = {} if kind == "query" else {"arrays": to_record(dict(arrays))}
    said = ConfigRecord({key: value for key, value in values.items() if value is not None})
    return Message(RecordDict({**records, wire.CONFIG: said, **more}), dst_node_id=5, message_type=kind)


def with_values(values: Mapping[str, Any], kind: str = "train") -> Message:
    return message(kind, **dict(values))


def in_round(number: int, accepted: int = 0, **more: Any) -> Message:
    return message(**{wire.SERVER_ROUND: number, wire.ACCEPTED: accepted, **more})


def refused(node: Checking, asked: Message, run: Any, told: ErrorKind) -> str:
    """The reason, for the node's log. The server is told one of the fixed sentences and nothing else."""
    with pytest.raises(RefusedError) as raised:
        node.question(asked, run)
    assert raised.value.told == Fault(told) and "\n" not in str(raised.value)
    return str(raised.value)


# ---------------------------------------------------------------- the message


def test_what_was_signed_is_answered_packed_or_not(node: Checking) -> None:
    run = run_of(signed_text(terms_of(FORMS)))
    assert node.question(message("query"), run).form.name == "roll call"
    first = node.question(message(), run)
    assert (first.form.name, first.round, first.kept) == ("training", 1, None)
    packed = in_round(2, 1, **{FACTORS: [1.0], "feddisco.known": [2]})
    packed.content = Packer().packed(packed.content)
    assert node.question(packed, run).round == 2
    frozen = in_round(3, 1)
    frozen.content = RecordDict({**frozen.content, "frozen": to_record(ARRAYS)})
    assert node.question(frozen, run).round == 3


@pytest.mark.parametrize("key", FIXED)
@pytest.mark.parametrize("kind", ["train", "query"])
def test_another_value_of_any_key_is_refused(node: Checking, key: str, kind: str) -> None:
    run = run_of(signed_text(terms_of(FORMS)))
    value = FIXED[key]
    others: list[Any] = [None, "something else", 7]
    if isinstance(value, list):
        others += [value[:-1], [*value, value[0]], list(reversed(value))]
    if type(value) is int:
        others += [float(value), bool(value), value + 1]
    if type(value) is float:
        others += [int(value), value + 2**-52]
    if type(value) is bool:
        others += [not value, int(value)]
    for other in others:
        assert key in refused(node, with_values({key: other}, kind), run, ErrorKind.NOT_SIGNED)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (wire.SERVER_ROUND, 0), (wire.SERVER_ROUND, 4), (wire.SERVER_ROUND, 1.0), (wire.SERVER_ROUND, True),
        (wire.SERVER_ROUND, None), (wire.ACCEPTED, 4), (FACTORS, [1.5]), (FACTORS, [-0.1]), (FACTORS, 1.0),
        (FACTORS, [float("nan")]), (FACTORS, [float("inf")]), (FACTORS, [1]), (FACTORS, [0.5] * 4),
        ("spec.mean", [0.0, 1.0, 2.0]), ("feddisco.known", [10]), ("feddisco.known", [1.0]),
    ],
)  # fmt: skip
def test_what_varies_stays_in_its_range(node: Checking, key: str, value: Any) -> None:
    assert key in refused(
        node, with_values({key: value}), run_of(signed_text(terms_of(FORMS))), ErrorKind.NOT_SIGNED
    )


def other_kind(found: Message) -> Message:
    found.metadata.__dict__["_message_type"] = "evaluate"
    return found


def other_name(found: Message) -> Message:
    content = dict(found.content)
    return Message(
        RecordDict({"model": content["arrays"], wire.CONFIG: content[wire.CONFIG]}),
        dst_node_id=5,
        message_type="train",
    )


def of(kind: str, **records: Any) -> Message:
    return Message(RecordDict(records), dst_node_id=5, message_type=kind)


def without_config(found: Message) -> Message:
    return Message(RecordDict({"arrays": found.content["arrays"]}), dst_node_id=5, message_type="train")


OTHERS: dict[str, Callable[[], Message]] = {
    "a key more": lambda: with_values({"class-moments": True}),
    "a key of another form": lambda: with_values({wire.SERVER_ROUND: 1}, "query"),
    "a record of arrays more": lambda: message(more={"scaffold.control": to_record(ARRAYS)}),
    "a record of metrics more": lambda: message(more={"metrics": MetricRecord({"n": 1})}),
    "a second config": lambda: message(more={"more": ConfigRecord({"n": 1})}),
    "a config under another name": lambda: without_config(message(more={"conf": ConfigRecord(FIXED)})),
    "no config": lambda: without_config(message()),
    "no model": lambda: of("train", config=message().content["config"]),
    "the model under another name": lambda: other_name(message()),
    "another kind": lambda: other_kind(message()),
    "a model in a roll call": lambda: of("query", arrays=to_record(ARRAYS), **message("query").content),
    "an array more": lambda: message(arrays={**ARRAYS, "more": np.zeros(1, np.float32)}),
    "an array less": lambda: message(arrays={"w": ARRAYS["w"]}),
    "another shape": lambda: message(arrays={**ARRAYS, "w": np.zeros((3, 2), np.float32)}),
    "another dtype": lambda: message(arrays={**ARRAYS, "w": np.zeros((2, 3), np.float64)}),
    "a config of 64 KiB": lambda: with_values({"a.text": "x" * 70_000}),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_another_message_is_refused(node: Checking, kind: str) -> None:
    assert refused(node, OTHERS[kind](), run_of(signed_text(terms_of(FORMS))), ErrorKind.NOT_SIGNED)


def test_an_object_that_does_not_belong_to_the_message_is_refused(node: Checking) -> None:
    """A node looks through all objects for the form of the examples, so a stray one could name other columns."""
    from node.signed_runs.message_content import asked

    found, stray = message(), ConfigRecord({"reading.columns": ["name", "born"]})
    contents = objects(found) | {stray.object_id: stray.deflate()}
    with pytest.raises(ValueError, match="parts that do not belong to it"):
        asked(found.object_id, contents)
    for each in objects(found):
        with pytest.raises(ValueError):
            asked(found.object_id, {key: value for key, value in objects(found).items() if key != each})


def test_a_message_is_compared_as_it_is_executed_and_not_as_it_is_announced(node: Checking) -> None:

    from node.signed_runs.message_content import asked

    run, found = run_of(signed_text(terms_of(FORMS))), message()
    head = head_of(found)._replace(kind="query")
    with pytest.raises(RefusedError, match="announced as 'query', and is 'train'"):
        node.runs.question(head, run, APP, objects(found), lambda: None)
    assert asked(found.object_id, objects(found)).kind == "train"


def test_any_bytes_in_place_of_a_part_are_refused_with_one_line(node: Checking) -> None:
    from node.signed_runs.message_content import asked

    found = message()
    for each, content in objects(found).items():
        if content.startswith(b"ArrayChunk"):
            continue  # the bytes of an array are not read
        for other in (
            b"",
            b"\0",
            content[:-1],
            content[: len(content) // 2],
            b"RecordDict  2\0{}",
            b"Array  4\0null",
            b"ConfigRecord  1\0\xff",
            b"Message  0\0",
            b"ArrayRecord  9\0" + b"[" * 9,
        ):
            with pytest.raises(ValueError) as raised:
                asked(found.object_id, objects(found) | {each: other})
            assert "\n" not in str(raised.value)


# ---------------------------------------------------------------- the run


def test_a_run_without_a_signature_of_the_policy_is_refused(node: Checking) -> None:
    terms = terms_of(FORMS)
    assert refused(node, message(), run_of(""), ErrorKind.UNSIGNED)
    assert "does not name" in refused(node, message(), run_of(signed_text(terms, OTHER_KEY)), ErrorKind.SIGNATURE)
    text = signed_text(terms)
    forged = text.replace(signer_of(KEY).id, signer_of(OTHER_KEY).id)
    assert "does not name" in refused(node, message(), run_of(forged), ErrorKind.SIGNATURE)
    mine = signed_text(terms, OTHER_KEY).replace(signer_of(OTHER_KEY).id, signer_of(KEY).id)
    assert "altered" in refused(node, message(), run_of(mine), ErrorKind.SIGNATURE)


@pytest.mark.slow
def test_a_text_that_is_altered_anywhere_is_refused(node: Checking) -> None:
    text = signed_text(terms_of(FORMS))
    for place in range(0, len(text), 7):
        other = text[:place] + ("0" if text[place] != "0" else "1") + text[place + 1 :]
        refused(node, message(), run_of(other), ErrorKind.SIGNATURE)
    for other in (
        "x",
        text + " ",
        text[:-1],
        text.replace("fedstride-run-1", "fedstride-run-2"),
        "ü" + text,
        text * 9,
    ):
        refused(node, message(), run_of(other), ErrorKind.SIGNATURE)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"app": "0" * 64}, "signed for the app"),
        ({"run_config": {"overrides": "rounds=3"}}, "configuration"),
        ({"signed_at": int(time.time()) + DAY // 2, "expires": int(time.time()) + DAY}, "future"),
        ({"signed_at": int(time.time()) - 2 * DAY, "expires": int(time.time()) - 1}, "expired"),
    ],
)
def test_a_run_that_is_signed_for_something_else_is_refused(
    node: Checking, change: dict[str, Any], why: str
) -> None:
    assert why in refused(node, message(), run_of(signed_text(terms_of(FORMS, **change))), ErrorKind.OTHER_RUN)


def test_more_run_config_than_was_signed_is_refused(node: Checking) -> None:
    run = run_of(signed_text(terms_of(FORMS)), seed="3")
    assert "configuration" in refused(node, message(), run, ErrorKind.OTHER_RUN)


def test_a_signature_for_more_than_a_month_is_none(node: Checking) -> None:
    terms = terms_of(FORMS, expires=int(time.time()) + 31 * DAY)
    assert "30 days" in refused(node, message(), run_of(signed_text(terms)), ErrorKind.SIGNATURE)


def test_a_run_that_is_signed_for_other_nodes_is_refused(node: Checking, tmp_path: Path) -> None:
    assert refused(node, message(), run_of(signed_text(terms_of(FORMS, nodes=(OTHER,)))), ErrorKind.OTHER_NODES)
    keyless = Checking(tmp_path / "keyless", own="")
    assert "no key" in refused(keyless, message(), run_of(signed_text(terms_of(FORMS))), ErrorKind.OTHER_NODES)
    everyone = run_of(signed_text(terms_of(FORMS, nodes=())))
    assert keyless.question(message(), everyone)


def test_the_nodes_of_a_run_are_members_if_the_policy_names_some(tmp_path: Path) -> None:
    both, one = run_of(signed_text(terms_of(FORMS, nodes=(OWN, OTHER)))), run_of(signed_text(terms_of(FORMS)))
    all_of_them, alone = Checking(tmp_path / "2", members=[OWN, OTHER]), Checking(tmp_path / "1", members=[OWN])
    assert all_of_them.question(message(), both) and alone.question(message(), one)
    assert "no member" in refused(alone, message(), both, ErrorKind.OTHER_NODES)
    assert "names no nodes" in refused(
        alone, message(), run_of(signed_text(terms_of(FORMS, nodes=()))), ErrorKind.OTHER_NODES
    )


# ---------------------------------------------------------------- the ledger


def test_a_signed_run_starts_one_run_also_after_a_restart(node: Checking, tmp_path: Path) -> None:
    text = signed_text(terms_of(FORMS))
    node.question(message("query"), run_of(text, 7))
    assert "has started run 7" in refused(node, message("query"), run_of(text, 8), ErrorKind.REPLAY)
    again = Checking(tmp_path)
    assert "has started run 7" in refused(again, message(), run_of(text, 8), ErrorKind.REPLAY)
    assert again.question(message(), run_of(text, 7))


def test_a_lower_round_is_refused_also_after_a_restart(node: Checking, tmp_path: Path) -> None:
    run = run_of(signed_text(terms_of(FORMS)))
    node.question(in_round(2, 1), run)
    for each in (node, Checking(tmp_path)):
        assert "server-round = 1, after 2" in refused(each, in_round(1, 1), run, ErrorKind.REPLAY)
        assert "accepted-round = 0, after 1" in refused(each, in_round(3, 0), run, ErrorKind.REPLAY)
    assert node.question(in_round(3, 2), run)


def test_the_statistics_are_said_once(node: Checking) -> None:
    run = run_of(signed_text(terms_of(FORMS)))
    node.question(message(), run)
    assert "spec.mean" in refused(node, in_round(2, **{"spec.mean": [0.0, 3.0]}), run, ErrorKind.REPLAY)
    assert node.question(in_round(2), run)


def test_a_message_is_answered_once_and_a_repeat_gets_the_kept_reply(node: Checking, tmp_path: Path) -> None:
    run = run_of(signed_text(terms_of(FORMS)))
    first = node.question(message(), run)
    assert "not kept" in refused(node, message(), run, ErrorKind.REPLAY)  # asked, and not answered yet
    answer = answered(RecordDict({"metrics": MetricRecord({"n": 1})}))
    node.runs.keep(first, answer)
    for each in (node, Checking(tmp_path)):
        kept = each.question(message(), run).kept
        assert kept == answer._replace(state=b"")
    assert "training of round 1 again" in refused(node, in_round(1, 1), run, ErrorKind.REPLAY)
    node.runs.keep(node.question(in_round(2), run), answer)
    assert refused(node, message(), run, ErrorKind.REPLAY)


def test_an_error_is_kept_too(node: Checking) -> None:
    run = run_of(signed_text(terms_of(FORMS)))
    answer = answered(RecordDict())._replace(root="", objects={}, error=(2, "boom"))
    node.runs.keep(node.question(message(), run), answer)
    assert node.question(message(), run).kept == answer


def test_kept_replies_take_no_more_than_the_disk_of_the_policy(tmp_path: Path) -> None:
    node = Checking(tmp_path, most_bytes=3000)
    arrays = RecordDict({"arrays": to_record({"w": np.zeros(600, np.uint8)})})
    for number in range(4):
        run = run_of(signed_text(terms_of(FORMS, run=f"{number:016x}", nonce=f"{number:032x}")), number + 1)
        asked = with_values({wire.RUN: None})
        forms = (replace(FORMS[1], fixed={key: value for key, value in FIXED.items() if key != wire.RUN}),)
        run = run_of(signed_text(terms_of(forms, run=f"{number:016x}", nonce=f"{number:032x}")), number + 1)
        node.runs.keep(node.question(asked, run), answered(arrays))
    sizes = [each.stat().st_size for each in (tmp_path / "replies").glob("*/*")]
    assert 1 <= len(sizes) < 4 and sum(sizes) <= 3000


def test_no_more_messages_than_were_signed(node: Checking) -> None:
    run = run_of(signed_text(terms_of(FORMS, messages=2)))
    node.question(message("query"), run)
    node.question(message(), run)
    assert "more than the 2 messages" in refused(node, in_round(2), run, ErrorKind.REPLAY)


def test_the_word_of_a_run_belongs_to_its_key_and_is_taken_up_by_a_signed_resume_only(tmp_path: Path) -> None:
    node = Checking(tmp_path)
    node.question(in_round(3, 2), run_of(signed_text(terms_of(FORMS)), 7))
    assert "not signed as its resume" in refused(
        node, in_round(3), run_of(signed_text(terms_of(FORMS)), 8), ErrorKind.REPLAY
    )
    resumed = run_of(signed_text(terms_of(FORMS, resumes=True)), 8)
    assert node.question(in_round(2, 1), resumed).round == 2  # a lower round, as after a checkpoint
    other = Signatures_of_two(tmp_path)
    stolen = run_of(signed_text(terms_of(FORMS, resumes=True), OTHER_KEY), 9)
    assert "belongs to another key" in refused(other, in_round(3), stolen, ErrorKind.REPLAY)


def Signatures_of_two(folder: Path) -> Checking:
    from node.signed_runs.signers import Signatures

    node = Checking(folder)
    node.runs._signatures = Signatures([signer_of(KEY), signer_of(OTHER_KEY, "other")], OWN, None)
    return node


def test_what_has_expired_leaves_the_ledger_and_the_word_stays(tmp_path: Path) -> None:
    node, text = Checking(tmp_path), signed_text(terms_of(FORMS))
    run = run_of(text)
    node.runs.keep(node.question(message(), run), answered(RecordDict()))
    size = (tmp_path / "ledger").stat().st_size
    later = Ledger(tmp_path / "ledger", tmp_path / "replies", None, time.time() + DAY + 3600)
    assert later._known and (tmp_path / "ledger").stat().st_size == size  # a day longer than it is valid
    later = Ledger(tmp_path / "ledger", tmp_path / "replies", None, time.time() + 3 * DAY)
    assert not later._known and later._words == {WORD: signer_of(KEY).id}
    assert not list((tmp_path / "replies").glob("*")) and (tmp_path / "ledger").stat().st_size < size


def test_a_line_that_was_cut_off_is_left_out_and_a_damaged_one_stops_the_node(
    node: Checking, tmp_path: Path
) -> None:
    run = run_of(signed_text(terms_of(FORMS)))
    node.question(message(), run)
    path = tmp_path / "ledger"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"nonce": "')
    assert refused(Checking(tmp_path), message(), run, ErrorKind.REPLAY) and path.read_bytes() == whole
    for damaged in (b"[]\n", b"no json\n", b'{"nonce": "a", "form": "b", "round": 1, "seen": {}}\n'):
        path.write_bytes(whole + damaged + whole)
        with pytest.raises(ConfigError, match="damaged in line 3"):
            Checking(tmp_path)


@pytest.mark.parametrize("what", ["link", "mode", "folder"])
def test_a_ledger_that_others_may_write_is_not_used(node: Checking, tmp_path: Path, what: str) -> None:
    run = run_of(signed_text(terms_of(FORMS)))
    node.question(message("query"), run)
    path = tmp_path / "ledger"
    if what == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif what == "mode":
        path.chmod(0o666)
    else:
        path.unlink()
        path.mkdir()
    refused(node, message(), run, ErrorKind.STORAGE)
    with pytest.raises(ConfigError, match="ledger"):
        Checking(tmp_path)


# ---------------------------------------------------------------- approvals


@pytest.fixture
def asking(tmp_path: Path) -> tuple[Checking, Path]:
    (tmp_path / "patients.csv").write_text("a,b\n1,2\n")
    return started(tmp_path, b"approve = 'ask'"), tmp_path / "approvals"


def started(folder: Path, terms: bytes) -> Checking:
    """A node that has read these terms."""
    site = SiteOfData(terms, (folder / "patients.csv",))
    return Checking(folder, approvals=Approvals(folder / "approvals", site))


def test_a_run_waits_for_a_person(asking: tuple[Checking, Path]) -> None:
    node, folder = asking
    run = run_of(signed_text(terms_of(FORMS)))
    assert "node-approve" in refused(node, message("query"), run, ErrorKind.APPROVAL)
    head, told = head_of(message("query")), Fault(ErrorKind.APPROVAL)
    assert f"code {wire.WAITS}" in replies.refusal(head, 5, told, "it waits").error
    (found,) = waiting(folder)
    approve(folder, find(folder, found.id))
    assert waiting(folder) == []
    assert node.question(message("query"), run) and node.question(message(), run)
    for each in folder.iterdir():
        assert each.stat().st_mode & 0o777 == 0o600


def test_an_approval_is_of_one_signed_run_and_ends_with_the_policy_or_the_data(
    asking: tuple[Checking, Path], tmp_path: Path
) -> None:
    node, folder = asking
    run = run_of(signed_text(terms_of(FORMS)))
    refused(node, message("query"), run, ErrorKind.APPROVAL)
    (found,) = waiting(folder)
    approve(folder, found)
    assert node.question(message("query"), run)
    forms = (replace(FORMS[0], fixed={**FIXED, wire.RUN: "f" * 16}),)
    other = run_of(signed_text(terms_of(forms, run="f" * 16)), 8)
    with_other_word = with_values({wire.RUN: "f" * 16}, "query")
    assert refused(node, with_other_word, other, ErrorKind.APPROVAL)
    for number, changed in enumerate(("terms", "data"), 1):
        if changed == "terms":
            node = started(tmp_path, b"approve = 'ask' # more")
        else:
            (tmp_path / "patients.csv").write_text("a,b\n1,2\n3,4\n")
        assert "node-approve" in refused(node, message(), run, ErrorKind.APPROVAL)
        again = next(each for each in waiting(folder) if each.body == found.body)
        assert again.id != found.id
        approve(folder, again)
        assert node.question(in_round(number), run)
    assert "has started run 7" in refused(
        node, message(), run_of(run.overrides["signed_run"], 9), ErrorKind.REPLAY
    )  # type: ignore[arg-type]


def test_a_forged_approval_is_none(asking: tuple[Checking, Path], tmp_path: Path) -> None:
    node, folder = asking
    run = run_of(signed_text(terms_of(FORMS)))
    refused(node, message("query"), run, ErrorKind.APPROVAL)
    (found,) = waiting(folder)
    approved = folder / f"{found.id}.approved"
    for forged in (found._replace(body=found.body.replace('"rounds":3', '"rounds":9')), found._replace(site="0")):
        approved.write_text(json.dumps(forged._asdict()))
        approved.chmod(0o600)
        refused(node, message("query"), run, ErrorKind.APPROVAL)
    approve(folder, found)
    approved.chmod(0o666)
    refused(node, message("query"), run, ErrorKind.APPROVAL)
    approved.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o600)
    approved.symlink_to(tmp_path / "elsewhere")
    refused(node, message("query"), run, ErrorKind.APPROVAL)


def test_what_a_person_reads_is_inert_and_says_what_changed(asking: tuple[Checking, Path]) -> None:
    node, folder = asking
    bad = "\x1b[2J\u202e" + "x" * 5000
    hostile = replace(FORMS[0], fixed={**FIXED, "a.text": bad, "reading.columns": ["age", "age\nexpires never"]})
    terms = terms_of((hostile,), run_config={"submission": bad})
    run = run_of("")._replace(overrides={"submission": bad, "signed_run": signed_text(terms)})
    refused(node, with_values(hostile.fixed, "query"), run, ErrorKind.APPROVAL)
    (found,) = waiting(folder)
    lines = list(in_words(folder, found))
    text = "\n".join(lines)
    assert text.isascii() and text.replace("\n", "").isprintable() and max(map(len, lines)) < 500
    for said in (
        "'study'",
        APP.hash,
        "rounds     3",
        "1 that are named by their keys",
        "as the submitter says",
        "the model alone",
    ):
        assert said in text
    approve(folder, found)
    other = terms_of(
        (replace(hostile, fixed={**hostile.fixed, "a.int": 2}),),
        run_config={"submission": bad},
        run="e" * 16,
        nodes=(),
        app="1" * 64,
    )
    (text,) = ["\n".join(in_words(folder, found._replace(body=other.body())))]
    assert "another than approved last" in text and "changed: 'a.int' was 1" in text
    assert "as the server says" in text


def form_with(name: str, kind: str, varies: Mapping[str, Varies] = {}, **fixed: Any) -> MessageForm:
    return MessageForm(name, kind, {wire.RUN: WORD, **fixed}, varies, {})


def shown_to_a_person(folder: Path, *forms: MessageForm) -> list[str]:
    return list(in_words(folder, Asking("study", signer_of(KEY).id, terms_of(forms).body(), "")))


def read_by_a_person(folder: Path, *forms: MessageForm) -> list[str]:
    """What is shown, each setting on one line."""
    return "\n".join(shown_to_a_person(folder, *forms)).replace(f"\n{GOES_ON}", "").split("\n")


def test_a_person_reads_each_value_that_any_message_has(tmp_path: Path) -> None:
    """A last form that says something harmless hides nothing of the others, in whichever order they are."""
    harmful = form_with("roll call", "train", **{"reading.targets": ["hiv"], "holdout": 0.0, "a.same": 1})
    harmless = form_with("training", "query", **{"reading.targets": ["age"], "a.same": 1, "a.one": 2, "a.type": 1})
    third = form_with(
        "evaluation", "evaluate", **{"reading.targets": ["age"], "holdout": 0.2, "a.same": 1, "a.type": True}
    )
    for forms in ((harmful, harmless, third), (third, harmless, harmful)):
        lines = read_by_a_person(tmp_path, *forms)
        assert "  'reading.targets' = ['hiv'], in 'train' as 'roll call'" in lines
        (targets,) = [line for line in lines if "['age']" in line]
        assert "'query' as 'training'" in targets and "'evaluate' as 'evaluation'" in targets
        assert "  'holdout' = 0.0, in 'train' as 'roll call'" in lines
        assert "  'holdout' = 0.2, in 'evaluate' as 'evaluation'" in lines
        assert "  'a.same' = 1" in lines and "  'a.one' = 2, in 'query' as 'training'" in lines
        assert "  'a.type' = 1, in 'query' as 'training'" in lines
        assert "  'a.type' = True, in 'evaluate' as 'evaluation'" in lines


def test_a_person_reads_what_may_vary(tmp_path: Path) -> None:
    varies = {"holdout": Varies("float", 0.0, 0.9, optional=True), FACTORS: VARIES[FACTORS]}
    lines = read_by_a_person(
        tmp_path, form_with("training", "train", varies), form_with("roll call", "query", holdout=0.2)
    )
    assert "  'holdout' = varies: float from 0.0 to 0.9, or missing, in 'train' as 'training'" in lines
    assert "  'holdout' = 0.2, in 'query' as 'roll call'" in lines
    assert f"  '{FACTORS}' = varies: at most 3 of float from 0.0 to 1.0, in 'train' as 'training'" in lines
    text = "\n".join(read_by_a_person(tmp_path, *FORMS))
    for key, each in VARIES.items():
        assert f"'{key}' = varies: {each}" in text


@pytest.mark.parametrize("says", ["alone", "beside training", "varying"])
def test_a_person_reads_that_a_run_asks_what_the_data_are_like(tmp_path: Path, says: str) -> None:
    varying = {wire.DESCRIPTION: Varies("int", 0, 1)}
    asks = form_with("x", "query", varying) if says == "varying" else form_with("x", "query", description=True)
    others = (form_with("training", "train"),) if says == "beside training" else ()
    lines = read_by_a_person(tmp_path, asks, *others)
    (line,) = [each for each in lines if each.startswith("asks ")]
    assert "what the data are like, column by column" in line
    assert ("nothing is trained" in line) is (not others)
    assert not [each for each in read_by_a_person(tmp_path, *FORMS) if each.startswith("asks ")]


NORM, NOISE = wire.CLIPPING_NORM, wire.NOISE_MULTIPLIER


@pytest.mark.parametrize(
    ("trains", "said"),
    [
        ([{NOISE: 2.0, NORM: 1.0}], f"{NOISE} at least 2.0, {NORM} at most 1.0"),
        ([{NOISE: 2.0, NORM: 9.0}, {NOISE: 0.5, NORM: 1.0}], f"{NOISE} at least 0.5, {NORM} at most 9.0"),
        ([{}, {NOISE: 2.0, NORM: 1.0}], "none by the nodes, no clipping"),
        ([{NOISE: 2.0, NORM: 1.0}, {NOISE: 0.0, NORM: 1.0}], f"none by the nodes, {NORM} at most 1.0"),
        ([{NOISE: Varies("float", 0.1, 3.0), NORM: Varies("float", 0.1, 7.0)}],
         f"{NOISE} at least 0.1, {NORM} at most 7.0"),
        ([{NOISE: Varies("float", 0.1, 3.0, optional=True), NORM: 1.0}], f"none by the nodes, {NORM} at most 1.0"),
        ([{NOISE: 2.0, NORM: 1.0, wire.NOISE_SEED: 3}],
         f"{NOISE} at least 2.0, {NORM} at most 1.0; {wire.NOISE_SEED} lets the submitter compute it"),
        ([], "none, as the run does not train"),
    ],
)  # fmt: skip
def test_the_noise_that_a_person_reads_is_the_least(
    tmp_path: Path, trains: list[Mapping[str, Any]], said: str
) -> None:
    forms = [
        form_with(
            f"training {number}",
            "train" if number else "train.more",
            {key: each for key, each in one.items() if isinstance(each, Varies)},
            **{key: each for key, each in one.items() if not isinstance(each, Varies)},
        )
        for number, one in enumerate(trains)
    ]
    protected = form_with("roll call", "query", **{NOISE: 5.0, NORM: 0.1})
    for listed in ((*forms, protected), (protected, *reversed(forms))):
        assert f"noise      {said}" in read_by_a_person(tmp_path, *listed)


def test_what_changed_is_said_for_values_of_single_forms_too(tmp_path: Path) -> None:
    query = form_with("roll call", "query", holdout=0.2)
    before = terms_of((form_with("training", "train", holdout=0.2), query)).body()
    asking = Asking("study", signer_of(KEY).id, before, "")
    approve(tmp_path, asking)
    for other in (form_with("training", "train", holdout=0.0), form_with("training", "train")):
        text = "\n".join(in_words(tmp_path, asking._replace(body=terms_of((other, query)).body())))
        assert "changed: 'holdout' was 0.2" in text
    assert not [line for line in in_words(tmp_path, asking) if "changed" in line]


def test_a_person_reads_all_of_a_long_value(tmp_path: Path) -> None:
    """The last of many columns is as important as the first."""
    columns = [f"laboratory_value_{number:03}" for number in range(60)]
    lines = read_by_a_person(tmp_path, form_with("training", "train", **{"reading.columns": columns}))
    assert f"  'reading.columns' = {columns}" in lines


@pytest.mark.parametrize("before", [*range(40, 80), *range(110, 150)])
def test_a_long_value_does_not_look_like_another_setting(tmp_path: Path, before: int) -> None:
    forged = "x" * before + "  'holdout' = 0.2"
    lines = shown_to_a_person(tmp_path, form_with("training", "train", **{"a.text": forged, "holdout": 0.0}))
    assert [line for line in lines if line.lstrip().startswith("'holdout'")] == ["  'holdout' = 0.0"]
    assert max(len(line) for line in lines if line.startswith("  ")) <= 79


# ---------------------------------------------------------------- the loop of a node


def test_a_node_logs_the_reason_and_starts_no_process(tmp_path: Path) -> None:
    link = MemoryLink(submission="anna")
    site = Site(tmp_path, link, lambda request: pytest.fail("the app has a process"))
    runs = Checking(tmp_path / "own").runs
    site.node._signed = SignedRuns(runs._signatures, runs._ledger, None, site.node._node_log)
    head = link.deliver()
    site.step()
    (reply,) = link.replies()
    assert (reply.error.code, reply.error.reason) == (wire.REFUSED, str(Fault(ErrorKind.UNSIGNED)))
    last = read(site.log).rows[-1]
    assert (last["event"], last["message"], last["reason"]) == (
        "refused",
        head.id,
        "code 901: it has no signature",
    )


def test_a_repeat_is_answered_without_a_process(tmp_path: Path) -> None:
    requests: list[Request] = []
    link = MemoryLink()

    def computes(request: Request) -> Any:
        requests.append(request)
        return answered(RecordDict({"metrics": MetricRecord({wire.NUM_EXAMPLES: 3})}), b"state")

    site = Site(tmp_path, link, computes)
    runs = Checking(tmp_path / "own").runs
    site.node._signed = SignedRuns(runs._signatures, runs._ledger, None, site.node._node_log)
    run = link.runs[RUN]
    link.runs[RUN] = run_of(signed_text(terms_of(FORMS)))._replace(app_hash=run.app_hash)
    for _ in range(2):
        found = message()
        contents = objects(found)
        link.store |= contents

        link._queue.append(Arrived(head_of(found, RUN), tuple(contents)))
        site.step()
    assert len(requests) == 1
    (place,) = site.processes.places
    key = signer_of(KEY)
    assert Path(place.settings["environment"]["FEDSTRIDE_STATE"]).name == owner_of(key.text, "")
    assert set(site.node._states) == {(WORD, "test/acts", key.id)}  # by the word, not by the SuperLink's series
    first, second = link.replies()
    assert dict(first.content.metric_records["metrics"]) == dict(second.content.metric_records["metrics"])
    assert [row["event"] for row in read(site.log).rows] == ["received", "answered"] * 2


@pytest.mark.parametrize("kind", ["hours", "tasks"])
def test_what_the_policy_refuses_can_be_asked_again(tmp_path: Path, kind: str) -> None:
    """Also by another run of the same signed submission: nothing was written down."""
    refusing = {"hours": Policy(hours=(8 * 60, 9 * 60)), "tasks": Policy(tasks=("other",))}[kind]
    link, clock = MemoryLink(), [7 * 60]
    site = Site(tmp_path, link, lambda request: answered(RecordDict({"metrics": MetricRecord({"n": 1})})))
    checking = Checking(tmp_path / "own")
    site.node._signed = SignedRuns(checking.runs._signatures, checking.ledger, None, site.node._node_log)
    forms = tuple(replace(form, fixed={**form.fixed, "task.name": "blood"}) for form in FORMS)
    run = link.runs[RUN]
    link.runs[RUN] = run_of(signed_text(terms_of(forms)))._replace(app_hash=run.app_hash)

    def asks(policy: Policy, **config: Any) -> None:
        site.node._terms = TermsOfSite(policy, None, lambda: clock[0])
        found = message(**{"task.name": "blood", **config})
        contents = objects(found)
        link.store |= contents
        link._queue.append(Arrived(head_of(found, RUN), tuple(contents)))
        site.step()

    asks(refusing)
    assert (tmp_path / "own/ledger").read_bytes() == b""
    clock[0] = 8 * 60
    asks(refusing if kind == "hours" else Policy())
    first, second = link.replies()
    assert first.has_error() and first.error.reason.startswith(str(Fault(ErrorKind.POLICY))[:20])
    assert second.has_content() and len(site.processes.requests) == 1
    clock[0] = 7 * 60
    asks(refusing, **{"task.name": "other", "a.more": 1})  # not signed: it learns nothing of the policy
    assert link.replies()[-1].error.reason == str(Fault(ErrorKind.NOT_SIGNED))
