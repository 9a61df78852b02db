"""Landlock's rights: which of them a path gets, by the version of the kernel's Landlock. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

KNOWN = 7
"""The newest version of Landlock that this package was written for."""

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in range(13, 16))
SINCE = {REFER: 2, TRUNCATE: 3, IOCTL_DEV: 5}
"""The version that brought a right; the others are as old as Landlock."""

OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""The only rights that a rule about a file may have."""

BIND_TCP, CONNECT_TCP = 1, 2
ABSTRACT_SOCKETS, SIGNALS = 1, 2

Kind = Literal["read", "write", "device", "list", "threads"]
RIGHTS: dict[Kind, int] = {
    "read": EXECUTE | READ_FILE | READ_DIR,
    "write": READ_FILE | WRITE_FILE | TRUNCATE | READ_DIR | MAKE_REG | MAKE_DIR | REMOVE_DIR | REMOVE_FILE | REFER,
    "device": READ_FILE | WRITE_FILE | IOCTL_DEV,
    "list": READ_DIR,
    "threads": READ_DIR | WRITE_FILE | TRUNCATE,
}
"""Kind of a rule -> rights. No kind can make links, pipes, sockets or devices, and what can be written cannot be
executed: whoever reads a writable folder afterwards finds regular files and folders only."""


@dataclass(frozen=True)
class PathRule:
    """A path and what may be done with it and with all below it."""

    path: Path
    kind: Kind


def handled(landlock: int) -> int:
    """All rights of files that this version knows: what no rule gives is refused."""
    return sum(1 << bit for bit in range(16) if SINCE.get(1 << bit, 1) <= landlock)


def rights(kind: Kind, folder: bool, landlock: int) -> int:
    """The rights of a rule of this kind about a folder or a file, as far as this version knows them."""
    return RIGHTS[kind] & handled(landlock) & (handled(landlock) if folder else OF_FILES)


def ruleset(landlock: int) -> bytes:
    """`struct landlock_ruleset_attr`: everything that this version can refuse.

    From version 4 it has the network, from version 6 what reaches out of the domain: signals and abstract sockets.
    """
    fields = [handled(landlock)]
    fields += [BIND_TCP | CONNECT_TCP] if landlock >= 4 else []
    fields += [ABSTRACT_SOCKETS | SIGNALS] if landlock >= 6 else []
    return struct.pack(f"={len(fields)}Q", *fields)


def ruleset_of_signals() -> bytes:
    """The attribute of a domain that refuses nothing but signals out of it (version 6)."""
    return struct.pack("=3Q", 0, 0, SIGNALS)


def own_threads(pid: int) -> PathRule:
    """The rule with which a process may name its threads, by the entries of each in /proc.

    A thread does not exist yet, so a rule cannot name the one entry. The others can be written, too: they change
    the process itself, which cannot undo what confines it, and none can be read.
    """
    return PathRule(Path("/proc") / str(pid) / "task", "threads")


def own(pid: int) -> tuple[PathRule, ...]:
    """Rules for what every process needs: its own entries of /proc, /dev/null, and random numbers.

    Not the whole folder in /proc: it has the host's connections and mounts. `task` has them again below each
    thread, so it can be listed and nothing in it be read; `fd` gives what was opened already, so names suffice.
    """
    mine = Path("/proc") / str(pid)
    read = [mine / name for name in ("maps", "status", "stat", "statm")]
    return (
        *(PathRule(path, "read") for path in (*read, Path("/dev/urandom"), Path("/dev/random"))),
        *(PathRule(mine / name, "list") for name in ("fd", "task")),
        PathRule(Path("/dev/null"), "write"),
    )
