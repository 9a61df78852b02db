"""What apps write to their output: shown line by line, under a bound, without what a terminal acts on."""

from __future__ import annotations

import os
from pathlib import Path

from node.processes.output import MOST_BYTES, MOST_FILES, MOST_LINE, MOST_LINES, Output, ProcessOutputs


def shown(*pieces: bytes) -> list[str]:
    """What is shown of these pieces, each of which is there at once."""
    lines: list[str] = []
    reading, writing = os.pipe()
    output = Output(reading, lines.append)
    for piece in pieces:
        os.write(writing, piece)
        output.read()
    os.close(writing)
    output.read()
    assert output.fileno() == -1
    return lines


def test_lines_that_come_in_pieces() -> None:
    assert shown(b"a\nb", b"c\n", b"", b"last") == ["a", "bc", "last"]


def test_what_a_terminal_acts_on_is_replaced() -> None:
    text = "\x1b[2J\x1b]0;title\x07 \rover\u202ereversed \x9b31m\udcff".encode("utf-8", "surrogateescape")
    (line,) = shown(text + b"\n")
    assert line.isprintable() and "over" in line


def test_a_forged_line_of_the_node_is_behind_its_mark(tmp_path: Path) -> None:
    said: list[str] = []
    ProcessOutputs(tmp_path, said.append).of(7, "a" * 64, is_signed=True)("INFO :  Sent the reply to message 1")
    assert said == [f"[run 7, message {'a' * 12}] INFO :  Sent the reply to message 1"]


def test_a_flood_is_cut_and_read() -> None:
    reading, writing = os.pipe()
    lines: list[str] = []
    output = Output(reading, lines.append)
    for _ in range(100):
        os.write(writing, b"x" * 60_000)
        output.read()
    os.close(writing)
    output.read()
    assert sum(map(len, lines)) <= MOST_BYTES + 100 and max(map(len, lines)) <= MOST_LINE
    assert lines[-1].startswith("(what follows is not shown")


def test_a_flood_of_lines_is_cut() -> None:
    lines = shown(b"\n" * 60_000)
    assert len(lines) == MOST_LINES + 1 and lines[-1].startswith("(what follows is not shown")


def test_lines_of_apps_without_a_signature_are_in_a_file_of_their_message(tmp_path: Path) -> None:
    said: list[str] = []
    outputs = ProcessOutputs(tmp_path / "output", said.append)
    for number in range(MOST_FILES + 5):
        show = outputs.of(7, f"{number:012}", is_signed=False)
        show("one")
        show("two")
    assert not said
    files = list((tmp_path / "output").iterdir())
    assert len(files) == MOST_FILES
    newest = tmp_path / f"output/run-7-message-{MOST_FILES + 4:012}.txt"
    assert newest.read_text() == "one\ntwo\n" and newest.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "output").stat().st_mode & 0o777 == 0o700


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept")
    outputs = ProcessOutputs(tmp_path / "output", lambda line: None)
    (tmp_path / "output").mkdir()
    (tmp_path / "output/run-7-message-m.txt").symlink_to(tmp_path / "other")
    outputs.of(7, "m", is_signed=False)("x")
    assert (tmp_path / "other").read_text() == "kept"
