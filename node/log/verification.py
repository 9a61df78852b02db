"""What a node's log is worth: which of its lines are proven, what is wrong with it, and what it does not prove.

A signature covers its line and all lines before (`fedstride/files/chained_lines.py`), so it is looked at only
where no other line follows. A line that somebody without the key has appended, or a log that he has written
anew, has none.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedstride.files.chained_lines import ChainedLine, checked_line, follow, once

from .log_file import CLOCK_STEP, LogHead, files, head_of, is_before, number_of, parsed, pieces_of

if TYPE_CHECKING:
    from ..keys import PublicKey


@dataclass
class Checked:
    """What was found. `lines`: those that are as they were written, without those whose signature is wrong."""

    lines: list[ChainedLine] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    keys: Sequence[PublicKey] = ()  # that were given

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What the lines say."""
        return [line.row for line in self.lines]

    @property
    def head(self) -> LogHead | None:
        """The newest line."""
        return LogHead(number_of(self.lines[-1]), self.lines[-1].digest) if self.lines else None


def read(path: Path, keys: Sequence[PublicKey] = (), kept: LogHead | None = None) -> Checked:
    """Read and verify a log with all its files, and its head. Raises OSError if one of them cannot be read.

    `keys`: of the node; without one, signatures are not looked at. `kept`: a head of it that was kept elsewhere.
    """
    places = [
        (f"{file.name}, line {number}", piece)
        for file in files(path)
        for number, piece in enumerate(pieces_of(file), start=1)
    ]
    lines = once(checked_line(piece) for _, piece in places)
    checked = Checked(keys=keys)
    refused = _refused([line for line in lines if line is not None], {key.id: key for key in keys})
    named: list[tuple[str, str]] = []  # a place, and what is wrong with its line
    for (where, piece), line in zip(places, lines, strict=True):
        if line is None:
            named.append((where, "it is there twice" if checked_line(piece) else "it is not as it was written"))
        elif line.digest in refused:
            named.append((where, refused[line.digest]))
    checked.faults += _in_ranges(named)
    rest = [None if line is None or line.digest in refused else line for line in lines]
    checked.lines = [line for line in rest if line is not None]
    _follow(checked, [where for where, _ in places], rest)
    _compare(checked, path, kept, refused)
    return checked


def _refused(lines: list[ChainedLine], keys: Mapping[str, PublicKey]) -> dict[str, str]:
    """The digests of lines that a key should have signed, and did not, with what is wrong."""
    are_signed = any(line.signature for line in lines)
    by_digest = {line.digest: line for line in lines}
    followers = Counter(line.previous for line in lines)
    refused: dict[str, str] = {}
    last = [line for line in lines if not followers[line.digest]]
    while last:
        line = last.pop()
        if fault := _fault(line, keys, are_signed):
            refused[line.digest] = fault
            followers[line.previous] -= 1
            if line.previous in by_digest and not followers[line.previous]:
                last.append(by_digest[line.previous])
    return refused


def _fault(line: ChainedLine, keys: Mapping[str, PublicKey], are_signed: bool) -> str:
    """What is wrong with the signature of a line that no other one follows; empty if nothing."""
    if not line.signature:
        return "it is not signed" if keys else "it is not signed, but others are" if are_signed else ""
    name = str(line.row.get("key"))[:16]
    if not keys:
        return ""
    if name not in keys:
        return f"it is signed with another key ({name}) than those given with --key"
    return "" if keys[name].has_signed(line.digest, line.signature) else f"it is not signed by the key {name}"


def _follow(checked: Checked, places: Sequence[str], lines: Sequence[ChainedLine | None]) -> None:
    """Compare each line with the one before it: digest, number and time."""
    before: ChainedLine | None = None
    for where, line, follows in zip(places, lines, follow(lines), strict=True):
        if line is None:
            continue
        last, number = 0 if before is None else number_of(before), number_of(line)
        if not follows or number != last + 1:
            checked.faults.append(
                f"{where}: it has number {number} and follows number {last}; lines are missing, added or "
                "exchanged before it"
            )
        if missing := line.row.get("missing"):
            what = ".head was missing" if missing == "head" else f"the line {missing} was missing"
            checked.faults.append(f"{where}: when the node went on here, {what}: somebody has removed it")
        if before is not None:
            _compare_times(checked, where, before, line)
        before = line


