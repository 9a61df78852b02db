"""A node's log that somebody changes: what its signatures prove, and what a node does that finds it changed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedstride.errors import ConfigError
from fedstride.files.chained_lines import checked_line, line_of
from lab.cli.main import app
from lab.deployment.certificates import make
from node.keys import Signer, private_key, public_key
from node.log import log_file
from node.log.log_file import LogFile, LogHead, files, head_of
from node.log.verification import Checked, in_words, read

NODE, OTHER = Signer(ec.generate_private_key(ec.SECP384R1())), Signer(ec.generate_private_key(ec.SECP256R1()))
KEYS = [NODE.public]


def written(path: Path, count: int = 1, signer: Signer | None = NODE, **options: int) -> Checked:
    log = LogFile(path, signer=signer, **options)
    for number in range(count):
        log.write("answered", value=number)
    log.close()
    return read(path, KEYS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    written(tmp_path / "log", 4)
    return tmp_path / "log"


def add(path: Path, signer: Signer | None = None, **changed: object) -> None:
    """Append a line that follows the last one, and name it in the head, as somebody who may write to the files."""
    last = read(path).lines[-1]
    row = {**last.row, "number": last.row["number"] + 1, "run": "forged", **changed}
    text = line_of(row, last.digest, None if signer is None else signer.sign)
    path.write_text(f"{path.read_text()}{text}\n")
    anew(path)


def anew(path: Path) -> None:
    """Write the head of the last line."""
    last = checked_line(path.read_bytes().splitlines()[-1])
    assert last is not None
    head_of(path).write_text(f"{last.row['number']:020d} {last.digest}\n")


def test_the_lines_of_a_node_with_a_key_are_proven(path: Path) -> None:
    found = written(path, 2)
    assert (found.faults, len(found.lines)) == ([], 6)
    words = " ".join(in_words(found))
    assert "a holder of the key has written lines 1 to 6 in this order, and none between them is missing" in words
    assert "not proven: that the holder of the key did not write another log; that no line after number 6" in words
    assert "signatures were not looked at: give the node's public key" in " ".join(in_words(read(path)))


@pytest.mark.parametrize(
    ("signer", "changed", "said"),
    [
        (None, {}, "it is not signed"),
        (OTHER, {}, f"it is not signed by the key {NODE.public.id}"),
        (OTHER, {"key": OTHER.public.id}, f"it is signed with another key ({OTHER.public.id})"),
        (OTHER, {"key": ["odd"]}, "it is signed with another key"),
    ],
    ids=["unsigned", "with the id of the node's key", "with the id of its own key", "with an odd id"],
)
def test_a_forged_line_at_the_end_is_found_and_the_node_does_not_follow_it(
    path: Path, signer: Signer | None, changed: dict, said: str
) -> None:
    add(path, signer, **changed)
    assert [f"log, line 5: {said}" in fault for fault in read(path, KEYS).faults] == [True]
    add(path, signer, **changed, again=True)
    found = written(path, 2)
    assert [row["number"] for row in found.rows] == [1, 2, 3, 4, 5, 6]
    assert [fault.startswith(f"log, line 5 to log, line 6: {said}") for fault in found.faults] == [True]
    assert "forged" not in {row.get("run") for row in found.rows}


def test_an_unsigned_line_in_a_signed_log_is_found_without_a_key(path: Path) -> None:
    add(path)
    assert read(path).faults == ["log, line 5: it is not signed, but others are"]


@pytest.mark.parametrize("signer", [None, OTHER])
def test_a_log_that_was_written_anew_without_the_key_is_found(path: Path, signer: Signer | None) -> None:
    previous, lines = "", []
    for line in read(path).lines:
        lines.append(line_of({**line.row, "event": "nothing"}, previous, None if signer is None else signer.sign))
        previous = checked_line(lines[-1].encode()).digest
    path.write_text("".join(f"{line}\n" for line in lines))
    anew(path)
    assert read(path).faults == []  # it is a chain
    found = read(path, KEYS)
    assert not found.lines and found.faults[0].startswith("log, line 1 to log, line 4: it is not signed")


def test_lines_of_another_log_of_the_same_key_do_not_belong_here(path: Path, tmp_path: Path) -> None:
    written(tmp_path / "other", 4)
    mine, others = path.read_text().splitlines(), (tmp_path / "other").read_text().splitlines()
    assert {json.loads(text)["log"] for text in (mine[0], others[0])} != {json.loads(mine[0])["log"]}
    path.write_text("\n".join([*mine[:3], others[3]]) + "\n")
    assert "lines are missing, added or exchanged before it" in read(path, KEYS).faults[0]
    path.write_text("\n".join(mine) + "\n")
    head_of(tmp_path / "other").replace(head_of(path))
    assert read(path, KEYS).faults == ["log: line number 4 is not the one that was written"]


ORDERS = [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 2, 1, 3], [0, 1, 1, 2, 3], [3, 2, 1, 0], [0, 1, 2]]


@pytest.mark.parametrize("order", ORDERS)
def test_removed_exchanged_and_repeated_lines_are_found(path: Path, order: list[int]) -> None:
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{lines[number]}\n" for number in order))
    assert read(path, KEYS).faults


@pytest.mark.slow
@given(st.data())
def test_a_log_without_a_fault_is_what_the_node_wrote(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever somebody without the key makes of the lines: at most the end is cut off, and the head set back."""
    path = tmp_path_factory.mktemp("log") / "log"
    rows = written(path, 5).rows
    lines = path.read_text().splitlines()
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(lines)))
        act = data.draw(st.sampled_from(["cut", "remove", "move", "forge", "strip"]))
        if act == "cut":
            lines = lines[:place]
        elif act == "forge":
            before = checked_line(lines[place - 1].encode()) if place else None
            row = {"number": place + 1, "time": rows[0]["time"], "event": "forged", "key": NODE.public.id}
            lines.insert(place, line_of(row, before.digest if before else "", OTHER.sign))
        elif lines:
            line = lines.pop(min(place, len(lines) - 1))
            if act == "move":
                lines.insert(data.draw(st.integers(0, len(lines))), line)
            elif act == "strip" and (read_line := checked_line(line.encode())):
                lines.insert(place, line_of(read_line.row, read_line.previous))
        if not lines:
            return
    path.write_text("".join(f"{line}\n" for line in lines))
    if data.draw(st.booleans()):
        anew(path)
    found = read(path, KEYS)
    assert found.faults or found.rows == rows[: len(found.rows)] == rows[: len(lines)]


