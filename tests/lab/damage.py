"""Kinds of damage to the files of a run's folder: each is a function of one file."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from fedstride.files.chained_lines import chained, checked_line
from server_app.records.checkpoint import FILES, SUMS

Damage = Callable[[Path], None]
"""Changes one file."""

DEEP = 100_000
LONG_NUMBER = "9" * 5_000

WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**70,
    1e300,
    "text",
    "\x1b[2J\u202e",
    [],
    [1.5],
    [["x"]],
    {},
    {"a": [None]},
)
"""Values in place of any other."""


# ---------------------------------------------------------------- any file


def replaced(make: Callable[[Path], object]) -> Damage:
    """Something else in place of the file."""

    def act(path: Path) -> None:
        path.unlink()
        make(path)

    return act


def huge(path: Path) -> None:
    """A file of 64 GiB that takes no space."""
    with path.open("r+b") as file:
        file.truncate(2**36)


ANY_FILE: dict[str, Damage] = {
    "empty": lambda path: os.truncate(path, 0),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "zeros": replaced(lambda path: path.write_bytes(bytes(1_000))),
    "no text": replaced(lambda path: path.write_bytes(b"\xff\xfe\x80{]\n" * 50)),
    "a surrogate": replaced(lambda path: path.write_bytes(b"\xed\xa0\x80: \xed\xa0\x80\n")),
    "huge": huge,
    "a pipe": replaced(os.mkfifo),
    "a folder": replaced(Path.mkdir),
    "endless": replaced(lambda path: path.symlink_to("/dev/zero")),
    "a link to itself": replaced(lambda path: path.symlink_to(path.name)),
    "a link to nothing": replaced(lambda path: path.symlink_to("/nothing/there")),
    "gone": Path.unlink,
    "nested": replaced(lambda path: path.write_text("[" * DEEP)),
    "nested mappings": replaced(lambda path: path.write_text('{"a":' * DEEP)),
    "a number": replaced(lambda path: path.write_text(LONG_NUMBER)),
}


# ---------------------------------------------------------------- values in JSON and YAML


def places(value: Any, below: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of a tree are, the tree itself first; of a list only the first item."""
    yield below
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*below, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*below, 0))


def with_value(tree: Any, place: tuple[Any, ...], value: Any) -> Any:
    """The tree with another value at this place."""
    if not place:
        return value
    changed = copy.deepcopy(tree)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return changed


def named(place: tuple[Any, ...], value: Any) -> str:
    return f"{'.'.join(map(str, place)) or 'all'} = {str(value)[:20]!r}"


def in_json(path: Path) -> dict[str, Damage]:
    """Each value of a JSON file replaced by each wrong one, and the file by text that is hard to read."""
    tree = json.loads(path.read_text())
    found: dict[str, Damage] = {}
    for place in places(tree):
        for value in WRONG:
            text = json.dumps(with_value(tree, place, value))
            found[named(place, value)] = lambda path, text=text: _put(path, text)
        for number in ("NaN", "-Infinity", "1e999", LONG_NUMBER, "[" * 2_000 + "]" * 2_000):
            text = json.dumps(with_value(tree, place, "@@")).replace('"@@"', number)
            found[named(place, number)] = lambda path, text=text: _put(path, text)
    return found


