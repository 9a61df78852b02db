"""What leaves a node: the list in docs/security.md, and what a reply contains."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from flwr.app import Message

from fedstride.messages import wire
from fedstride.messages.records import array_records, config_records, metric_records

PAGE = Path(__file__).resolve().parents[2] / "docs/security.md"


def listed() -> Mapping[str, list[str]]:
    """The keys that may leave, by what asks for them, as regular expressions."""
    section = PAGE.read_text().partition("## What leaves a node\n")[2].partition("\n## ")[0]
    found: dict[str, list[str]] = {}
    when = ""
    for asks, keys in re.findall(r"^\|(.*?)\|(.*?)\|", section, re.MULTILINE)[2:]:
        when = asks.strip().strip("`") or when
        found.setdefault(when, []).extend(_pattern(key) for key in re.findall(r"`([^`]+)`", keys))
    assert len(found) > 5
    return found


def keys_in(reply: Message) -> set[str]:
    """All that a reply contains, by name: records of arrays, and the keys of all others."""
    found = set(array_records(reply.content))
    found |= set(array_records(reply.content).get(wire.CLASS_MOMENTS, ()))
    for records in (metric_records(reply.content), config_records(reply.content)):
        found |= {key for record in records.values() for key in record}
    return found


def _pattern(key: str) -> str:
    return "".join(".+" if part.isupper() else re.escape(part) for part in re.split(r"([A-Z]{4,})", key))