@pytest.mark.slow
@given(st.integers(0, 7), st.floats(0, 1, exclude_max=True))
def test_every_changed_bit_of_what_is_signed_is_found(
    tmp_path_factory: pytest.TempPathFactory, bit: int, share: float
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    rows = written(path, 3).rows
    content = bytearray(path.read_bytes())
    place = int(share * (len(content) - 1))  # not the last line break
    content[place] ^= 1 << bit
    path.write_bytes(content)
    found = read(path, KEYS)
    assert found.faults or found.rows == rows  # a signature that a later one makes needless


# ---------------------------------------------------------------- the end, and a head that was kept


def test_an_end_that_was_removed_with_the_head_is_found_by_a_head_that_was_kept(path: Path) -> None:
    kept = read(path, KEYS).head
    assert kept is not None
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    anew(path)
    assert read(path, KEYS).faults == []
    assert f"the line {kept} that was kept is not in it" in read(path, KEYS, kept).faults[0]
    written(path, 3)
    assert f"the line {kept} that was kept is not in it" in read(path, KEYS, kept).faults[-1]
    assert read(path, KEYS, LogHead(5, read(path).lines[2].digest)).faults  # the number is another one


def test_what_a_node_does_not_find_again_stands_in_its_next_line(path: Path) -> None:
    """Before, the node wrote a new head, and nothing was left of the removal."""
    text, head = path.read_text(), head_of(path).read_text()
    path.write_text("".join(text.splitlines(keepends=True)[:2]))
    found = written(path, 2)
    assert [row["number"] for row in found.rows] == [1, 2, 3, 4]
    assert f"the line 4:{head.split()[1]} was missing: somebody has removed it" in found.faults[0]
    path.write_text(text)
    head_of(path).unlink()
    assert ".head was missing" in written(path).faults[0]


def test_a_crash_after_the_first_line_leaves_no_fault(tmp_path: Path) -> None:
    written(tmp_path / "log")
    head_of(tmp_path / "log").write_text("")
    assert read(tmp_path / "log", KEYS).faults == []
    assert written(tmp_path / "log").faults == []


def test_signed_lines_after_the_head_are_no_fault(path: Path) -> None:
    """The disk was full for the head only."""
    head = head_of(path).read_text()
    written(path, 3)
    head_of(path).write_text(head)
    assert read(path, KEYS).faults == []
    assert "3 lines were added after number 4" in read(path).faults[0]
    assert written(path).faults == []


# ---------------------------------------------------------------- keys


def test_a_node_gets_its_key_later(tmp_path: Path) -> None:
    path = tmp_path / "log"
    written(path, 3, signer=None)
    found = written(path, 2)
    assert found.faults == [] and len(found.lines) == 5
    words = " ".join(in_words(found))
    assert "has written lines 4 to 5" in words
    assert "lines 1 to 3 were there when the key signed line 4; who wrote them is open" in words


def test_a_node_gets_another_key(path: Path) -> None:
    written(path, 2, signer=OTHER)
    both = read(path, [NODE.public, OTHER.public])
    assert both.faults == [] and "lines 1 to 6 in this order" in " ".join(in_words(both))
    new = read(path, [OTHER.public])
    assert new.faults == [] and "lines 1 to 4 were there when the key signed line 5" in " ".join(in_words(new))
    assert read(path, KEYS).faults[0].startswith("log, line 5 to log, line 6: it is signed with another key")


def test_a_node_without_its_key_does_not_write_to_a_signed_log(path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"has signed lines, and this node has no key; give it the key, or another"
    ):
        LogFile(path)
    assert written(path).faults == []


def test_keys_are_read_from_both_files_in_each_form(tmp_path: Path) -> None:
    make(tmp_path, nodes=["north"])
    private = private_key((tmp_path / "north").read_bytes())
    assert private is not None
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "north.pem").write_bytes(pem)
    assert len({public_key(tmp_path / name).id for name in ("north", "north.pub", "north.pem")}) == 1
    signature = Signer(private).sign("ab")
    assert public_key(tmp_path / "north.pub").has_signed("ab", signature)
    assert not any(
        public_key(tmp_path / "north.pub").has_signed(*each) for each in (("ac", signature), ("ab", "a"))
    )
    for name, content in (("text", b"no key"), ("empty", b""), ("broken", pem[:100]), ("p", b"PRIVATE KEY")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError, match=r"is not the key of a node: give the \.pub"):
            public_key(tmp_path / name)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        public_key(tmp_path / "nowhere")