def in_yaml(path: Path) -> dict[str, Damage]:
    """The same for a YAML file, with what only YAML has."""
    tree = yaml.safe_load(path.read_text())
    found: dict[str, Damage] = {}
    for place in places(tree):
        for value in WRONG:
            text = yaml.safe_dump(with_value(tree, place, value))
            found[named(place, value)] = lambda path, text=text: _put(path, text)
        for written in (
            ".nan",
            ".inf",
            LONG_NUMBER,
            "[" * 2_000 + "]" * 2_000,
            "!!python/name:os.system",
            "2001-99-99",
        ):
            text = yaml.safe_dump(with_value(tree, place, "AT_AT")).replace("AT_AT", written)
            found[named(place, written)] = lambda path, text=text: _put(path, text)
    text = path.read_text()
    for what, more in {
        "a key that is a list": "? [1, 2]\n: 3\n",
        "an anchor that grows": "".join(
            f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" if n else "a0: &a0 [1]\n" for n in range(40)
        ),
        "a key twice": "seed: 1\nseed: 2\n",
        "nested lines": "".join(f"{'  ' * n}a{n}:\n" for n in range(300)),
        "a binary": "x: !!binary 'a'\n",
        "a merge": "<<: {seed: 3}\n",
        "a control character": "x: \x1b[2J\n",
        "two documents": "---\nseed: 3\n",
        "nested flow": "x: " + "{a: " * 5_000 + "1" + "}" * 5_000 + "\n",
    }.items():
        found[what] = lambda path, text=text + more: _put(path, text)
    return found


def in_lines(path: Path) -> dict[str, Damage]:
    """Each value of a line replaced by each wrong one, with a right digest: whoever writes the folder can."""
    rows = [line.row for piece in path.read_bytes().splitlines() if (line := checked_line(piece)) is not None]
    found: dict[str, Damage] = {}
    for key in rows[-1]:
        for value in (*WRONG, [1, "x", None, []]):
            changed = [*rows[:-1], {**rows[-1], key: value}]
            found[named((key,), value)] = lambda path, rows=changed: _put(path, _chain(rows))
        gone = [*rows[:-1], {k: v for k, v in rows[-1].items() if k != key}]
        found[f"{key} is missing"] = lambda path, rows=gone: _put(path, _chain(rows))
        for number in ("NaN", "1e999", LONG_NUMBER, "[" * 2_000 + "]" * 2_000):
            found[named((key,), number)] = lambda path, key=key, number=number: _put(
                path, _chain_with(rows, key, number)
            )
    found |= {
        "a key of many letters": lambda path: _put(path, _chain([*rows, {**rows[-1], "x" * 100_000: 1}])),
        "many keys": lambda path: _put(
            path, _chain([{**rows[-1], **{f"norms/N/{n}": 1.0 for n in range(5_000)}}])
        ),
        "many rounds": lambda path: _put(path, _chain([{**rows[-1], "round": n} for n in range(5_000)])),
        "rounds that go back": lambda path: _put(path, _chain(rows[::-1])),
        "the same round": lambda path: _put(path, _chain([rows[-1], rows[-1]])),
        "a far round": lambda path: _put(path, _chain([*rows, {**rows[-1], "round": 10**15}])),
    }
    return found


def _chain(rows: list[dict[str, Any]]) -> str:
    return "".join(line + "\n" for line in chained(rows))


def _chain_with(rows: list[dict[str, Any]], key: str, written: str) -> str:
    """The rows, with this text in place of a value of the last one."""
    line = chained([{**rows[-1], key: "@@"}])[-1].replace('"@@"', written)
    body = line[: line.rindex(', "sha256"')]
    return body + f', "sha256": "{hashlib.sha256(body.encode()).hexdigest()[:16]}"}}\n'


def _put(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)


# ---------------------------------------------------------------- by file


def kinds(path: Path) -> dict[str, Damage]:
    """All kinds of damage for this file, by what they are."""
    special = {".json": in_json, ".yaml": in_yaml, ".jsonl": in_lines}.get(path.suffix)
    return ANY_FILE | ({} if special is None else special(path))


def summed_again(checkpoint: Path) -> None:
    """Make the digests of a checkpoint right, as whoever changed one of its files can."""
    if all((checkpoint / name).is_file() and (checkpoint / name).stat().st_size < 2**30 for name in FILES):
        lines = [f"{hashlib.sha256((checkpoint / name).read_bytes()).hexdigest()}  {name}\n" for name in FILES]
        (checkpoint / SUMS).write_text("".join(lines))
