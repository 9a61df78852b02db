"""Measurements of speed and memory, each as a multiple of a floor that is measured beside it.

    python -m benchmarks NAME ...

A measurement is a module of this package with the constant `FLOOR`, which says in words what the floor is, and the
function `timings(repeats, only)`, which yields a `Measured` for each name in each repetition, and remarks (str)
that are printed below the table. Nothing here is a test: the figures depend on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Measured(NamedTuple):
    """One repetition of what is measured, and the floor as it was found next to it."""

    name: str
    value: float  # in `unit`
    floor: float  # in `unit`
    unit: str = "s"  # or B, bytes, or 1, a share


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
