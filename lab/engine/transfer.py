"""Sends a Python value to another process of this machine; what is large goes through memory that both share.

Bytes of a Flower array are large. Values are pickled, so both ends must be the same program.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import socket
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flwr.app import Array

HEAD = struct.Struct("!QQ")  # bytes of the pickled value, bytes of shared memory


class SharedMemory:
    """Bytes that other processes can read: those of some buffers, in a row. Freed with its last user."""

    def __init__(self, buffers: Sequence[memoryview]) -> None:
        self.size = sum(buffer.nbytes for buffer in buffers)
        self.file = _anonymous_file()
        try:
            os.ftruncate(self.file, self.size)
            _write(self.file, buffers)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give up this process's hold; a second call does nothing."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True)
class Parcel:
    """A value that is ready to be sent, more than once if need be."""

    head: bytes
    memory: SharedMemory | None


class Apart(NamedTuple):
    """A value as pickled bytes without its large arrays, and these."""

    head: bytes
    buffers: list[memoryview]

    @property
    def key(self) -> tuple[int, ...]:
        """The same for values with the same arrays, as long as these exist."""
        return tuple(id(buffer.obj) for buffer in self.buffers)


def taken_apart(value: Any) -> Apart:
    """A value without its large arrays, and these, not copied."""
    buffers: list[memoryview] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=lambda buffer: buffers.append(buffer.raw())).dump(value)
    return Apart(stream.getvalue(), buffers)


def put_together(head: bytes, buffers: Sequence[bytes]) -> Any:
    """The value that was taken apart."""
    return pickle.loads(head, buffers=buffers)


class Packer:
    """Packs values. Those with the same large arrays, such as a round's messages, share one copy of them.

    The values must stay unchanged as long as this object is used.
    """

    def __init__(self) -> None:
        self._copies: dict[tuple[int, ...], tuple[Apart, SharedMemory]] = {}

    def pack(self, value: Any) -> Parcel:
        """A parcel of this value."""
        apart = taken_apart(value)
        sizes = [buffer.nbytes for buffer in apart.buffers]
        head = pickle.dumps((sizes, apart.head))
        if not sum(sizes):
            return Parcel(head, None)
        if apart.key not in self._copies:
            self._copies[apart.key] = apart, SharedMemory(apart.buffers)
        return Parcel(head, self._copies[apart.key][1])


def check_made_again(error: Exception) -> None:
    """Raise what another process would raise that reads this error: not each can be made again from its text."""
    pickle.loads(pickle.dumps(error))


def send(connection: socket.socket, parcel: Parcel) -> None:
    """Send a parcel. Raises OSError if the other end is closed."""
    memory = parcel.memory
    head = HEAD.pack(len(parcel.head), 0 if memory is None else memory.size)
    sent = socket.send_fds(connection, [head], [] if memory is None else [memory.file])
    connection.sendall(head[sent:] + parcel.head)


def receive(connection: socket.socket) -> Any:
    """The next value. Raises EOFError if the other end was closed."""
    head, files, _, _ = socket.recv_fds(connection, HEAD.size, 1)
    try:
        head += _exactly(connection, HEAD.size - len(head))
        length, size = HEAD.unpack(head)
        sizes, content = pickle.loads(_exactly(connection, length))
        if not size:
            return put_together(content, [b""] * len(sizes))
        with mmap.mmap(files[0], size, access=mmap.ACCESS_READ) as memory:
            return put_together(content, _slices(memory, sizes))
    finally:
        for file in files:
            os.close(file)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if type(value) is Array and isinstance(value.data, bytes):
            return Array, (value.dtype, value.shape, value.stype, _Bytes(value.data))
        return NotImplemented


class _Bytes:
    """Bytes that are pickled apart from the rest; the other process gets `bytes` again."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> Any:
        return bytes, (pickle.PickleBuffer(self.data),)


def _slices(memory: mmap.mmap, sizes: Sequence[int]) -> list[bytes]:
    start, slices = 0, []
    for size in sizes:
        slices.append(memory[start : start + size])
        start += size
    return slices


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(min(count - len(parts), 1 << 20))
        if not part:
            raise EOFError("the other process has closed the connection")
        parts += part
    return bytes(parts)


def _write(file: int, buffers: Sequence[memoryview]) -> None:
    for buffer in buffers:
        rest = buffer.cast("B") if buffer.nbytes else buffer
        while rest.nbytes:
            rest = rest[os.write(file, rest) :]


def _anonymous_file() -> int:
    """A file without a name, in memory where the system has that; /dev/shm can be too small in a container."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fedstride", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
