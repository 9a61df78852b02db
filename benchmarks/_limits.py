"""What a device needs for some work: for the operations, for the bytes of weights, and for the launches.

The operations are those that define the layers. A 3x3 convolution can be computed with fewer (Winograd), and then
needs less than this.

The device's rates are measured here, with torch's own product of matrices, copy and smallest operation, so they
are what a program can reach in float32. It knows nothing of clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import seconds

SIZE = {"cpu": 1024, "cuda": 8192}
"""Rows and columns of the matrices; a copy has as many MiB / 8."""

MOVES = 5
"""Of the weights in a step: they are read forward and backward, their gradients written and read, and they are
written."""

SMALL = 1000
"""Operations of which one is timed."""


class Rates(NamedTuple):
    """Of a device."""

    operations: float  # floating-point operations a second
    bytes: float  # a second, read or written
    launch: float  # seconds between two small operations; 0 on a processor, which computes them itself


class Needs(NamedTuple):
    """The seconds that some work needs, for each of three reasons."""

    operations: float
    weights: float
    launches: float


def rates(device: torch.device) -> Rates:
    """The rates of this device; the best of five."""
    size = SIZE[device.type]
    a, b, out = (torch.rand(size, size, device=device) for _ in range(3))
    source = torch.rand(size << 15, device=device)  # size / 8 MiB
    target = torch.rand_like(source)
    one = torch.zeros(1, device=device)

    def small() -> None:
        for _ in range(SMALL):
            one.add_(1)

    product, copy, each = (
        min(_timed(call, device) for _ in range(5))
        for call in (lambda: torch.mm(a, b, out=out), lambda: target.copy_(source), small)
    )
    launch = each / SMALL if device.type == "cuda" else 0.0
    return Rates(2.0 * size**3 / product, 2.0 * source.nbytes / copy, launch)


def _timed(call: Callable[[], object], device: torch.device) -> float:
    def done() -> None:
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    done()
    return seconds(done)


def operations(call: Callable[[], object]) -> int:
    """The floating-point operations of the linear and convolution layers in a call, forward and backward.

    torch counts those of grouped convolutions too often, so the call must train one client after the other.
    """
    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


def launches(call: Callable[[], object]) -> int:
    """What a call sends to a GPU: kernels and copies; 0 without one."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with profile(activities=activities) as found:
        call()
    return sum(str(event.device_type) == "DeviceType.CUDA" for event in found.events() or ())


def needs(rates: Rates, *, operations: float, weights: float, launches: float) -> Needs:
    """The least seconds. `weights`: the bytes of the weights of all steps."""
    return Needs(operations / rates.operations, MOVES * weights / rates.bytes, launches * rates.launch)
