"""Lines with digests: what verifies, what does not, and what is said about it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstride.files.chained_lines import KEYS, chained, checked_line, digest_of, line_of
from server_app.records.line_files import find_lines, read_lines

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
ROWS = st.dictionaries(
    st.text(max_size=8).filter(lambda name: name not in ("round", *KEYS)),
    VALUES | st.lists(VALUES, max_size=3),
    max_size=4,
).flatmap(lambda row: st.integers(0, 9).map(lambda number: {"round": number, **row}))

SMALL = [
    {"round": 0, "test/accuracy": 0.1},
    {"round": 1, "test/accuracy": 0.5, "fedalr/eta": [0.25, 1e-9], "train/loss": None},
    {"round": 2, "test/accuracy": 0.75},
]
CLIENTS = [
    {"round": 1, "client": 0, "status": "used", "norm": 1.5},
    {"round": 1, "client": 1, "status": "rejected", "reason": 'NaN in "fc1" ä'},
    {"round": 2, "client": 0, "status": "no reply", "reason": "no reply in time"},
]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(line + "\n" for line in chained(rows)))
    return path


def test_the_digests_are_those_of_the_docs() -> None:
    first, second = chained([{"round": 0, "a": 1.5}, {"round": 1}])
    body = '{"round": 0, "a": 1.5, "previous_sha256": ""'
    own = hashlib.sha256(body.encode()).hexdigest()
    assert first == f'{body}, "sha256": "{own}"}}'
    assert json.loads(second)["previous_sha256"] == own == digest_of(first)


@pytest.mark.slow
@given(st.lists(ROWS, max_size=4))
def test_what_was_sealed_is_read_again(rows: list[dict[str, Any]]) -> None:
    lines = chained(rows)
    read = [checked_line(line.encode()) for line in lines]
    assert [line.row for line in read if line] == rows
    assert [line.previous for line in read if line] == ["", *map(digest_of, lines)][: len(rows)]
    assert all("\n" not in line and line.isascii() for line in lines)


def test_pandas_reads_the_lines(tmp_path: Path) -> None:
    frame = pd.read_json(written(tmp_path / "metrics.jsonl", SMALL), lines=True)
    assert list(frame["test/accuracy"]) == [0.1, 0.5, 0.75]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [SMALL, CLIENTS], ids=["metrics", "clients"])
def test_every_flipped_bit_is_noticed(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    """A flip costs the line that it is in; one in a line break also costs the next line."""
    path = written(tmp_path / "lines.jsonl", rows)
    content = path.read_bytes()
    for place in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        found = find_lines(path)
        assert found.fault is not None, place
        lost = [row for row in rows if row not in found.rows]
        assert len(lost) == 1 + (content[place // 8 : place // 8 + 1] == b"\n" and place // 8 < len(content) - 1)
        assert [row for row in rows if row not in lost] == found.rows
    assert place > 2_500


@pytest.mark.parametrize(
    ("order", "rows", "gaps"),
    [
        ([0, 1, 2], [0, 1, 2], []),
        ([0, 2], [0, 2], ["line 2 (round 2)"]),
        ([1, 2], [1, 2], ["line 1 (round 1)"]),
        ([1, 0, 2], [1, 0, 2], ["line 1 (round 1)", "line 2 (round 0)", "line 3 (round 2)"]),
        ([0, 1, 1, 2], [0, 1, 2], []),
    ],
)
def test_missing_exchanged_and_repeated_lines_are_noticed(
    tmp_path: Path, order: list[int], rows: list[int], gaps: list[str]
) -> None:
    path, lines = tmp_path / "metrics.jsonl", chained(SMALL)
    path.write_text("".join(lines[number] + "\n" for number in order))
    found = find_lines(path)
    assert found.rows == [SMALL[number] for number in rows]
    assert found.gaps == gaps
    assert (found.fault is None) == (order == [0, 1, 2])
    assert found.damaged == (["line 3 (after round 1)"] if order == [0, 1, 1, 2] else [])


def test_a_line_that_is_being_written_is_no_damage(tmp_path: Path) -> None:
    path = written(tmp_path / "metrics.jsonl", SMALL)
    content = path.read_bytes()
    start = len("".join(line + "\n" for line in chained(SMALL[:2])))
    for end in range(start, len(content)):
        path.write_bytes(content[:end])
        found = find_lines(path)
        assert (found.rows, found.fault) == (SMALL[:2], None)


def with_digest(body: str) -> bytes:
    return (body + f', "sha256": "{hashlib.sha256(body.encode()).hexdigest()}"}}').encode()


FOREIGN = [
    *("[1", '{"round": 1', '{"previous_sha256": ""', '{"round": "1", "previous_sha256": ""', "[" * 9999),
    *('{"round": 1, "previous_sha256": 7', f'{{"round": {"9" * 5000}, "previous_sha256": ""'),
]


@pytest.mark.parametrize(
    "line", [b"", b"no json", b'{"round": 1}', b"\xff\xfe[]", *map(with_digest, FOREIGN)], ids=range(11)
)
def test_a_line_that_is_no_row_does_not_verify(tmp_path: Path, line: bytes) -> None:
    """Also if somebody computed its digest."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line + b"\n")
    assert (find_lines(path).lines, find_lines(path).damaged) == ([], ["line 1"])


def test_damage_is_one_line_with_file_places_and_numbers(tmp_path: Path) -> None:
    lines = chained([{"round": number} for number in range(10)])
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join((line if number < 5 else "x") + "\n" for number, line in enumerate(lines)))
    assert find_lines(path).fault == (
        f"{path} is damaged: 5 of 10 lines do not have their digest: line 6 (after round 4), "
        "line 7 (after round 4), line 8 (after round 4) and 2 more"
    )
    assert read_lines(path) == [{"round": number} for number in range(5)]
    assert read_lines(tmp_path / "nothing.jsonl") == []


def test_a_line_follows_a_line(tmp_path: Path) -> None:
    """A resumed run appends to the lines that it found."""
    first = line_of(SMALL[0], "")
    assert [first, *chained(SMALL[1:], digest_of(first))] == chained(SMALL)


def test_rows_that_are_written_anew_verify_but_not_with_a_digest_that_somebody_has_kept(tmp_path: Path) -> None:
    """Nothing signs the records of a run; a checkpoint, and who has noted it, have the newest digest."""
    kept = digest_of(chained(SMALL)[-1])
    better = [row | {"test/accuracy": 0.99} for row in SMALL]
    for rows in (better, [*SMALL[:2], better[2]], SMALL[:2]):
        found = find_lines(written(tmp_path / "metrics.jsonl", rows))
        assert found.fault is None and found.rows == rows
        assert kept not in {line.digest for line in found.lines}
