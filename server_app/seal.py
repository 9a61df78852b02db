"""Digests of the lines of `metrics.jsonl` and `clients.jsonl`: each line has its own and that of the line before.

    {"round": 1, ..., "previous_sha256": "0f3c6b0e9a1d2b47", "sha256": "8a2e5c1f77d09b36"}

`sha256` is the beginning (64 bits) of the SHA-256 of everything in the line before `, "sha256"`. So each line can
be verified alone: a damaged line costs itself only. `previous_sha256` is covered by it and shows where a line is
missing. The digests find damage. They do not protect against someone who writes new ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedstride.reading import from_json

OWN, PREVIOUS = "sha256", "previous_sha256"
KEYS = (OWN, PREVIOUS)
"""The keys that are added to a row."""

DIGITS = 16


@dataclass(frozen=True)
class Line:
    """A line whose digest was verified."""

    row: dict[str, Any]  # without the two digests
    digest: str
    previous: str  # digest of the line before; empty if it is the first


def sealed(row: Mapping[str, Any], previous: str) -> str:
    """The row as a line of JSON in ASCII, without line break. Its keys are not `KEYS`; all values are JSON's."""
    body = json.dumps({**row, PREVIOUS: previous})[:-1]
    return body + _end(_digest(body.encode()))


def opened(content: bytes) -> Line | None:
    """The line with this content, without line break; None if it is not exactly what `sealed` wrote of a row.

    A row has a whole number `round`.
    """
    length = len(_end("0" * DIGITS))
    body, end = content[:-length], content[-length:]
    digest = _digest(body)
    if end != _end(digest).encode():
        return None
    try:
        row = from_json(body + b"}")
    except ValueError:  # somebody wrote it on purpose
        return None
    previous = row.pop(PREVIOUS, None) if isinstance(row, dict) else None
    if not isinstance(previous, str) or not isinstance(row.get("round"), int):
        return None
    return Line(row, digest, previous)


def chained(rows: Iterable[Mapping[str, Any]], previous: str = "") -> list[str]:
    """The rows as lines that follow each other; the first follows the line with the digest `previous`."""
    lines = []
    for row in rows:
        lines.append(sealed(row, previous))
        previous = digest_of(lines[-1])
    return lines


def digest_of(line: str) -> str:
    """The digest at the end of a line that `sealed` wrote."""
    return line[-DIGITS - len('"}') : -len('"}')]


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:DIGITS]


def _end(digest: str) -> str:
    return f', "{OWN}": "{digest}"}}'
