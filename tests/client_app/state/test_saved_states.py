"""A client's saved states: one for each round, loading the accepted one, invalid input, damaged files."""

from __future__ import annotations

import errno
import os
import pwd
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from client_talk import initial, message, node, round_config, same, sgd, train
from flwr.app import ConfigRecord, Context, MessageType, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from client_app.app import app
from client_app.state import saved_states
from client_app.state.saved_states import InContext, LoadedStates, OnDisk, store
from client_app.state.state_folder import root
from fedstride.arrays.named import Arrays, views
from fedstride.errors import ConfigError
from fedstride.messages import wire

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


def test_arrays_and_values_are_restored(tmp_path: Path) -> None:
    on_disk(tmp_path, 1).save(STATES)
    loaded = on_disk(tmp_path, 2, accepted=1).load()
    assert equal(loaded.states, STATES) and not loaded.lost


VALUES = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=8)
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=8), VALUES, min_size=1, max_size=4))
def test_any_plain_value_is_restored(values: dict[str, Any]) -> None:
    packed = saved_states._packed({"a.b": values})
    path = Path(os.environ["FEDSTRIDE_STATE"]).parent / "one"
    path.write_bytes(packed)
    assert equal(saved_states._read(path), {"a.b": values})


def test_the_state_of_the_named_round_is_loaded(tmp_path: Path) -> None:
    for server_round in (1, 3, 4):
        on_disk(tmp_path, server_round).save(count(server_round))
    for accepted in (1, 3, 4):
        assert on_disk(tmp_path, 6, accepted).load().states == count(accepted)


def test_without_a_named_round_the_state_is_empty(tmp_path: Path) -> None:
    on_disk(tmp_path, 1).save(count(1))
    assert on_disk(tmp_path, 2).load() == LoadedStates({}, lost=False)


def test_only_states_older_than_oldest_are_deleted(tmp_path: Path) -> None:
    for server_round in range(1, 6):
        on_disk(tmp_path, server_round).save(count(server_round))
    for name in ("round-notes.safetensors", ".round-000002-killed", ".round-000005-at-work"):
        (tmp_path / name).touch()
    on_disk(tmp_path, 6, accepted=4, oldest=3).save(count(6))
    versions = {f"round-{server_round:06d}.safetensors" for server_round in (3, 4, 5, 6)}
    left = {path.name for path in tmp_path.iterdir()}
    assert left == versions | {"round-notes.safetensors", ".round-000005-at-work"}


def test_a_repeated_round_overwrites_its_state(tmp_path: Path) -> None:
    for value in (1, 2):
        on_disk(tmp_path, 1).save(count(value))
    assert on_disk(tmp_path, 2, accepted=1).load().states == count(2)


def test_an_old_state_that_cannot_be_deleted_does_not_end_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert on_disk(tmp_path, 8, 7).load() == LoadedStates(count(7), lost=False)


def test_the_error_for_a_user_without_a_home_says_to_set_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(user: object) -> NoReturn:
        raise KeyError(user)

    for name in ("FEDSTRIDE_STATE", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for config in ({}, {"state": "~/here"}, {"state": "~nobody-of-this-name/here"}):
        with pytest.raises(ConfigError, match=r"home folder of user .* is not known.*FEDSTRIDE_STATE"):
            root(config)


@pytest.mark.parametrize(
    "value", [np.float32(1), np.array([object()]), np.array(["a"]), object(), [1, 2], None, b"x", {"a": 1}]
)
def test_state_values_of_other_types_are_rejected(tmp_path: Path, value: object) -> None:
    with pytest.raises(ConfigError, match=r"halves\.x/value has type .*, but must be an array of numbers"):
        on_disk(tmp_path, 1).save({"halves.x": {"value": value}})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"halves\.x/value has type"):
        InContext(RecordDict()).save({"halves.x": {"value": value}})  # type: ignore[dict-item]
    assert not list(tmp_path.iterdir())


