"""What the processes of a message use: memory, processes and disk, and whether a node allows that."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_BLOCK = 512  # bytes: the unit of st_blocks


class Limits(NamedTuple):
    """What the processes of one message may use together. None: not limited."""

    memory: int | None = None  # bytes; pages that several of them share count for each
    processes: int | None = None  # with their threads
    disk: int | None = None  # bytes of the folders in which they write
    files: int | None = None  # in these folders


class Used(NamedTuple):
    """What processes use."""

    memory: int  # bytes: anonymous and shared pages, without the files that they map
    processes: int


def exceeded(limits: Limits, folders: Iterable[Path], minder: int | None) -> str:
    """The first limit that is exceeded, as the end of a sentence; empty if none is.

    `minder`: the process whose descendants count; None if there are none yet.
    """
    used = Used(0, 0) if minder is None else of_descendants(minder)
    if limits.memory is not None and used.memory > limits.memory:
        return f"it used more memory than this node allows ({_size(limits.memory)})"
    if limits.processes is not None and used.processes > limits.processes:
        return f"it had more processes and threads than this node allows ({limits.processes})"
    if limits.disk is None and limits.files is None:
        return ""
    size = files = 0
    for about in _files(folders):
        size, files = size + about.st_blocks * _BLOCK, files + 1
        if limits.disk is not None and size > limits.disk:
            return f"its folders hold more than this node allows ({_size(limits.disk)})"
        if limits.files is not None and files > limits.files:
            return f"its folders hold more files than this node allows ({limits.files})"
    return ""


def of_descendants(pid: int) -> Used:
    """What all processes use that this one has started, and those that they have started."""
    memory = processes = 0
    waiting = children(pid)
    while waiting:
        each = waiting.pop()
        waiting += children(each)
        found = _status(each)
        memory += 1024 * (found.get("RssAnon", 0) + found.get("RssShmem", 0))
        processes += found.get("Threads", 0)
    return Used(memory, processes)


def _status(pid: int) -> dict[str, int]:
    """The numbers in the status of a process, in kB where they are sizes. The name is one line there."""
    found: dict[str, int] = {}
    try:
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if (first := value.split()[:1]) and first[0].isdecimal():
                found.setdefault(name, int(first[0]))
    except OSError:
        return {}
    return found


def children(pid: int) -> list[int]:
    """The process ids of the children of a process, which any of its threads may have started."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    except (OSError, ValueError):
        return found
    return found


def _files(folders: Iterable[Path]) -> Iterator[os.stat_result]:
    """The files and folders below these folders; links are not followed."""
    waiting = [str(each) for each in folders]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    about = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(about.st_mode):
                        waiting.append(entry.path)
                    yield about
        except OSError:
            continue


def _size(size: int) -> str:
    return f"{size / 2**30:.3g} GiB"