def _compare_times(checked: Checked, where: str, before: ChainedLine, line: ChainedLine) -> None:
    then, now = before.row.get("time"), line.row.get("time")
    if is_before(now, then):
        if line.row.get("clock_before") == then:
            checked.remarks.append(f"{where}: the node's clock was set back, from {then} to {now}")
        else:
            checked.faults.append(
                f"{where}: its time {now} is more than {CLOCK_STEP:g} s before that of the line before, {then}"
            )


def _compare(checked: Checked, path: Path, kept: LogHead | None, refused: Mapping[str, str]) -> None:
    """Compare with the head, which a crash may have left one line behind, and with a head that was kept."""
    numbers = {line.digest: number_of(line) for line in checked.lines}
    last = 0 if checked.head is None else checked.head.number
    head = _head(path)
    if head is None:
        if last > 1 or not head_of(path).exists():
            checked.faults.append(
                f"{head_of(path).name} is missing or damaged, so lines that are cut off at the end are not noticed"
            )
    elif head.digest not in numbers:
        if head.digest not in refused:
            checked.faults.append(
                f"{path.name}: the last line is number {last}, but number {head.number} was written; lines are "
                "missing at the end"
                if head.number > last
                else f"{path.name}: line number {head.number} is not the one that was written"
            )
    elif last - head.number > 1 and not checked.keys:
        checked.faults.append(f"{path.name}: {last - head.number} lines were added after number {head.number}")
    if kept is not None and numbers.get(kept.digest) != kept.number:
        checked.faults.append(
            f"{path.name}: the line {kept} that was kept is not in it; lines were removed or changed, or it is "
            "another log"
        )


def _head(path: Path) -> LogHead | None:
    try:
        content = pieces_of(head_of(path))
    except FileNotFoundError:
        return None
    return parsed(content[0].decode(errors="replace")) if len(content) == 1 else None


def _in_ranges(named: Sequence[tuple[str, str]]) -> list[str]:
    """One text for places after each other with the same fault."""
    texts = []
    for fault, group in itertools.groupby(named, key=lambda pair: pair[1]):
        places = [where for where, _ in group]
        where = places[0] if len(places) == 1 else f"{places[0]} to {places[-1]}"
        texts.append(f"{where}: {fault}")
    return texts


# ---------------------------------------------------------------- in words


def in_words(checked: Checked) -> list[str]:
    """What a log without faults proves, and what not, in sentences."""
    if checked.head is None:
        return ["it has no lines"]
    number, first = checked.head.number, _first_signed(checked)
    span = f"lines 1 to {number}, {checked.rows[0].get('time')} to {checked.rows[-1].get('time')}"
    words = [f"verified: no line is missing or changed ({span})"]
    if checked.keys:
        words.append(
            f"proven: a holder of the key has written lines {first} to {number} in this order, and none between "
            "them is missing"
        )
        if first > 1:
            words.append(
                f"lines 1 to {first - 1} were there when the key signed line {first}; who wrote them is open"
            )
        rest = "that the holder of the key did not write another log"
    elif any(line.signature for line in checked.lines):
        words.append("signatures were not looked at: give the node's public key, as in --key hospital-a.pub")
        rest = "who wrote the lines"
    else:
        words.append("the lines are not signed: the node had no registered key")
        rest = "who wrote the lines: who may write to the file can write all of them"
    words.append(
        f"not proven: {rest}; that no line after number {number} was removed; that the clock of the node was right"
    )
    return words


def _first_signed(checked: Checked) -> int:
    ids = {key.id for key in checked.keys}
    return next((number_of(line) for line in checked.lines if line.signature and line.row.get("key") in ids), 0)