def test_a_failed_round_does_not_delete_the_state_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = RecordDict()

    def refuse(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", refuse)
        assert not OnDisk(tmp_path, 3, 2, 1, memory).save(count(3))
    with pytest.raises(ConfigError):
        OnDisk(tmp_path, 4, 3, 1, memory).save({"halves.x": {"value": object()}})  # type: ignore[dict-item]
    assert OnDisk(tmp_path, 5, 3, 1, memory).load() == LoadedStates(count(3), lost=False)
    OnDisk(tmp_path, 5, 3, 1, memory).save(count(5))
    assert OnDisk(tmp_path, 6, 3, 1, memory).load().lost


def test_an_empty_state_after_a_saved_one_is_not_lost(tmp_path: Path) -> None:
    on_disk(tmp_path / "0", 1).save(count(1))
    on_disk(tmp_path / "0", 2, 1).save({"halves.x": {}})
    assert on_disk(tmp_path / "0", 3, 2).load() == LoadedStates({}, lost=False)


def test_symbolic_links_are_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "0").mkdir()
    (tmp_path / "0/round-000001.safetensors").symlink_to(tmp_path / "precious")
    on_disk(tmp_path / "0", 1).save(count(1))
    assert (tmp_path / "precious").read_text() == "mine"
    assert on_disk(tmp_path / "0", 2, 1).load() == LoadedStates(count(1), lost=False)
    (tmp_path / "1").symlink_to(tmp_path / "nowhere")
    assert not on_disk(tmp_path / "1", 1).save(count(1))


def test_two_runs_have_separate_states(tmp_path: Path) -> None:
    for run, value in (("a" * 16, 1), ("b" * 16, 2)):
        config = {wire.RUN: run, wire.SERVER_ROUND: 1}
        store(config, node(0), 0).save(count(value))
    for run, value in (("a" * 16, 1), ("b" * 16, 2)):
        config = {wire.RUN: run, wire.SERVER_ROUND: 2, wire.ACCEPTED: 1}
        assert store(config, node(0), 0).load().states == count(value)


def test_a_client_without_state_writes_no_file(tmp_path: Path) -> None:
    on_disk(tmp_path / "new", 1).save({"client.a": {}, "halves.b": {}})
    assert not (tmp_path / "new").exists()


def test_only_the_user_can_access_state_folders_and_files(tmp_path: Path) -> None:
    on_disk(tmp_path / "a" / "b", 1).save(count(1))
    for path in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "round-000001.safetensors"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


# ---------------------------------------------------------------- lost and damaged


def truncated(path: Path) -> None:
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


@pytest.mark.parametrize("damage", [Path.unlink, truncated, flipped, empty, foreign])
def test_a_missing_or_damaged_state_is_lost(tmp_path: Path, damage: Any) -> None:
    on_disk(tmp_path, 1).save(STATES)
    damage(tmp_path / "round-000001.safetensors")
    assert on_disk(tmp_path, 2, accepted=1).load() == LoadedStates({}, lost=True)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=3, unique_by=lambda c: c[0]
    )
)
def test_every_changed_byte_is_detected(changes: list[tuple[int, int]]) -> None:
    """After any change of the file, the state is either loaded unchanged or counts as lost."""
    folder = Path(os.environ["FEDSTRIDE_STATE"]).parent
    on_disk(folder, 1).save(STATES)
    path = folder / "round-000001.safetensors"
    content = bytearray(path.read_bytes())
    for place, mask in changes:
        content[place % len(content)] ^= mask
    path.write_bytes(content)
    loaded = on_disk(folder, 2, accepted=1).load()
    assert loaded.lost or equal(loaded.states, STATES)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_state_that_cannot_be_written_is_kept_in_memory(
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
    # The state of the named round is loaded, from memory or from the disk.
    assert replace(on_disk(tmp_path, 3, accepted=2), memory=memory).load() == LoadedStates(count(2), lost=False)
    assert replace(on_disk(tmp_path, 3, accepted=1), memory=memory).load() == LoadedStates(count(1), lost=False)
    assert on_disk(tmp_path, 3, accepted=2).load().lost  # another process has no such memory
    assert replace(on_disk(tmp_path, 3, accepted=2), memory=memory).save(count(3))
    assert on_disk(tmp_path, 4, accepted=3).load() == LoadedStates(count(3), lost=False)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert not on_disk(tmp_path / "file" / "client", 1).save(count(1))
    assert str(tmp_path / "file" / "client") in caplog.text


# ---------------------------------------------------------------- the folder


def test_the_state_folder_is_from_the_node_config_then_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSTRIDE_STATE", "/one")
    monkeypatch.setenv("XDG_STATE_HOME", "/two")
    assert root({"state": "~/x"}) == Path.home() / "x"
    assert root({}) == Path("/one")
    monkeypatch.delenv("FEDSTRIDE_STATE")
    assert root({}) == Path("/two/fedstride/state")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert root({}) == Path.home() / ".local/state/fedstride/state"


@pytest.mark.parametrize("wrong", ["", 7, True])
def test_an_invalid_state_folder_is_rejected(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"node-config state = .* must be the path of a folder"):
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
        {wire.RUN: "٠١٢٣٤٥٦٧٨٩abcdef"},  # Arabic digits
        *({wire.ACCEPTED: value} for value in (-1, 5, 6, "3", 1.0, True, "../3")),
        *({wire.OLDEST: value} for value in (-1, 4, "2", False)),
        *({"server_round": value} for value in (0, -3, "5", 10**10)),
    ],
)
def test_invalid_runs_and_rounds_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is not allowed"):
        ask(**wrong)