# ---------------------------------------------------------------- times


def at(monkeypatch: pytest.MonkeyPatch, path: Path, *moments: str, signer: Signer | None = NODE) -> Checked:
    times = iter(moments)
    with monkeypatch.context() as patch:
        patch.setattr(log_file, "_now", lambda: next(times))
        return written(path, len(moments), signer)


NOON, BEFORE, SLIGHTLY = "2026-06-01T12:00:00+0200", "2026-06-01T11:59:50+0200", "2026-06-01T11:59:56+0200"


def test_a_clock_that_is_set_back_is_said_by_the_log_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = at(monkeypatch, tmp_path / "log", NOON, BEFORE, SLIGHTLY, BEFORE)
    assert found.faults == []
    assert found.remarks == [
        f"log, line 2: the node's clock was set back, from {NOON} to {BEFORE}",
        f"log, line 4: the node's clock was set back, from {SLIGHTLY} to {BEFORE}",
    ]


def test_small_steps_and_another_time_zone_are_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = at(monkeypatch, tmp_path / "log", NOON, SLIGHTLY, "2026-06-01T10:00:00+0000", NOON)
    assert (found.faults, found.remarks) == ([], [])
    assert at(monkeypatch, tmp_path / "log", NOON).remarks == []


def test_a_line_older_than_the_one_before_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an unsigned log, whose chain somebody has computed again."""
    path = tmp_path / "log"
    at(monkeypatch, path, NOON, NOON, signer=None)
    add(path, time=BEFORE)
    assert read(path).faults == [
        f"log, line 3: its time {BEFORE} is more than 5 s before that of the line before, {NOON}"
    ]
    for odd in ("yesterday", None, 7, "2026-06-01"):
        add(path, time=odd)
        assert read(path).lines  # and no other error


# ---------------------------------------------------------------- files that are none


@pytest.mark.parametrize("ending", ["", ".head"])
@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder", "other name"])
def test_a_log_and_its_head_are_files_of_their_own(tmp_path: Path, ending: str, kind: str) -> None:
    """A head that is a link was followed, and the file at its end written over."""
    place, victim = tmp_path / f"log{ending}", tmp_path / "victim"
    victim.write_text("precious\n")
    make_it: dict[str, Callable[[], object]] = {
        "link": lambda: place.symlink_to(victim),
        "dangling": lambda: place.symlink_to(tmp_path / "nothing"),
        "pipe": lambda: os.mkfifo(place),
        "folder": place.mkdir,
        "other name": lambda: os.link(victim, place),
    }
    make_it[kind]()
    if (kind, ending) == ("other name", ""):
        written(tmp_path / "log")  # as between the two steps of a rotation: it is appended to
    else:
        with pytest.raises(OSError):
            LogFile(tmp_path / "log", signer=NODE)
    assert victim.read_text().startswith("precious\n") and not (tmp_path / "nothing").exists()
    assert ending == "" or victim.read_text() == "precious\n"


@pytest.mark.parametrize("name", ["log", "log.000001", "log.head"])
def test_the_command_does_not_wait_for_a_pipe(path: Path, name: str) -> None:
    path.with_name(name).unlink(missing_ok=True)
    os.mkfifo(path.with_name(name))
    done = CliRunner().invoke(app, ["node-log", str(path)])
    assert isinstance(done.exception, ConfigError) and "is not a file" in str(done.exception)


# ---------------------------------------------------------------- the command, and rotation


@pytest.mark.slow
def test_the_command_verifies_signatures_and_a_kept_head(path: Path, tmp_path: Path) -> None:
    public = tmp_path / "north.pub"
    public.write_bytes(NODE.public.key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    call = ["node-log", str(path), "--key", str(public)]
    shown = CliRunner().invoke(app, call)
    assert shown.exit_code == 0 and "proven: a holder of the key has written lines 1 to 4" in shown.output
    head = next(line for line in shown.output.splitlines() if line.startswith("4:"))
    assert CliRunner().invoke(app, [*call, "--head", head]).exit_code == 0
    printed = json.loads(CliRunner().invoke(app, [*call, "--format", "json"]).output)
    assert printed["head"] == head and printed["faults"] == [] and len(printed["rows"]) == 4
    assert printed["rows"][-1]["sha256"] == head[2:]
    wrong = CliRunner().invoke(app, [*call, "--head", f"4:{'0' * 64}"])
    assert wrong.exit_code == 1 and "that was kept is not in it" in wrong.output
    for odd in ("4", "x:y", f"4:{'g' * 64}"):
        assert "it must be NUMBER:SHA256" in str(CliRunner().invoke(app, [*call, "--head", odd]).exception)
    add(path)
    forged = CliRunner().invoke(app, call)
    assert forged.exit_code == 1 and "line 5: it is not signed" in forged.output and "proven" not in forged.output


def test_signatures_cover_rotated_files(tmp_path: Path) -> None:
    path = tmp_path / "log"
    found = written(path, 20, most_bytes=1000)
    assert len(files(path)) > 5 and found.faults == [] and len(found.lines) == 20
    files(path)[1].write_bytes(b"")
    assert read(path, KEYS).faults


@pytest.mark.slow
def test_many_forged_lines_are_one_fault(tmp_path: Path) -> None:
    """Also if each of them follows the one before, and nothing is signed by the key that is given."""
    path = tmp_path / "log"
    written(path, 2)
    last = read(path).lines[-1].digest
    lines = []
    for number in range(3, 20_003):
        lines.append(line_of({"number": number, "time": "", "event": "x"}, last))
        last = checked_line(lines[-1].encode()).digest
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))
    assert read(path, KEYS).faults[0] == "log, line 3 to log, line 20002: it is not signed"
