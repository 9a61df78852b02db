"""Memory that torch frees stays with the process. It is a setting of the C library.

Otherwise glibc gives much of it back to the operating system. Each mini-batch then gets its activations and
gradients as new pages, which the system fills with zeros first.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
LARGEST = 1 << 30
"""Bytes: blocks up to this size are kept, and at most as much that is free at the end of the heap."""


@cache
def keep_freed_memory() -> bool:
    """Set this for the whole process, once. False if the C library has no such setting (it is not glibc)."""
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(M_TRIM_THRESHOLD, LARGEST) and mallopt(M_MMAP_THRESHOLD, LARGEST))
