"""Hands over the files of a run's folder in one stream, with their sizes and SHA-256."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs

PIECE = 2**20
MOST_FILES, MOST_DEPTH = 100_000, 16
AT_ONCE = 4
"""Streams at the same time."""

LEFT_OUT = ("checkpoint", "clients")
"""Folders of a run that only resuming it needs."""

CONFIG = "config.yaml"
"""What the folder of a run always has."""

FORM = b"application/octet-stream"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Send = Callable[[dict[str, Any]], Awaitable[None]]


class NotARunError(Exception):
    """There is no run's folder at this path, or it cannot be handed over."""


class Files:
    """An ASGI application that answers `?folder=PATH&all=0` with the files of a run's folder below `runs`.

    For each file: a line with its name and size, its bytes, a line with their SHA-256. At last a line with the
    SHA-256 of all these. A stream without this line is not whole. Links are left out, and so are hidden files and,
    without `all`, the folders `LEFT_OUT`.
    """

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._free = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Answer one request."""
        asked = parse_qs(scope["query_string"].decode("ascii", "replace"))
        left_out = () if asked.get("all") == ["1"] else LEFT_OUT
        async with self._free:
            try:
                folder = opened(self._runs, asked.get("folder", [""])[0])
            except NotARunError as error:
                await _whole(send, 404, json.dumps({"detail": str(error)}).encode())
                return
            try:
                await _stream(folder, left_out, send)
            finally:
                os.close(folder)


def opened(runs: Path, name: str) -> int:
    """A descriptor of the run's folder at this path. Raises NotARunError."""
    refused = NotARunError(f"{name!r} is not the folder of a run below {runs} on the SuperLink's machine")
    path = PurePosixPath(name)
    if not path.is_relative_to(runs) or ".." in path.parts or path == PurePosixPath(runs) or "\0" in name:
        raise refused
    try:
        folder = os.open(runs, _FOLDER)
        for part in path.relative_to(runs).parts:
            above, folder = folder, _below(folder, part)
            os.close(above)
        os.close(os.open(CONFIG, _FILE, dir_fd=folder))
    except OSError:
        raise refused from None
    return folder


def _below(folder: int, part: str) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=folder)
    except OSError:
        os.close(folder)
        raise


async def _stream(folder: int, left_out: tuple[str, ...], send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", FORM)]})
    sums = hashlib.sha256()
    for name, file in files(folder, left_out):
        with os.fdopen(file, "rb", buffering=0) as content:
            size = os.fstat(file).st_size
            await _piece(send, _line({"file": name, "size": size}))
            digest = hashlib.sha256()
            left = size
            while left:
                piece = await asyncio.to_thread(content.read, min(PIECE, left))
                if not piece:
                    raise NotARunError(
                        f"{name} became shorter while it was read"
                    )  # the stream ends without its end
                digest.update(piece)
                await _piece(send, piece)
                left -= len(piece)
        sums.update(digest.digest())
        await _piece(send, _line({"sha256": digest.hexdigest()}))
    await _piece(send, _line({"end": sums.hexdigest()}), last=True)


def files(folder: int, left_out: tuple[str, ...], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, int]]:
    """The names of all files, and their opened descriptors; without links, hidden files and deeper folders."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        if name.startswith(".") or (not prefix and name in left_out) or not name.isprintable():
            continue
        with contextlib.suppress(OSError):
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(about.st_mode):
                yield f"{prefix}{name}", os.open(name, _FILE, dir_fd=folder)
            elif stat.S_ISDIR(about.st_mode) and depth < MOST_DEPTH:
                below = os.open(name, _FOLDER, dir_fd=folder)
                try:
                    yield from files(below, left_out, f"{prefix}{name}/", depth + 1)
                finally:
                    os.close(below)


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values).encode() + b"\n"


async def _piece(send: Send, content: bytes, last: bool = False) -> None:
    await send({"type": "http.response.body", "body": content, "more_body": not last})


async def _whole(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