# ---------------------------------------------------------------- in the context, for servers that send no run id


def test_without_a_run_the_newest_state_is_in_the_context() -> None:
    records = RecordDict({"others": ConfigRecord({"a": 1})})
    assert InContext(records).load() == LoadedStates({}, lost=False)
    InContext(records).save(STATES)
    loaded = InContext(records).load()
    assert equal(loaded.states, STATES) and not loaded.lost
    InContext(records).save({"objective.y": {"rate": 0.2}})
    assert InContext(records).load().states == {"objective.y": {"rate": 0.2}}
    InContext(records).save({})
    assert list(records) == ["others"]


# ---------------------------------------------------------------- through the ClientApp


SCAFFOLD = {wire.HALVES: ["scaffold"]}
ZEROS = {name: np.zeros_like(array) for name, array in initial().items()}


def go(server_round: int, accepted: int, context: Context | None = None) -> tuple[Arrays, dict[str, Any]]:
    """A round of SCAFFOLD in which c is 0."""
    config = round_config(server_round, client=sgd(), **SCAFFOLD, **{wire.RUN: RUN, wire.ACCEPTED: accepted})
    reply = app(message(MessageType.TRAIN, config, initial(), scaffold__control=ZEROS), context or node()).content
    return views(reply.array_records[wire.ARRAYS]), dict(reply.metric_records[wire.METRICS])


def test_a_rejected_reply_does_not_affect_later_rounds() -> None:
    go(1, 0)
    unbroken, _ = go(4, 1)
    go(2, 1)
    go(3, 2)
    again, metrics = go(4, 1)
    assert same(again, unbroken)
    assert wire.STATE_LOST not in metrics
    assert not same(again, go(4, 3)[0])


def test_a_reply_contains_only_what_the_server_needs() -> None:
    context = node()
    config = round_config(1, **SCAFFOLD, **{wire.RUN: RUN})
    reply = app(message(MessageType.TRAIN, config, initial(), scaffold__control=ZEROS), context).content
    assert list(reply) == [wire.ARRAYS, "scaffold.delta", wire.METRICS]
    assert not context.state


def test_a_client_with_a_lost_state_starts_again_and_reports_it(tmp_path: Path) -> None:
    go(1, 0)
    (tmp_path / "state" / RUN / "0" / "round-000001.safetensors").unlink()
    again, metrics = go(2, 1)
    assert metrics[wire.STATE_LOST] == 1
    new, metrics = go(2, 0)
    assert wire.STATE_LOST not in metrics
    assert same(again, new)


def test_a_client_without_state_reports_no_lost_state(tmp_path: Path) -> None:
    _, metrics = train(round_config(4, **{wire.RUN: RUN, wire.ACCEPTED: 3}))
    assert wire.STATE_LOST not in metrics
    assert not (tmp_path / "state").exists()


def test_clients_of_one_node_have_separate_states(tmp_path: Path) -> None:
    for partition_id in (0, 3):
        go(1, 0, node(partition_id))
    assert sorted(path.name for path in (tmp_path / "state" / RUN).iterdir()) == ["0", "3"]


def test_a_failed_round_saves_no_state(tmp_path: Path) -> None:
    config = round_config(1, **SCAFFOLD, **{wire.RUN: RUN, wire.CLIPPING_NORM: 1.0})
    with pytest.raises(ConfigError, match="would be sent unprotected"):
        app(message(MessageType.TRAIN, config, initial(), scaffold__control=ZEROS), node())
    assert not (tmp_path / "state").exists()
