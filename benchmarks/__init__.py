"""Measurements of speed, each as a multiple of a floor that is timed beside it: `python -m benchmarks NAME`.

A measurement is a module of this package with the constant `FLOOR`, which says in words what the floor is, and the
function `timings(repeats)`, which yields a `Timing` for each name in each repetition. Nothing here is a test: the
figures depend on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Timing(NamedTuple):
    """One call of what is measured, and the floor as it was timed next to it."""

    name: str
    seconds: float
    floor: float  # seconds


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
