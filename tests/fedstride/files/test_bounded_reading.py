"""Files and texts that anyone may have written: a value within bounds, or one error of a known kind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstride.files.bounded_reading import content, from_json, text


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Path.mkdir, "Is a directory"),
        (os.mkfifo, "it is not a file"),
        (lambda path: path.symlink_to("/dev/zero"), "it is not a file"),
        (lambda path: path.symlink_to(path.name), "symbolic links"),
        (lambda path: path.symlink_to("/nothing/there"), "No such file"),
        (lambda path: path.write_bytes(bytes(101)), "it has 101 bytes, at most 100 are read"),
    ],
)
def test_what_is_no_file_of_an_allowed_size_is_an_error(
    tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    make(tmp_path / "x")
    with pytest.raises(OSError, match=why):
        content(tmp_path / "x", 100)


def test_a_file_that_no_memory_holds_is_an_error(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(2**42)
    with pytest.raises(OSError, match="it has 4398046511104 bytes"):
        content(tmp_path / "x")


def test_bytes_and_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes("ä\n".encode())
    assert content(tmp_path / "x") == b"\xc3\xa4\n" and text(tmp_path / "x") == "ä\n"
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="it is not text"):
        text(tmp_path / "x")


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("[" * 100_000, "it is nested more than 40 times"),
        ('{"a":' * 900 + "1" + "}" * 900, "it is nested more than 40 times"),
        ("9" * 5_000, "it is not JSON"),
        ("1" + "0" * 400, "a whole number that is too large"),
        ("[NaN]", "a number that is not finite"),
        ('{"a": -1e999}', "a number that is not finite"),
        (b"\xff\xff", "it is not JSON"),
        ("", "it is not JSON"),
    ],
)
def test_json_that_others_do_not_read_is_an_error(written: str | bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        from_json(written)


@given(st.binary(max_size=60) | st.text(alphabet='[]{}",:0123456789.eE-+naNtrufalsI \\u', max_size=60))
def test_any_text_is_a_value_or_a_value_error(written: str | bytes) -> None:
    with contextlib.suppress(ValueError):
        from_json(written)
