"""Lines of JSON that are chained by SHA-256: the records of a run, and the log of a node. Pure, without files.

    {"round": 1, ..., "previous_sha256": "0f3c...", "sha256": "8a2e..."}
    {"number": 7, ..., "previous_sha256": "51d0...", "sha256": "c97b...", "signature": "MGUC..."}

`sha256` is the digest of everything in the line before `, "sha256"`, in hexadecimal digits. `previous_sha256` is
the digest of the line before, and empty in the first line. A digest therefore covers its line, and through the
line before it all lines before, with their order. A damaged line costs itself only: each line is verified alone,
and what follows it still shows where it belongs.

`signature`, which a line may have, is made from the digest. So a signature covers its line and all lines before,
and nothing else needs to be in it: numbers, times, and what tells one file from another are in the lines.

What a chain without signatures proves: nothing is damaged by accident. Who may write to the file can write all of
it anew. Who has kept the newest digest elsewhere notices that, and every change and removal up to this line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .bounded_reading import from_json

OWN, PREVIOUS, SIGNATURE = "sha256", "previous_sha256", "signature"
KEYS = (OWN, PREVIOUS, SIGNATURE)
"""The keys that are added to a row."""

_MARK = f', "{OWN}": "'
_END = re.compile(rf'([0-9a-f]{{64}})"(?:, "{SIGNATURE}": "([A-Za-z0-9+/=]{{1,400}})")?}}'.encode())

Sign = Callable[[str], str]
"""Makes the signature of a digest, in the characters of base64."""


@dataclass(frozen=True)
class ChainedLine:
    """A line whose digest was verified; its signature was not."""

    row: dict[str, Any]  # without what the chain adds
    digest: str
    previous: str  # digest of the line before; empty if it is the first
    signature: str = ""  # empty: none


def line_of(row: Mapping[str, Any], previous: str, sign: Sign | None = None) -> str:
    """The row as a line of JSON in ASCII, without line break. Its keys are not `KEYS`; all values are JSON's."""
    body = json.dumps({**row, PREVIOUS: previous})[:-1]
    digest = _digest(body.encode())
    signature = "" if sign is None else f', "{SIGNATURE}": "{sign(digest)}"'
    return f'{body}{_MARK}{digest}"{signature}}}'


def checked_line(content: bytes) -> ChainedLine | None:
    """The line with this content, without line break; None if it is not exactly what `line_of` wrote of a row."""
    body, mark, rest = content.rpartition(_MARK.encode())
    end = _END.fullmatch(rest)
    if not mark or end is None or end[1].decode() != _digest(body):
        return None
    try:
        row = from_json(body + b"}")
    except ValueError:  # somebody wrote it on purpose
        return None
    previous = row.pop(PREVIOUS, None) if isinstance(row, dict) else None
    return (
        ChainedLine(row, end[1].decode(), previous, (end[2] or b"").decode())
        if isinstance(previous, str)
        else None
    )


def chained(rows: Iterable[Mapping[str, Any]], previous: str = "") -> list[str]:
    """The rows as lines that follow each other; the first follows the line with the digest `previous`."""
    lines = []
    for row in rows:
        lines.append(line_of(row, previous))
        previous = digest_of(lines[-1])
    return lines


def digest_of(line: str) -> str:
    """The digest in a line that `line_of` wrote."""
    return line.rpartition(_MARK)[2][:64]


def once(lines: Iterable[ChainedLine | None]) -> list[ChainedLine | None]:
    """The same lines, with None for one that is there already: a repeated line is not a second row."""
    seen: set[str] = set()
    distinct: list[ChainedLine | None] = []
    for line in lines:
        distinct.append(None if line is None or line.digest in seen else line)
        seen |= set() if line is None else {line.digest}
    return distinct


def follow(lines: Sequence[ChainedLine | None]) -> list[bool]:
    """For each line of a file whether it follows the line before it, or the beginning.

    None is a damaged line; of what comes after it, nothing is said.
    """
    follows = []
    newest: str | None = ""
    for line in lines:
        follows.append(line is None or newest is None or line.previous == newest)
        newest = None if line is None else line.digest
    return follows


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
