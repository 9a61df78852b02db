"""What a device needs for some work at least: for the operations, for the bytes of weights, and for the launches.

The device's rates are measured here, with torch's own product of matrices and convolution (the faster of both),
copy and smallest operation, so they are what a program can reach in float32. It knows nothing of clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import seconds
from fedstride.tasks.forms.memory_layout import place_images

SIZE = {"cpu": 1024, "cuda": 8192}
"""Rows and columns of the matrices; a copy has as many MiB / 8."""

MOVES = 5
"""Of the weights in a step: they are read forward and backward, their gradients written and read, and they are
written."""

IMAGES = {"cpu": 10, "cuda": 2048}
"""Of a convolution: 16 x 16 pixels and 128 channels, 3 x 3 filters that make as many channels."""

SMALL = 1000
"""Operations of which one is timed."""


class Rates(NamedTuple):
    """Of a device."""

    operations: float  # floating-point operations a second
    bytes: float  # a second, read or written
    launch: float  # seconds between two small operations; 0 on a processor, which computes them itself


class Least(NamedTuple):
    """The least seconds for some work."""

    operations: float
    weights: float
    launches: float


def rates(device: torch.device) -> Rates:
    """The rates of this device; the best of five."""
    size = SIZE[device.type]
    a, b, out = (torch.rand(size, size, device=device) for _ in range(3))
    source = torch.rand(size << 15, device=device)  # size / 8 MiB
    target = torch.rand_like(source)
    images = place_images(torch.rand(IMAGES[device.type], 128, 16, 16, device=device))
    filters = place_images(torch.rand(128, 128, 3, 3, device=device))
    one = torch.zeros(1, device=device)

    def small() -> None:
        for _ in range(SMALL):
            one.add_(1)

    product, convolution, copy, additions = (
        min(_timed(call, device) for _ in range(5))
        for call in (
            lambda: torch.mm(a, b, out=out),
            lambda: functional.conv2d(images, filters),
            lambda: target.copy_(source),
            small,
        )
    )
    operations = max(2.0 * size**3 / product, 2.0 * len(images) * 14**2 * filters.numel() / convolution)
    launch = additions / SMALL if device.type == "cuda" else 0.0
    return Rates(operations, 2.0 * source.nbytes / copy, launch)


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
    with profile(activities=activities) as trace:
        call()
    return sum(str(event.device_type) == "DeviceType.CUDA" for event in trace.events() or ())


def least(rates: Rates, *, operations: float, weights: float, launches: float) -> Least:
    """The least seconds. `weights`: the bytes of the weights of all steps."""
    return Least(operations / rates.operations, MOVES * weights / rates.bytes, launches * rates.launch)
