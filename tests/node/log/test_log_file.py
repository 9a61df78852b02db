"""A node's log: its chain, its end, its rotation, and that nothing is done without a line."""

from __future__ import annotations

import errno
import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedstride.errors import ConfigError
from lab.cli.main import app
from node import node_command
from node.log import log_file
from node.log.log_file import LogFile, files
from node.log.log_lines import ArrivedMessage, LoggedReply, NodeLog, RefusedError
from node.log.verification import read
from node.settings import OFF
from node.settings import read as settings


def written(path: Path, count: int, **options) -> list[dict]:
    log = LogFile(path, **options)
    for number in range(count):
        log.write("event", value=number, text='"sha256": "é')
    log.close()
    return read(path).rows


def test_lines_are_chained_and_go_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "home/node-log.jsonl"
    written(path, 3)
    rows = written(path, 2)
    assert [row["number"] for row in rows] == [1, 2, 3, 4, 5]
    lines = read(path).lines
    assert [line.previous for line in lines] == ["", *(line.digest for line in lines[:-1])]
    assert read(path).faults == []
    assert read(path).head == (5, lines[-1].digest)
    for each in (path, path.with_name("node-log.jsonl.head")):
        assert stat.S_IMODE(each.stat().st_mode) == 0o600


def test_the_log_of_an_older_umask_becomes_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch(mode=0o644)
    written(path, 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.slow
@given(st.integers(0, 5), st.data())
def test_every_changed_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, bit: int, data) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    written(path, 3)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 2))  # without the last line break
    content[place] ^= 1 << bit
    path.write_bytes(content)
    assert read(path).faults


@pytest.mark.parametrize("kept", [[1, 2, 3], [0, 1, 2], [0, 2, 3], [0, 3], [0, 2, 1, 3], [0, 1, 1, 2, 3], [], [3]])
def test_a_cut_is_seen_at_the_beginning_the_end_and_between(tmp_path: Path, kept: list[int]) -> None:
    path = tmp_path / "log"
    written(path, 4)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[place] for place in kept))
    assert read(path).faults


def test_a_log_that_is_gone_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "log"
    written(path, 4)
    path.unlink()
    assert "number 4 was written; lines are missing at the end" in read(path).faults[0]
    written(path, 1)
    assert read(path).rows[0]["number"] == 1
    assert "was missing: somebody has removed it" in read(path).faults[0]
    path.with_name("log.head").unlink()
    assert "is missing or damaged" in read(path).faults[1]


def test_a_line_that_a_crash_cut_short_is_named_and_the_chain_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    written(path, 3)
    path.write_bytes(path.read_bytes() + b'{"number": 4, "ti')
    rows = written(path, 1)
    assert [row["number"] for row in rows] == [1, 2, 3, 4]
    assert read(path).faults == ["log, line 4: it is not as it was written"]


def test_a_crash_between_a_line_and_its_number_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "log"
    written(path, 2)
    head = path.with_name("log.head")
    before = head.read_text()
    written(path, 1)
    head.write_text(before)
    assert read(path).faults == []
    written(path, 1)
    head.write_text(before)
    assert "2 lines were added after number 2" in read(path).faults[0]


def test_rotation_keeps_every_line_and_the_chain(tmp_path: Path) -> None:
    path = tmp_path / "log"
    rows = written(path, 30, most_bytes=1000)
    assert len(files(path)) > 5
    assert all(file.stat().st_size < 1400 for file in files(path))
    assert [row["value"] for row in rows] == list(range(30))
    assert read(path).faults == []
    files(path)[2].unlink()
    assert "lines are missing, added or exchanged before it" in read(path).faults[0]


@pytest.mark.parametrize("name", ["log.202611.jsonl", "log[1].jsonl", "log*.jsonl"])
def test_rotation_loses_nothing_whatever_the_name(tmp_path: Path, name: str) -> None:
    log = LogFile(tmp_path / name, most_bytes=500)
    for number in range(30):
        log.write("event", value=number)
    log.close()
    found = read(tmp_path / name)
    assert [row["value"] for row in found.rows] == list(range(30)) and found.faults == []
    assert len(files(tmp_path / name)) > 3


