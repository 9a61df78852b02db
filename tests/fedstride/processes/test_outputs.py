"""Commands whose reader goes: a closed pipe, a closed terminal, a full disk."""

from __future__ import annotations

import errno
import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedstride.processes import exits
from fedstride.processes.outputs import Lasting, lasting

SCRIPT = """
import sys, time, typer, pathlib
from fedstride.processes import exits
from rich.console import Console
app = typer.Typer()
@app.command()
def work(way: str, done: str):
    for number in range(300):
        text = f"line {number} " + "x" * 500
        if way == "echo": typer.echo(text)
        elif way == "rich": Console().print(text)
        elif way == "error": print(text, file=sys.stderr, flush=True)
        else: print(text, flush=number % 2 == 0)
    pathlib.Path(done).write_text("done")
exits.run(app)
"""
WAYS = ["echo", "rich", "print", "error"]


def start(way: str, done: Path, out: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, way, str(done)], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        start_new_session=True,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("opened", [os.pipe, pty.openpty])
def test_a_command_goes_on_when_its_pipe_or_terminal_is_closed(
    opened: Callable[[], tuple[int, int]], way: str, tmp_path: Path
) -> None:
    ours, theirs = opened()
    process = start(way, tmp_path / "done", theirs)
    os.close(theirs)
    assert os.read(ours, 100)
    os.close(ours)
    assert process.wait(60) == 0
    assert (tmp_path / "done").exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("way", ["echo", "rich", "print"])
def test_a_full_disk_does_not_end_a_command_but_its_exit_code_says_so(way: str, tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, way, str(tmp_path / "done")], stdout=full, stderr=subprocess.PIPE,
            text=True, timeout=60, check=False,
        )  # fmt: skip
    assert (tmp_path / "done").exists()
    assert done.returncode == 1
    said = "error: the output is not complete: it could not be written (No space left on device)"
    assert done.stderr.splitlines() == [said]


class Closing(io.StringIO):
    """A stream that fails from its second line on."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def write(self, text: str) -> int:
        if "two" in text:
            raise OSError(self.number, os.strerror(self.number))
        return super().write(text)


def test_a_lasting_stream_keeps_what_was_written_and_its_first_error() -> None:
    stream = Closing(errno.EPIPE)
    lasting_stream = Lasting(stream)
    assert lasting_stream.write("one\n") == 4
    assert lasting_stream.write("two\n") == 4
    lasting_stream.writelines(["one", " more\n"])
    lasting_stream.flush()
    assert lasting_stream.lost is not None and lasting_stream.lost.errno == errno.EPIPE
    assert stream.getvalue() == "one\none more\n"
    assert not lasting_stream.isatty()


def test_errors_of_the_command_are_its_own() -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, "the command's own")

    before = sys.stdout, sys.stderr
    with pytest.raises(OSError, match="the command's own"):
        exits.run(fail)
    assert (sys.stdout, sys.stderr) == before
    with lasting() as streams:
        print("one")
        assert streams.missing() is None
