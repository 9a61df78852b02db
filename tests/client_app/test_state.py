"""What a client keeps: a version a round, the accepted one loaded, ugly input refused, damage said."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client_talk import initial, message, node, same, sgd, told, train
from flwr.app import ConfigRecord, Context, MessageType, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from client_app import state
from client_app.app import app
from client_app.state import InContext, Kept, OnDisk, root, store
from fedstride import wire
from fedstride.arrays import Arrays, views
from fedstride.errors import ConfigError

RUN = "0123456789abcdef"
STATES = {
    "halves.x": {
        "fc.weight": np.float32([[1.5, -0.0]]),
        "scalar": np.array(3),
        "cursor": 7,
        "name": "é/1",
        "on": True,
    },
    "objective.y": {"rate": 0.1},
}


def on_disk(folder: Path, server_round: int, accepted: int = 0, oldest: int = 0) -> OnDisk:
    return OnDisk(folder, server_round, accepted, oldest)


def equal(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """The same labels, names, types and bits."""

    def plain(value: Any) -> Any:
        return (
            (value.dtype, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else (type(value), value)
        )

    flat = [{k: {n: plain(v) for n, v in s.items()} for k, s in states.items()} for states in (a, b)]
    return flat[0] == flat[1]


def count(value: int) -> dict[str, Any]:
    return {"halves.x": {"count": value}}


# ---------------------------------------------------------------- versions


def test_arrays_and_values_come_back(tmp_path: Path) -> None:
    on_disk(tmp_path, 1).save(STATES)
    kept = on_disk(tmp_path, 2, accepted=1).load()
    assert equal(kept.states, STATES) and not kept.lost


VALUES = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=8)
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=8), VALUES, min_size=1, max_size=4))
def test_any_plain_value_comes_back(values: dict[str, Any]) -> None:
    packed = state._packed({"a.b": values})
    path = Path(os.environ["FEDSTRIDE_STATE"]).parent / "one"
    path.write_bytes(packed)
    assert equal(state._read(path), {"a.b": values})


def test_the_named_version_is_loaded_and_later_ones_have_no_effect(tmp_path: Path) -> None:
    for server_round in (1, 3, 4):
        on_disk(tmp_path, server_round).save(count(server_round))
    for accepted in (1, 3, 4):
        assert on_disk(tmp_path, 6, accepted).load().states == count(accepted)


def test_none_named_is_the_start(tmp_path: Path) -> None:
    on_disk(tmp_path, 1).save(count(1))
    assert on_disk(tmp_path, 2).load() == Kept({}, lost=False)


def test_only_versions_that_nothing_can_name_are_dropped(tmp_path: Path) -> None:
    for server_round in range(1, 6):
        on_disk(tmp_path, server_round).save(count(server_round))
    for name in ("round-notes.safetensors", ".round-000002-killed", ".round-000005-at-work"):
        (tmp_path / name).touch()
    on_disk(tmp_path, 6, accepted=4, oldest=3).save(count(6))
    versions = {f"round-{server_round:06d}.safetensors" for server_round in (3, 4, 5, 6)}
    left = {path.name for path in tmp_path.iterdir()}
    assert left == versions | {"round-notes.safetensors", ".round-000005-at-work"}


def test_a_round_that_is_done_again_is_written_anew(tmp_path: Path) -> None:
    for value in (1, 2):
        on_disk(tmp_path, 1).save(count(value))
    assert on_disk(tmp_path, 2, accepted=1).load().states == count(2)


def test_what_cannot_be_dropped_does_not_end_the_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "round-000001.safetensors").mkdir()
    on_disk(tmp_path, 2).save(count(2))
    on_disk(tmp_path, 5, 4, 4).save(count(5))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "round-000001.safetensors",
        "round-000005.safetensors",
    ]

    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name.startswith("round-"):
            raise PermissionError(errno.EPERM, "not permitted")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    on_disk(tmp_path, 7, 6, 6).save(count(7))
    assert on_disk(tmp_path, 8, 7).load() == Kept(count(7), lost=False)


def test_a_user_without_a_home_is_told_to_name_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(*args: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("FEDSTRIDE_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(ConfigError, match=r"no folder for what clients keep .*: name one"):
        root({})


@pytest.mark.parametrize(
    "value", [np.float32(1), np.array([object()]), np.array(["a"]), object(), [1, 2], None, b"x", {"a": 1}]
)
def test_what_cannot_be_kept_is_named(tmp_path: Path, value: object) -> None:
    with pytest.raises(ConfigError, match=r"halves\.x/odd is of type .*: a method can keep arrays of numbers"):
        on_disk(tmp_path, 1).save({"halves.x": {"odd": value}})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"halves\.x/odd is of type"):
        InContext(RecordDict()).save({"halves.x": {"odd": value}})  # type: ignore[dict-item]
    assert not list(tmp_path.iterdir())


def test_a_round_that_fails_does_not_cost_what_memory_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = RecordDict()

    def refuse(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(state, "_write", refuse)
        assert not OnDisk(tmp_path, 3, 2, 1, memory).save(count(3))
    with pytest.raises(ConfigError):
        OnDisk(tmp_path, 4, 3, 1, memory).save({"halves.x": {"odd": object()}})  # type: ignore[dict-item]
    assert OnDisk(tmp_path, 5, 3, 1, memory).load() == Kept(count(3), lost=False)
    OnDisk(tmp_path, 5, 3, 1, memory).save(count(5))
    assert OnDisk(tmp_path, 6, 3, 1, memory).load().lost


def test_who_keeps_nothing_for_once_has_not_lost_it(tmp_path: Path) -> None:
    on_disk(tmp_path / "0", 1).save(count(1))
    on_disk(tmp_path / "0", 2, 1).save({"halves.x": {}})
    assert on_disk(tmp_path / "0", 3, 2).load() == Kept({}, lost=False)


def test_links_are_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "0").mkdir()
    (tmp_path / "0/round-000001.safetensors").symlink_to(tmp_path / "precious")
    on_disk(tmp_path / "0", 1).save(count(1))
    assert (tmp_path / "precious").read_text() == "mine"
    assert on_disk(tmp_path / "0", 2, 1).load() == Kept(count(1), lost=False)
    (tmp_path / "1").symlink_to(tmp_path / "nowhere")
    assert not on_disk(tmp_path / "1", 1).save(count(1))


def test_two_runs_at_once_do_not_meet(tmp_path: Path) -> None:
    for run, value in (("a" * 16, 1), ("b" * 16, 2)):
        told_run = {wire.RUN: run, wire.SERVER_ROUND: 1}
        store(told_run, node(0), 0).save(count(value))
    for run, value in (("a" * 16, 1), ("b" * 16, 2)):
        told_run = {wire.RUN: run, wire.SERVER_ROUND: 2, wire.ACCEPTED: 1}
        assert store(told_run, node(0), 0).load().states == count(value)


def test_who_keeps_nothing_writes_nothing(tmp_path: Path) -> None:
    on_disk(tmp_path / "new", 1).save({"client.a": {}, "halves.b": {}})
    assert not (tmp_path / "new").exists()


def test_folders_and_files_are_the_owners_alone(tmp_path: Path) -> None:
    on_disk(tmp_path / "a" / "b", 1).save(count(1))
    for path in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "round-000001.safetensors"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


# ---------------------------------------------------------------- lost and damaged


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"a": np.ones(2)}, path)


@pytest.mark.parametrize("damage", [Path.unlink, torn, flipped, empty, foreign])
def test_a_version_that_is_missing_or_damaged_is_lost(tmp_path: Path, damage: Any) -> None:
    on_disk(tmp_path, 1).save(STATES)
    damage(tmp_path / "round-000001.safetensors")
    assert on_disk(tmp_path, 2, accepted=1).load() == Kept({}, lost=True)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=3, unique_by=lambda c: c[0]
    )
)
def test_no_changed_byte_goes_unseen(changes: list[tuple[int, int]]) -> None:
    """Whatever is changed in the file, it loads as it was or counts as lost."""
    folder = Path(os.environ["FEDSTRIDE_STATE"]).parent
    on_disk(folder, 1).save(STATES)
    path = folder / "round-000001.safetensors"
    content = bytearray(path.read_bytes())
    for place, mask in changes:
        content[place % len(content)] ^= mask
    path.write_bytes(content)
    kept = on_disk(folder, 2, accepted=1).load()
    assert kept.lost or equal(kept.states, STATES)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_what_a_full_disk_does_not_take_is_held_in_memory_and_leaves_nothing_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    memory = RecordDict()
    assert on_disk(tmp_path, 1).save(count(1))

    def full(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    assert not replace(on_disk(tmp_path, 2, accepted=1), memory=memory).save(count(2))
    assert os.strerror(number) in caplog.text and "FEDSTRIDE_STATE" in caplog.text
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["round-000001.safetensors"]
    # Accepted or not: the version that is named is the one that is loaded.
    assert replace(on_disk(tmp_path, 3, accepted=2), memory=memory).load() == Kept(count(2), lost=False)
    assert replace(on_disk(tmp_path, 3, accepted=1), memory=memory).load() == Kept(count(1), lost=False)
    assert on_disk(tmp_path, 3, accepted=2).load().lost  # another process has no such memory
    assert replace(on_disk(tmp_path, 3, accepted=2), memory=memory).save(count(3))
    assert on_disk(tmp_path, 4, accepted=3).load() == Kept(count(3), lost=False)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert not on_disk(tmp_path / "file" / "client", 1).save(count(1))
    assert str(tmp_path / "file" / "client") in caplog.text


# ---------------------------------------------------------------- where


def test_the_root_is_the_nodes_own_then_the_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSTRIDE_STATE", "/one")
    monkeypatch.setenv("XDG_STATE_HOME", "/two")
    assert root({"state": "~/x"}) == Path.home() / "x"
    assert root({}) == Path("/one")
    monkeypatch.delenv("FEDSTRIDE_STATE")
    assert root({}) == Path("/two/fedstride/state")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert root({}) == Path.home() / ".local/state/fedstride/state"


@pytest.mark.parametrize("wrong", ["", 7, True])
def test_a_node_that_names_no_folder_is_told(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"node-config state = .* must name a folder"):
        root({"state": wrong})


def ask(server_round: Any = 5, **more: Any) -> Any:
    values = {wire.RUN: RUN, wire.SERVER_ROUND: server_round, wire.ACCEPTED: 3, wire.OLDEST: 2, **more}
    return store(values, node(), 7)


def test_a_client_of_a_run_has_a_folder(tmp_path: Path) -> None:
    assert ask() == OnDisk(tmp_path / "state" / RUN / "7", 5, 3, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            {wire.RUN: run}
            for run in ("../x", "/etc", "", "..", RUN[:-1], RUN + "0", RUN + "\n", RUN.upper(), 7, [RUN])
        ),
        {wire.RUN: "٠١٢٣٤٥٦٧٨٩abcdef"},  # digits too, elsewhere
        *({wire.ACCEPTED: value} for value in (-1, 5, 6, "3", 1.0, True, "../3")),
        *({wire.OLDEST: value} for value in (-1, 4, "2", False)),
        *({"server_round": value} for value in (0, -3, "5", 10**10)),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is not allowed"):
        ask(**wrong)


# ---------------------------------------------------------------- in the context, for another server


def test_without_a_run_the_newest_state_is_in_the_context() -> None:
    records = RecordDict({"others": ConfigRecord({"a": 1})})
    assert InContext(records).load() == Kept({}, lost=False)
    InContext(records).save(STATES)
    kept = InContext(records).load()
    assert equal(kept.states, STATES) and not kept.lost
    InContext(records).save({"objective.y": {"rate": 0.2}})
    assert InContext(records).load().states == {"objective.y": {"rate": 0.2}}
    InContext(records).save({})
    assert list(records) == ["others"]


# ---------------------------------------------------------------- through the ClientApp


SCAFFOLD = {wire.HALVES: ["scaffold"]}
ZEROS = {name: np.zeros_like(array) for name, array in initial().items()}


def go(server_round: int, accepted: int, context: Context | None = None) -> tuple[Arrays, dict[str, Any]]:
    """A round of SCAFFOLD in which c is 0."""
    config = told(server_round, client=sgd(), **SCAFFOLD, **{wire.RUN: RUN, wire.ACCEPTED: accepted})
    reply = app(message(MessageType.TRAIN, config, initial(), scaffold__control=ZEROS), context or node()).content
    return views(reply.array_records[wire.ARRAYS]), dict(reply.metric_records[wire.METRICS])


def test_a_rejected_reply_leaves_no_trace() -> None:
    go(1, 0)
    unbroken, _ = go(4, 1)
    go(2, 1)
    go(3, 2)
    again, metrics = go(4, 1)
    assert same(again, unbroken)
    assert wire.STATE_LOST not in metrics
    assert not same(again, go(4, 3)[0])


def test_nothing_travels_but_what_the_server_asks_for() -> None:
    context = node()
    config = told(1, **SCAFFOLD, **{wire.RUN: RUN})
    reply = app(message(MessageType.TRAIN, config, initial(), scaffold__control=ZEROS), context).content
    assert list(reply) == [wire.ARRAYS, "scaffold.delta", wire.METRICS]
    assert not context.state


def test_a_lost_state_starts_as_the_method_says_and_the_reply_says_so(tmp_path: Path) -> None:
    go(1, 0)
    (tmp_path / "state" / RUN / "0" / "round-000001.safetensors").unlink()
    again, metrics = go(2, 1)
    assert metrics[wire.STATE_LOST] == 1
    new, metrics = go(2, 0)
    assert wire.STATE_LOST not in metrics
    assert same(again, new)


def test_who_keeps_nothing_has_lost_nothing(tmp_path: Path) -> None:
    _, metrics = train(told(4, **{wire.RUN: RUN, wire.ACCEPTED: 3}))
    assert wire.STATE_LOST not in metrics
    assert not (tmp_path / "state").exists()


def test_clients_of_one_node_have_states_of_their_own(tmp_path: Path) -> None:
    for partition_id in (0, 3):
        go(1, 0, node(partition_id))
    assert sorted(path.name for path in (tmp_path / "state" / RUN).iterdir()) == ["0", "3"]


def test_a_round_that_fails_leaves_no_version(tmp_path: Path) -> None:
    config = told(1, **SCAFFOLD, **{wire.RUN: RUN, wire.CLIPPING_NORM: 1.0})
    with pytest.raises(ConfigError, match="as it is"):
        app(message(MessageType.TRAIN, config, initial(), scaffold__control=ZEROS), node())
    assert not (tmp_path / "state").exists()
