"""Bounds the bytes of requests that are in memory at once: for all of a kind, and for each sender."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator


class FullError(Exception):
    """So many requests wait already that this one may not."""


class Budget:
    """Bytes that requests hold; who finds too few waits, in the order of arrival, and at most `waiting` wait."""

    def __init__(self, total: int, waiting: int) -> None:
        self._free, self._most_waiting = total, waiting
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.users = 0

    @contextlib.asynccontextmanager
    async def hold(self, amount: int) -> AsyncIterator[None]:
        """Hold so many bytes; at most the total. Raises FullError."""
        if self._waiting or amount > self._free:
            await self._wait(amount)
        else:
            self._free -= amount
        try:
            yield
        finally:
            self._free += amount
            self._wake()

    async def _wait(self, amount: int) -> None:
        if len(self._waiting) >= self._most_waiting:
            raise FullError
        turn = amount, asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn[1]
        except asyncio.CancelledError:
            if turn[1].done() and not turn[1].cancelled():  # its turn came at the same moment
                self._free += amount
            else:
                self._waiting.remove(turn)
            self._wake()
            raise

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            amount, turn = self._waiting.popleft()
            self._free -= amount
            turn.set_result(None)


class Shares:
    """A budget for all, and for each sender a part of it, so that one of them cannot hold everything."""

    def __init__(self, total: int, part: int, waiting: int, waiting_part: int) -> None:
        self._all = Budget(total, waiting)
        self._part, self._waiting_part = part, waiting_part
        self._of: dict[bytes, Budget] = {}

    @contextlib.asynccontextmanager
    async def hold(self, sender: bytes, amount: int) -> AsyncIterator[None]:
        """Hold so many bytes for this sender; at most its part. Raises FullError."""
        mine = self._of.setdefault(sender, Budget(self._part, self._waiting_part))
        mine.users += 1
        try:
            async with mine.hold(amount), self._all.hold(amount):
                yield
        finally:
            mine.users -= 1
            if not mine.users:
                del self._of[sender]
