"""Faults of single clients in an in-process run. After each fault the same invariants are checked."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from desk import resume, table, weights
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from world import Away, Change, Fault, error, play

from fedstride.arrays.named import to_record, views
from fedstride.errors import RunError
from fedstride.messages import limits, wire
from server_app.records.checkpoint import newest_checkpoint
from server_app.records.line_files import read_lines


def arrays(change) -> Change:
    """Change the model of a reply: a function from arrays by name to arrays by name."""

    def apply(reply: Message) -> Message:
        model = {name: array.copy() for name, array in views(reply.content["arrays"]).items()}
        reply.content["arrays"] = to_record(change(model))
        return reply

    return apply


def metrics(**values) -> Change:
    """Set metrics of a reply; None removes one."""

    def apply(reply: Message) -> Message:
        kept = dict(reply.content["metrics"]) | {key.replace("_", "-"): value for key, value in values.items()}
        reply.content["metrics"] = MetricRecord({k: v for k, v in kept.items() if v is not None})
        return reply

    return apply


def content(change) -> Change:
    def apply(reply: Message) -> Message:
        reply.content = change(dict(reply.content))
        return reply

    return apply


def one(model: dict, value) -> dict:
    """The model with one element changed."""
    model["fc2.bias"][0] = value
    return model


def garbage(reply: Message) -> Message:
    record = ArrayRecord(dict(reply.content["arrays"]))
    array = record["fc1.bias"]
    record["fc1.bias"] = Array(array.dtype, array.shape, array.stype, b"\x93NUMPY garbage")
    reply.content["arrays"] = record
    return reply


def cut(reply: Message) -> Message:
    record = ArrayRecord(dict(reply.content["arrays"]))
    array = record["fc1.weight"]
    record["fc1.weight"] = Array(array.dtype, array.shape, array.stype, array.data[:-8])
    reply.content["arrays"] = record
    return reply


def pickled(reply: Message) -> Message:
    """An .npy file of Python objects, which only a pickle could read."""
    import io

    stream = io.BytesIO()
    np.save(stream, np.array([print], dtype=object), allow_pickle=True)
    record = ArrayRecord(dict(reply.content["arrays"]))
    record["fc2.bias"] = Array("float32", (10,), "numpy.ndarray", stream.getvalue())
    reply.content["arrays"] = record
    return reply


REJECTED: dict[str, tuple[Change, str]] = {
    "raises": (error(2), "code 2"),
    "process dies (simulation)": (error(0), "code 0"),
    "node gone, the SuperLink answers": (error(5), "code 5"),
    "node stopped responding": (error(8), "code 8"),
    "message expired": (error(3), "code 3"),
    "NaN": (arrays(lambda m: one(m, math.nan)), "NaN"),
    "infinity": (arrays(lambda m: one(m, math.inf)), "infinity"),
    "minus infinity": (arrays(lambda m: one(m, -math.inf)), "infinity"),
    "absurd norm": (arrays(lambda m: one(m, 1e6)), "the largest median of a round so far"),
    "float32's limit": (arrays(lambda m: one(m, 3.4e38)), "the largest median of a round so far"),
    "another shape": (arrays(lambda m: m | {"fc2.bias": np.zeros(11, np.float32)}), "the model has"),
    "a shape that would broadcast": (arrays(lambda m: m | {"fc2.bias": np.zeros(1, np.float32)}), "the model has"),
    "another dtype": (arrays(lambda m: m | {"fc2.bias": np.zeros(10)}), "float64"),
    "a missing array": (arrays(lambda m: {k: v for k, v in m.items() if k != "fc1.bias"}), "missing"),
    "an extra array": (arrays(lambda m: m | {"backdoor": np.zeros(3, np.float32)}), "unexpected arrays"),
    "no array at all": (arrays(lambda m: {}), "missing"),
    "garbage for bytes": (garbage, "cannot be read"),
    "an array cut short": (cut, "cannot be read"),
    "a pickle": (pickled, "cannot be read"),
    "count 0": (metrics(num_examples=0), "num-examples = 0"),
    "a negative count": (metrics(num_examples=-5), "num-examples = -5"),
    "count NaN": (metrics(num_examples=math.nan), "num-examples = nan"),
    "an infinite count": (metrics(num_examples=math.inf), "num-examples = inf"),
    "an absurd count": (metrics(num_examples=10**15), "num-examples = 1e+15"),
    "no count": (metrics(num_examples=None), "num-examples = None"),
    "a list of counts": (metrics(num_examples=[1, 2]), "num-examples = [1, 2]"),
    "a list for an id": (metrics(client_id=[1]), "client-id"),
    "two models": (content(lambda c: RecordDict({**c, "more": c["arrays"]})), "2 records of type ArrayRecord"),
    "no model": (content(lambda c: RecordDict({"metrics": c["metrics"]})), "0 records of type ArrayRecord"),
    "no metrics": (content(lambda c: RecordDict({"arrays": c["arrays"]})), "0 records of type MetricRecord"),
    "nothing": (content(lambda c: RecordDict()), "0 records of type"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", REJECTED)
def test_an_invalid_reply_is_rejected_with_its_reason(tmp_path: Path, monkeypatch, kind: str) -> None:
    change, said = REJECTED[kind]
    folder, seen = play(tmp_path, monkeypatch, [Fault(1, 2, change), Fault(3, 3, change)], "rounds=3")
    assert [len(cohort) for cohort in seen.cohorts] == [4, 3, 3]
    rows = {(row["round"], row["client"]): row for row in read_lines(folder / "clients.jsonl")}
    for where in ((2, 1), (3, 3)):
        assert rows[where]["status"] == "rejected"
        assert said in rows[where]["reason"]
    assert [row["screening/rejected"] for row in read_lines(folder / "metrics.jsonl")[1:]] == [0, 1, 1]


HARMLESS: dict[str, Fault] = {
    "arrays in another order": Fault(1, 2, arrays(lambda m: dict(reversed(m.items())))),
    "Fortran order": Fault(1, 2, arrays(lambda m: {k: np.asfortranarray(v) for k, v in m.items()})),
    "slow, but in time": Fault(1, 2, delay=59.0),
    "the same reply three times": Fault(1, 2, copies=3),
    "more metrics than asked for": Fault(1, 2, metrics(mood=3.0)),
    "fewer metrics": Fault(1, 2, metrics(**{"train/steps": None})),
    "another client's id": Fault(3, 2, metrics(client_id=0)),
    "an id from nowhere": Fault(1, 2, metrics(client_id=-(2**63))),
    "metrics by names that the records use": Fault(
        1, 2, metrics(**{key: [1.0] for key in ("round", "client", "status", "reason", "bytes/up", "norm")})
    ),
    "a list for the loss": Fault(1, 2, metrics(**{"train/loss": [1.0, 2.0]})),
    "figures that are none": Fault(1, 2, metrics(**{"train/loss": math.nan, "train/accuracy": math.inf})),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HARMLESS)
def test_harmless_faults_do_not_change_the_weights(tmp_path: Path, monkeypatch, kind: str) -> None:
    folder, seen = play(tmp_path, monkeypatch, [HARMLESS[kind]], "rounds=3")
    plain, _ = play(tmp_path, monkeypatch, [], "rounds=3", name="plain")
    assert [len(cohort) for cohort in seen.cohorts] == [4, 4, 4]
    assert weights(folder) == weights(plain)


@pytest.mark.slow
@pytest.mark.parametrize("names", [["round", "clients"], ["test/accuracy", "test/loss"], ["seconds/evaluate"]])
def test_clients_cannot_replace_the_servers_metrics(tmp_path: Path, monkeypatch, names: list[str]) -> None:
    """All clients report metrics with names that the server writes itself, in a round without evaluation."""
    faults = [Fault(client, 2, metrics(**{key: [1.0] for key in names})) for client in range(4)]
    folder, _ = play(tmp_path, monkeypatch, faults, "rounds=3", "evaluate_every=3")
    plain, _ = play(tmp_path, monkeypatch, [], "rounds=3", "evaluate_every=3", name="plain")
    assert weights(folder) == weights(plain)
    assert table(folder) == table(plain)


# ---------------------------------------------------------------- the clients' states

STATEFUL = {
    "a cursor": ("strategy=fedavg",),
    "a cursor with the server's detector": ("strategy=two_d_lrd", "strategy.window=0", "strategy.local_steps=3"),
    "a control variate": ("strategy=scaffold",),
    "a memory": ("strategy=feddyn",),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", STATEFUL)
@pytest.mark.parametrize("how", ["rejected", "answers too late"])
def test_a_reply_that_is_not_used_has_no_effect(tmp_path: Path, monkeypatch, kind: str, how: str) -> None:
    """The client has trained and saved a state; in its next round it continues as if it had not been asked."""
    broken = arrays(lambda m: one(m, math.nan))
    fault = Fault(1, 2, broken) if how == "rejected" else Fault(1, 2, delay=61.0)
    folder, seen = play(tmp_path, monkeypatch, [fault], *STATEFUL[kind])
    plain, _ = play(tmp_path, monkeypatch, [Fault(1, 2, rejected=True)], *STATEFUL[kind], name="plain")
    assert [len(cohort) for cohort in seen.cohorts] == [4, 3, 4, 4]
    assert weights(folder) == weights(plain)
    named = [m.content["config"][wire.ACCEPTED] for m in seen.messages if client_of(m) == 1]
    assert named == [0, 1, 1, 3]
    assert newest_checkpoint(folder)[0].accepted == {0: 4, 1: 4, 2: 4, 3: 4}


@pytest.mark.slow
def test_a_round_below_the_quorum_has_no_effect_on_states(tmp_path: Path, monkeypatch) -> None:
    """The only reply of the round is valid, but it is not used."""
    faults = [Fault(client, 2, error(2)) for client in (0, 1, 2)]
    never = [Fault(client, 2, rejected=True) for client in range(4)]
    given = ("screening.quorum=2", "strategy=scaffold")
    folder, seen = play(tmp_path, monkeypatch, faults, *given)
    plain, _ = play(tmp_path, monkeypatch, never, *given, name="plain")
    assert seen.changed == [True, True, False, True, True]
    assert weights(folder) == weights(plain)
    assert [m.content["config"][wire.ACCEPTED] for m in seen.messages if client_of(m) == 3] == [0, 1, 1, 3]


def client_of(message: Message) -> int:
    """The in-process Grid numbers its nodes from 2."""
    return message.metadata.dst_node_id - 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", STATEFUL)
def test_no_client_state_is_sent(tmp_path: Path, monkeypatch, kind: str) -> None:
    """Messages contain the model, plain values and the arrays that a rule asks for; of the rest only the round."""
    up: list[set[str]] = []

    def look(reply: Message) -> Message:
        up.append(set(reply.content))
        return reply

    faults = [Fault(client, t, look) for client in range(4) for t in (1, 2, 3)]
    folder, seen = play(tmp_path, monkeypatch, faults, *STATEFUL[kind], "rounds=3")
    others = {"scaffold.control"} if kind == "a control variate" else set()
    assert {frozenset(message.content) for message in seen.messages} == {frozenset({"arrays", "config"} | others)}
    kept = {"a control variate": {"scaffold.client_control"}, "a memory": {"feddyn.client_memory"}}
    returned = kept.get(kind, set())
    assert {frozenset(names) for names in up} == {frozenset({"arrays", "metrics"} | returned)}
    assert [m.content["config"][wire.ACCEPTED] for m in seen.messages if client_of(m) == 0] == [0, 1, 2]
    text = (folder / "checkpoint/round-000003/state.json").read_text()
    assert "cursor" not in text and len(text) < 10_000


SAID: dict[str, ConfigRecord] = {
    "bytes": ConfigRecord({"cursor": b"\x80\x04"}),
    "a list of bytes": ConfigRecord({"cursor": [b"a", b"b"]}),
    "a long text": ConfigRecord({"diary": "x" * limits.MAX_TEXT}),
    "a long list": ConfigRecord({"cursor": [0.5] * limits.MAX_LIST}),
    "absurd": ConfigRecord({"cursor": [math.nan], "": -(2**63), "\ud800\n": [True, False], "word": "\x00"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SAID)
def test_an_unknown_record_is_neither_saved_nor_sent_back(tmp_path: Path, monkeypatch, kind: str) -> None:
    fault = Fault(1, 2, content(lambda c: RecordDict({**c, "state": SAID[kind]})))
    folder, seen = play(tmp_path, monkeypatch, [fault], "rounds=3")
    plain, usual = play(tmp_path, monkeypatch, [], "rounds=3", name="plain")
    assert [len(cohort) for cohort in seen.cohorts] == [4, 4, 4]
    assert weights(folder) == weights(plain)
    assert [set(m.content) for m in seen.messages] == [set(m.content) for m in usual.messages]
    assert [set(m.content["config"]) for m in seen.messages] == [set(m.content["config"]) for m in usual.messages]
    assert (folder / "checkpoint/round-000002/state.json").stat().st_size < 10_000
    assert [row["round"] for row in resume(folder, "rounds=4").rows] == [0, 1, 2, 3, 4]


BEYOND: dict[str, RecordDict] = {
    "megabytes": RecordDict({"state": ConfigRecord({"diary": "x" * 3_000_000})}),
    "a list of texts": RecordDict({"state": ConfigRecord({"diary": ["", "x" * 1_001]})}),
    "a list": RecordDict({"metrics": MetricRecord({"num-examples": 1, "list": [0] * 10_001})}),
    "metrics": RecordDict({"metrics": MetricRecord({"num-examples": 1, **{f"key {i}": 1 for i in range(4_000)}})}),
    "the name of a metric": RecordDict({"metrics": MetricRecord({"num-examples": 1, "k" * 201: 1})}),
    "the name of a record": RecordDict({"n" * 201: ConfigRecord()}),
    "records": RecordDict({f"record {i}": ConfigRecord() for i in range(100)}),
    "arrays": RecordDict({"arrays": ArrayRecord({f"array {i}": Array(np.zeros(1)) for i in range(200)})}),
    "bytes of arrays": RecordDict({"arrays": ArrayRecord({"fc.weight": Array(np.zeros(2**20))})}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BEYOND)
def test_a_reply_with_more_than_the_bounds_allow(tmp_path: Path, monkeypatch, kind: str) -> None:
    """It is rejected before the screening looks at it, and the reason has both numbers and the node."""
    fault = Fault(1, 2, content(lambda c: RecordDict({**c, **BEYOND[kind]})))
    folder, seen = play(tmp_path, monkeypatch, [fault], "rounds=3")
    assert [len(cohort) for cohort in seen.cohorts] == [4, 3, 4]
    (row,) = (r for r in read_lines(folder / "clients.jsonl") if r["status"] != "used")
    assert (row["round"], row["client"], row["status"]) == (2, 1, "rejected")
    assert re.fullmatch(r"what it sent is not used: \d+ .*, at most \d+ are allowed", row["reason"])


@pytest.mark.parametrize("reason", ["", " \n\t ", "x\n" * 10_000, "\x1b[2J\ud800"])
def test_a_node_that_fails_at_the_roll_call(tmp_path: Path, monkeypatch, reason: str) -> None:
    folder, seen = play(tmp_path, monkeypatch, [Fault(1, 0, error(2, reason))], "rounds=1", "min_clients=3")
    assert [reply.client_id for reply in seen.cohorts[0].replies] == [0, 2, 3]
    (row,) = (row for row in read_lines(folder / "clients.jsonl") if row["status"] == "refused")
    assert (row["client"], row["node"]) == (None, 3)  # it is not a client
    assert row["reason"].startswith("site-3 cannot take part: ")


ABSENT: dict[str, Fault] = {
    "never answers": Fault(1, 2, lambda reply: None),
    "answers too late": Fault(1, 2, delay=61.0),
    "the message is not taken": Fault(1, 2, rejected=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ABSENT)
def test_absent_from_the_round(tmp_path: Path, monkeypatch, kind: str) -> None:
    folder, seen = play(tmp_path, monkeypatch, [ABSENT[kind]], "rounds=3")
    assert [len(cohort) for cohort in seen.cohorts] == [4, 3, 4]
    (row,) = (r for r in read_lines(folder / "clients.jsonl") if r["status"] == "no reply")
    assert (row["round"], row["client"]) == (2, 1)
    assert [r["screening/missing"] for r in read_lines(folder / "metrics.jsonl")[1:]] == [0, 1, 0]


@pytest.mark.slow
def test_a_reply_cannot_claim_to_be_from_another_node(tmp_path: Path, monkeypatch) -> None:
    def forge(reply: Message) -> Message:
        reply.metadata.__dict__["_src_node_id"] = 2
        return reply

    folder, _ = play(tmp_path, monkeypatch, [Fault(1, 2, forge)], "rounds=3")
    plain, _ = play(tmp_path, monkeypatch, [], "rounds=3", name="plain")
    assert weights(folder) == weights(plain)


def test_a_round_below_the_quorum_changes_nothing(tmp_path: Path, monkeypatch) -> None:
    faults = [Fault(client, 2, error(2)) for client in (0, 1, 2)]
    _, seen = play(tmp_path, monkeypatch, faults, "screening.quorum=2", "strategy=fedavg", "rounds=3")
    assert seen.changed == [True, True, False, True]


def test_rounds_without_a_reply_end_the_run(tmp_path: Path, monkeypatch) -> None:
    faults = [Fault(client, t, error(2)) for client in range(4) for t in (2, 3)]
    with pytest.raises(RunError, match="2 rounds in a row"):
        play(tmp_path, monkeypatch, faults, "rounds=9", "max_empty_rounds=2")


# ---------------------------------------------------------------- nodes that come and go


@pytest.mark.slow
def test_a_node_that_disconnects_and_reconnects(tmp_path: Path, monkeypatch) -> None:
    _, seen = play(tmp_path, monkeypatch, [Away(2, first=2, back=4)], "rounds=5")
    assert [len(cohort) for cohort in seen.cohorts] == [4, 3, 3, 4, 4]


@pytest.mark.slow
@pytest.mark.parametrize("kind", STATEFUL)
def test_a_client_that_reconnects_as_another_node_finds_its_state(tmp_path: Path, monkeypatch, kind: str) -> None:
    """The state is on its disk, by client id: the result has the bits of a node that was not restarted."""
    absence = Away(2, first=2, back=4, new_id=77, forgets=True)
    folder, seen = play(tmp_path, monkeypatch, [absence], *STATEFUL[kind], "rounds=5", "node_ids=any")
    assert [len(cohort) for cohort in seen.cohorts] == [4, 3, 3, 4, 4]
    assert seen.cohorts[-1].replies[2].node_id == 77
    assert seen.cohorts[-1].replies[2].client_id == 2
    plain, _ = play(tmp_path, monkeypatch, [Away(2, first=2, back=4)], *STATEFUL[kind], "rounds=5", name="plain")
    assert weights(folder) == weights(plain)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STATEFUL)
def test_a_client_that_reconnects_without_its_disk_reports_it(tmp_path: Path, monkeypatch, kind: str) -> None:
    """It starts with an empty state, which is noted in its row; its replies are used."""
    absence = Away(2, first=3, back=4, wiped=True)
    folder, seen = play(tmp_path, monkeypatch, [absence], *STATEFUL[kind], "rounds=5")
    assert [len(cohort) for cohort in seen.cohorts] == [4, 4, 3, 4, 4]
    noted = [row for row in read_lines(folder / "clients.jsonl") if "note" in row]
    assert [(row["round"], row["client"], row["status"]) for row in noted] == [(4, 2, "used")]
    assert noted[0]["note"] == "its state was missing, and it used an empty one"
    plain, _ = play(tmp_path, monkeypatch, [Away(2, first=3, back=4)], *STATEFUL[kind], "rounds=5", name="plain")
    assert weights(folder) != weights(plain)


@pytest.mark.slow
def test_a_node_that_joins_late(tmp_path: Path, monkeypatch) -> None:
    _, seen = play(tmp_path, monkeypatch, [Away(3, first=0, back=3)], "rounds=4", "min_clients=3")
    assert [[reply.client_id for reply in cohort.replies] for cohort in seen.cohorts] == [
        [0, 1, 2],
        [0, 1, 2],
        [0, 1, 2, 3],
        [0, 1, 2, 3],
    ]


def test_all_nodes_disconnect_for_some_rounds(tmp_path: Path, monkeypatch) -> None:
    faults = [Away(client, first=2, back=3) for client in range(4)]
    with pytest.raises(RunError, match="no client was connected"):
        play(tmp_path, monkeypatch, faults, "rounds=4", "max_empty_rounds=1", "node_wait=10")


@pytest.mark.slow
def test_many_faults_at_once(tmp_path: Path, monkeypatch) -> None:
    faults = [
        Fault(0, 1, error(2)),
        Fault(1, 1, arrays(lambda m: one(m, math.nan))),
        Fault(2, 2, lambda reply: None),
        Fault(3, 2, copies=2),
        Fault(0, 3, delay=99),
        Fault(1, 3, metrics(num_examples=0)),
        Away(2, first=3, back=4),
    ]
    _, seen = play(tmp_path, monkeypatch, faults, "rounds=4")
    assert [[reply.client_id for reply in cohort.replies] for cohort in seen.cohorts] == [
        [2, 3],
        [0, 1, 3],
        [3],
        [0, 1, 2, 3],
    ]


# ---------------------------------------------------------------- figures that a client invents


def evaluated(**values) -> Change:
    """Set metrics of the replies to federated evaluation."""

    def apply(reply: Message) -> Message:
        record = reply.content.metric_records.get("metrics", {})
        return metrics(**values)(reply) if "local/accuracy" in record else reply

    return apply


FIGURES = ("train/loss", "train/accuracy", "train/steps")


@pytest.mark.slow
@pytest.mark.parametrize("lie", [math.nan, math.inf, -1e308, 1e308, [1.0]])
def test_figures_of_one_client_are_left_out_and_the_others_are_averaged(tmp_path: Path, monkeypatch, lie) -> None:
    lies = [Fault(1, t, metrics(**dict.fromkeys(FIGURES, lie))) for t in (1, 2)]
    folder, _ = play(tmp_path, monkeypatch, lies, "rounds=2")
    plain, _ = play(tmp_path, monkeypatch, [], "rounds=2", name="plain")
    assert weights(folder) == weights(plain)
    clients = read_lines(plain / "clients.jsonl")
    for row, honest in zip(
        read_lines(folder / "metrics.jsonl")[1:], read_lines(plain / "metrics.jsonl")[1:], strict=True
    ):
        others = [each for each in clients if each["round"] == row["round"] and each["client"] != 1]
        total = sum(each["num-examples"] for each in others)
        for name in FIGURES:
            assert row[name] == pytest.approx(sum(each["num-examples"] * each[name] for each in others) / total)
        assert row.pop("screening/left_out") == 3
        assert set(row) == set(honest)
    notes = {(row["round"], row["client"]): row.get("note") for row in read_lines(folder / "clients.jsonl")}
    assert all((note is not None) == (client == 1) for (_, client), note in notes.items())
    assert notes[2, 1].startswith("left out of the round's figures: train/loss (")


@pytest.mark.slow
@pytest.mark.parametrize("lie", [-1e308, 0.0, math.nan])
def test_one_client_cannot_stop_a_run_or_choose_the_best_model(tmp_path: Path, monkeypatch, lie: float) -> None:
    lies = [Fault(1, t, metrics(**{"train/loss": lie, "num-examples": 10**12})) for t in (1, 2, 3)]
    folder, _ = play(
        tmp_path, monkeypatch, lies, "rounds=3", "best=train/loss", "target=0.1", "strategy.weighting=uniform"
    )
    rows = read_lines(folder / "metrics.jsonl")
    assert [row["round"] for row in rows] == [0, 1, 2, 3]
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["reason"]) == ("completed", None)
    medians = {row["round"]: row["median/train/loss"] for row in rows[1:]}
    clients = read_lines(folder / "clients.jsonl")
    for number, median in medians.items():
        honest = [row["train/loss"] for row in clients if row["round"] == number and row["client"] != 1]
        assert min(honest) <= median <= max(honest)
    best = min(medians, key=medians.__getitem__)
    assert status["best"] == {"train/loss": rows[best]["train/loss"], "round": best}


@pytest.mark.slow
def test_a_round_counts_only_with_a_quorum(tmp_path: Path, monkeypatch) -> None:
    """In round 2 one of four clients reports no loss: three are fewer than best_quorum."""
    lies = [Fault(1, 2, metrics(**{"train/loss": math.nan}))]
    folder, _ = play(tmp_path, monkeypatch, lies, "rounds=3", "best=train/loss", "best_quorum=4")
    rows = read_lines(folder / "metrics.jsonl")
    assert [row.get("median/train/loss", "none") is None for row in rows] == [False, False, True, False]
    assert json.loads((folder / "status.json").read_text())["best"]["round"] in (1, 3)


@pytest.mark.slow
def test_a_target_that_most_clients_reach_ends_the_run_also_after_a_resume(tmp_path: Path, monkeypatch) -> None:
    options = ("best=train/accuracy", "rounds=6")
    plain, _ = play(tmp_path, monkeypatch, [], *options, name="plain")
    medians = [row["median/train/accuracy"] for row in read_lines(plain / "metrics.jsonl")[1:]]
    target = sorted(medians)[3]
    first = next(number for number, value in enumerate(medians, 1) if value >= target)
    stopped, _ = play(tmp_path, monkeypatch, [], *options, f"target={target}", name="stopped")
    assert len(read_lines(stopped / "metrics.jsonl")) == first + 1
    short, _ = play(tmp_path, monkeypatch, [], "best=train/accuracy", "rounds=1", f"target={target}", name="short")
    outcome = resume(short, "rounds=6")
    reached = medians[first - 1]
    assert len(outcome.rows) == first + 1
    assert outcome.stopped == f"train/accuracy reached {reached:g} in round {first} (target {target:g})"


@pytest.mark.slow
@pytest.mark.parametrize("refused", [False, True])
def test_a_client_cannot_own_the_evaluation_by_its_number_of_examples(
    tmp_path: Path, monkeypatch, refused: bool
) -> None:
    """It claims 10^12 examples with an accuracy of 1, and if `refused` its replies to training are not used."""
    lies = [Fault(1, 0, evaluated(num_examples=10**12, **{"local/accuracy": 1.0}))]
    options = ("rounds=1", "evaluate_clients=true")
    if refused:
        lies.append(Fault(1, 1, arrays(lambda m: one(m, math.nan))))
    folder, _ = play(tmp_path, monkeypatch, lies, *options)
    honest = [Fault(1, 0, evaluated(**{"local/accuracy": 1.0})), *lies[1:]]
    plain, _ = play(tmp_path, monkeypatch, honest, *options, name="plain")
    (_, row), (_, want) = read_lines(folder / "metrics.jsonl"), read_lines(plain / "metrics.jsonl")
    assert row["local/accuracy"] == want["local/accuracy"] < 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("endless", "status"),
    [
        ({"x" * 50_000_000: 1.0}, "rejected"),
        ({"long": [0.5] * 3_000_000}, "rejected"),
        ({f"m{i}": 0.5 for i in range(100_000)}, "rejected"),
        ({f"{i:x<200}": 0.5 for i in range(900)} | {"long": [0.5] * 10_000}, "used"),
    ],
    ids=["a long name", "a long list", "many", "as much as a reply may have"],
)
def test_one_client_cannot_fill_the_disk(tmp_path: Path, monkeypatch, endless: dict, status: str) -> None:
    lies = [Fault(1, t, metrics(**endless)) for t in (1, 2)]
    folder, _ = play(tmp_path, monkeypatch, lies, "rounds=2")
    plain, _ = play(tmp_path, monkeypatch, [], "rounds=2", name="plain")
    rows = [row for row in read_lines(folder / "clients.jsonl") if row["client"] == 1]
    assert [row["status"] for row in rows] == [status, status]
    for name in ("metrics.jsonl", "clients.jsonl", "metrics.csv"):
        assert (folder / name).stat().st_size < (plain / name).stat().st_size + 20_000
