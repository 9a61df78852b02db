"""What a process inherits: open descriptors."""

from __future__ import annotations

import fcntl
import os
from itertools import pairwise

from . import kernel
from .errors import ConfinementError


def gaps(kept: set[int]) -> list[tuple[int, int]]:
    """The ranges (first, last) of descriptors that are not kept. Pure."""
    edges = [-1, *sorted(kept), 2**32]
    return [(low + 1, high - 1) for low, high in pairwise(edges) if low + 1 <= high - 1]


def close_all_but(kept: set[int]) -> None:
    """Close all descriptors but those, and check it in /proc.

    Raises ConfinementError if one stays open, if one of `kept` is not open, or where the kernel cannot do it.
    """
    try:
        for first, last in gaps(kept):
            kernel.close_range(first, last)
        open_now = {int(name) for name in os.listdir("/proc/self/fd")}
    except OSError as error:
        raise ConfinementError(f"descriptors cannot be closed: {error.strerror}") from None
    left = {number for number in open_now - kept if _is_open(number)}  # the listing's own is closed by now
    if left or not kept <= open_now:
        raise ConfinementError(f"descriptors {sorted(open_now)} are open, not {sorted(kept)}")


def _is_open(descriptor: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_GETFD)
    except OSError:
        return False
    return True
