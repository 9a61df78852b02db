"""What the processes of a message use: memory, processes and disk, and whether a node allows that."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from confinement import no_dump
from fedstride.processes.forks import children, forked

from ..removal import opened

MOST_DEPTH = 64
"""Of folders in each other, below those in which an app writes."""

_BLOCK = 512  # bytes: the unit of st_blocks


class Limits(NamedTuple):
    """What the processes of one message may use together. None: not limited."""

    memory: int | None = None  # bytes; pages that several of them share count for each
    processes: int | None = None  # with their threads
    disk: int | None = None  # bytes of the folders in which they write
    files: int | None = None  # in these folders
    free: int | None = None  # bytes that must stay free on the disks of these folders


class Used(NamedTuple):
    """What processes use."""

    memory: int  # bytes: anonymous and shared pages, without the files that they map
    processes: int


def exceeded(limits: Limits, folders: Iterable[Path], supervisor: int | None) -> str:
    """The first limit that is exceeded, as the end of a sentence; empty if none is.

    `supervisor`: the process whose descendants count; None if there are none yet.
    """
    used = Used(0, 0) if supervisor is None else of_descendants(supervisor)
    if limits.memory is not None and used.memory > limits.memory:
        return f"it used more memory than this node allows ({_size(limits.memory)})"
    if limits.processes is not None and used.processes > limits.processes:
        return f"it had more processes and threads than this node allows ({limits.processes})"
    return _exceeded_on_disk(limits, list(folders))


def _exceeded_on_disk(limits: Limits, folders: list[Path]) -> str:
    if limits.free is not None and any(_free(folder) < limits.free for folder in folders):
        return f"less is free on the disk than this node demands ({_size(limits.free)})"
    if limits.disk is None and limits.files is None:
        return ""
    size = files = 0
    try:
        for about in _files(folders):
            size, files = size + about.st_blocks * _BLOCK, files + 1
            if limits.disk is not None and size > limits.disk:
                return f"its folders hold more than this node allows ({_size(limits.disk)})"
            if limits.files is not None and files > limits.files:
                return f"its folders hold more files than this node allows ({limits.files})"
    except OSError as error:  # what cannot be counted is too much
        return f"what is in its folders cannot be counted ({error.strerror or error})"
    return ""


def of_descendants(pid: int) -> Used:
    """What all processes use that this one has started, and those that they have started."""
    memory = processes = 0
    waiting = children(pid)
    while waiting:
        descendant = waiting.pop()
        waiting += children(descendant)
        status = _status(descendant)
        memory += 1024 * (status.get("RssAnon", 0) + status.get("RssShmem", 0))
        processes += status.get("Threads", 0)
    return Used(memory, processes)


def _status(pid: int) -> dict[str, int]:
    """The numbers in the status of a process, in kB where they are sizes. The name is one line there."""
    numbers: dict[str, int] = {}
    try:
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if (first := value.split()[:1]) and first[0].isdecimal():
                numbers.setdefault(name, int(first[0]))
    except OSError:
        return {}
    return numbers


def _files(folders: Iterable[Path]) -> Iterator[os.stat_result]:
    """The files and folders below these folders; links are not followed.

    Raises OSError for what cannot be counted: folders that are nested too deeply, or that cannot be listed.
    """
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):
            above = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                yield from _below(above, folder.name, MOST_DEPTH)
            finally:
                os.close(above)


def _below(above: int, name: str, depth: int) -> Iterator[os.stat_result]:
    """What is in a folder, by descriptors: paths may be longer than the system takes."""
    if depth == 0:
        raise OSError(errno.ELOOP, f"folders are nested deeper than {MOST_DEPTH}")
    folder = opened(above, name)
    if folder is None:
        return  # it is gone, or no folder any more
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    about = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield about
                if stat.S_ISDIR(about.st_mode):
                    yield from _below(folder, entry.name, depth - 1)
    finally:
        os.close(folder)


def _free(folder: Path) -> int:
    """The bytes that are free on a folder's disk for this user."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return 0
    return disk.f_bavail * disk.f_frsize


def sees_processes() -> bool:
    """Whether the use of confined processes can be seen here: /proc may hide them (ProtectProc=invisible)."""
    reading, writing = os.pipe()

    def body() -> None:
        no_dump()
        os.write(writing, b"x")
        signal.pause()

    pid = forked(body)
    try:
        os.close(writing)
        os.read(reading, 1)  # until it is as a confined process is
        return pid in children(os.getpid()) and "Threads" in _status(pid)
    finally:
        os.close(reading)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _size(size: int) -> str:
    return f"{size / 2**30:.3g} GiB"