def test_a_head_that_cannot_be_written_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogFile(tmp_path / "log")
    log.write("first")

    def full(*given: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(log_file.os, "pwrite", full)
        log.write("second")
    assert [row["event"] for row in read(tmp_path / "log").rows] == ["first", "second"]
    assert read(tmp_path / "log").faults == []
    log.close()


def test_two_processes_cannot_write_one_log(tmp_path: Path) -> None:
    first = LogFile(tmp_path / "log")
    with pytest.raises(ConfigError, match=r"another process writes the log .*give each node its own log=PATH"):
        node_command._node_log(replace(settings(GIVEN), log=tmp_path / "log"))
    first.close()
    LogFile(tmp_path / "log").close()


@pytest.mark.parametrize("fails", ["write", "fsync"])
def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch, fails: str) -> None:
    path = tmp_path / "log"
    log = LogFile(path)
    log.write("first")

    def full(*given) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        if fails == "write":
            patch.setattr(log_file.os, "write", full)
        else:
            patch.setattr(log_file.os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            log.write("second")
    log.write("third")
    log.close()
    assert [row["event"] for row in read(path).rows] == ["first", "third"]
    assert read(path).faults == []


# ---------------------------------------------------------------- what is written

GIVEN = ["--superlink", "localhost:9092", "--insecure"]

MESSAGE = ArrivedMessage(
    "m1", 2**63, "train", "fedstride/fedstride 0.1", "ab" * 32, "overrides=strategy=fedlws\x1b[31m"
)


def test_a_message_and_its_reply_are_two_lines(tmp_path: Path) -> None:
    now = [10.0]
    node_log = NodeLog(LogFile(tmp_path / "log"), lambda: now[0])
    node_log.started("hospital-a", "0.1")
    node_log.arrived(MESSAGE)
    node_log.asks("m1", {"strategy": "fedlws", "privacy": "local", "round": 3, "clipping_norm": 1.0})
    now[0] = 12.5
    node_log.leaves(LoggedReply("m1", bytes=1234, examples=77, error=""))
    rows = read(tmp_path / "log").rows
    assert [row["event"] for row in rows] == ["started", "received", "answered"]
    assert rows[1] | {"run": str(2**63), "task": "train", "app_hash": "ab" * 32} == rows[1]
    assert rows[1]["overrides"] == "overrides=strategy=fedlws [31m"
    answer = {"strategy": "fedlws", "privacy": "local", "round": 3, "examples": 77, "bytes_out": 1234}
    assert rows[2] | answer | {"seconds": 2.5, "message": "m1", "app_hash": "ab" * 32} == rows[2]


def test_an_error_and_a_refusal_are_logged_with_their_reason(tmp_path: Path) -> None:
    node_log = NodeLog(LogFile(tmp_path / "log"))
    for name, refused in (("failed", False), ("refused", True)):
        node_log.arrived(MESSAGE)
        node_log.leaves(LoggedReply("m1", 0, None, "code 7: not verified", refused))
        assert read(tmp_path / "log").rows[-1]["event"] == name
    assert read(tmp_path / "log").rows[-1]["reason"] == "code 7: not verified"


def test_without_a_line_nothing_is_done(tmp_path: Path, monkeypatch) -> None:
    node_log = NodeLog(LogFile(tmp_path / "log"))
    node_log.arrived(MESSAGE)

    def full(*given) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(log_file.os, "write", full)
        with pytest.raises(
            RefusedError, match=r"cannot be written \(No space left on device\), so it does nothing"
        ):
            node_log.leaves(LoggedReply("m1", 5, 5, ""))
        with pytest.raises(RefusedError, match="cannot be written"):
            node_log.arrived(MESSAGE)
    node_log.arrived(MESSAGE)


def test_a_node_does_not_start_without_its_log(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for log in (tmp_path / "file/log", tmp_path):
        with pytest.raises(
            ConfigError, match="so the node does not start; make it writable, or give another file"
        ):
            node_command._node_log(replace(settings(GIVEN), log=log))


# ---------------------------------------------------------------- options and the command


def test_the_name_and_the_log_of_a_node(tmp_path: Path) -> None:
    def options(*given: str) -> tuple[str, Path | None]:
        found = settings([*GIVEN, *given], {"FLWR_HOME": str(tmp_path)})
        return found.name, found.log

    assert options() == ("", tmp_path / "node-log.jsonl")
    config = f'name="hospital-a" log="{tmp_path}/own log" partition-id=0'
    assert options("--node-config", config) == ("hospital-a", tmp_path / "own log")
    assert options(f"--node-config=log={OFF}") == options("--node-config", "log='off'") == ("", None)
    for config, said in (('name="7"', "node-config name = '7'"), ("name=3", "name = 3"), ("log=3", "log = 3")):
        with pytest.raises(ConfigError, match=said):
            options("--node-config", config)


def test_the_command_shows_and_verifies(tmp_path: Path) -> None:
    call = CliRunner()
    node_log = NodeLog(LogFile(tmp_path / "log"))
    node_log.started("hospital-a", "0.1")
    node_log.arrived(MESSAGE)
    node_log.leaves(LoggedReply("m1", bytes=1234, examples=77, error=""))
    shown = call.invoke(app, ["node-log", str(tmp_path / "log")])
    assert shown.exit_code == 0, shown.output
    assert "answered" in shown.output and "1234" in shown.output
    assert "verified: no line is missing or changed (lines 1 to 3, " in shown.output
    assert "the lines are not signed: the node had no registered key" in shown.output
    rows = json.loads(
        call.invoke(app, ["node-log", str(tmp_path / "log"), "--format", "json", "--last", "1"]).output
    )
    assert [row["event"] for row in rows["rows"]] == ["answered"]
    assert "described its data" not in shown.output
    described = NodeLog(LogFile(tmp_path / "other"))
    described.arrived(MESSAGE)
    described.asks("m1", {"description": True})
    described.leaves(LoggedReply("m1", bytes=12, examples=None, error=""))
    assert "described its data" in call.invoke(app, ["node-log", str(tmp_path / "other")]).output
    (tmp_path / "log").write_text("".join((tmp_path / "log").read_text().splitlines(keepends=True)[:-1]))
    cut = call.invoke(app, ["node-log", str(tmp_path / "log")])
    assert cut.exit_code == 1
    assert "lines are missing at the end" in cut.output
    assert "verified" not in cut.output and "proven" not in cut.output
