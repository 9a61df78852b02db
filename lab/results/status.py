"""Reads `status.json` and `fetched.json` of a run's folder, which anyone may have written, by their form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedstride.files import bounded_reading
from fedstride.plain_numbers import is_number
from server_app.records.row_values import is_round

Holds = Callable[[Any], bool]


def read_status(path: Path) -> dict[str, Any]:
    """What the file says of a run; empty if there is none. Raises OSError or ValueError if it cannot be read."""
    return _read(path, STATUS)


def read_fetched(path: Path) -> dict[str, Any]:
    """Where a fetched run comes from; as `read_status`."""
    return _read(path, FETCHED)


def _read(path: Path, form: Mapping[str, Holds]) -> dict[str, Any]:
    if not path.exists():
        return {}
    content = bounded_reading.from_json(bounded_reading.text(path, MOST))
    if not isinstance(content, dict):
        raise ValueError(f"{OTHER_FORM}: it is no mapping")
    wrong = [key for key, holds in form.items() if content.get(key) is not None and not holds(content[key])]
    if wrong:
        raise ValueError(f"{OTHER_FORM}: {wrong[0]} is of another kind")
    return content


MOST = 2**26
"""Bytes. `fetched.json` names each file of a folder, which may have 100,000."""

OTHER_FORM = "it does not have the form of a run's status"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _mapping(holds: Holds) -> Holds:
    return lambda value: isinstance(value, dict) and all(item is None or holds(item) for item in value.values())


def _is_hardware(value: Any) -> bool:
    gpus = value.get("gpus", []) if isinstance(value, dict) else None
    others = {key: item for key, item in value.items() if key != "gpus"} if isinstance(value, dict) else {}
    named = isinstance(gpus, list) and all(map(_is_text, gpus))
    return named and all(item is None or _is_text(item) or is_number(item) for item in others.values())


STATUS: dict[str, Holds] = {
    "state": _is_text,
    "reason": _is_text,
    "rounds": is_round,
    "started": _is_text,
    "seed": is_number,
    "subset": _is_text,
    "data": _is_text,
    "rows": is_number,
    "figures": _mapping(lambda value: isinstance(value, dict) and all(map(_is_text, value.values()))),
    "final": _mapping(lambda value: is_number(value) or isinstance(value, list)),
    "best": _mapping(is_number),
    "seconds": _mapping(is_number),
    "versions": _mapping(_is_text),
    "hardware": _is_hardware,
}
"""The values of `status.json`, each of which may be missing or null."""

FETCHED: dict[str, Holds] = {
    **dict.fromkeys(("run", "address", "folder", "fetched", "state", "reason"), _is_text),
    "files": _mapping(_is_text),
}
