"""Number of positions after convolutions and poolings, and the refusal of examples that are too small for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...errors import ConfigError
from ..inputs import Inputs


class Window(NamedTuple):
    """A convolution or pooling along one dimension."""

    kernel: int
    stride: int = 1
    padding: int = 0


HALVE = Window(2, 2)
"""Max pooling of 2."""


def positions(model: str, inputs: Inputs, windows: Sequence[Window]) -> int:
    """The number of positions that remain after the windows, over all dimensions of an example but the first.

    Raises ConfigError if nothing remains. The message has the smallest lengths that the network takes.
    """
    count = 1
    for length in inputs.shape[1:]:
        count *= _after(length, windows)
    if count:
        return count
    least = next(length for length in range(1, 100_000) if _after(length, windows))
    needed = " x ".join([str(least)] * len(inputs.shape[1:]))
    raise ConfigError(
        f"model = {model!r} needs examples of at least {needed}, because its convolutions and poolings leave "
        f"nothing of smaller ones, but the task's examples are: {inputs}; choose another model (fedstride list "
        "model)"
    )


def _after(length: int, windows: Sequence[Window]) -> int:
    for kernel, stride, padding in windows:
        length = (length + 2 * padding - kernel) // stride + 1
        if length < 1:
            return 0
    return length
