"""Random draws of several clients from a counter: the n-th draw of a client is a function of its key and n.

So a draw depends neither on the other clients nor on how they are divided, without a generator for each client.
The draws of a step are a fixed number of operations, whatever the number of clients. With generators there are
some for each client, and a GPU waits while they are sent to it.

The function is SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): the key is the state at the start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

GOLDEN, FIRST, SECOND = (number - 2**64 for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
"""SplitMix64's constants, as int64."""

DRAWS, CALLS = 1 << 32, 1 << 12
"""At most this number of draws in a call, and of calls in a step; so no two draws of a client have the same n."""


Number = int | torch.Tensor
"""A whole number, or an int64 tensor () of it on the device of the keys."""


def drawn(keys: torch.Tensor, start: Number, count: int) -> torch.Tensor:
    """`count` draws of each key, from number `start`: int64 (keys,) -> int64 (keys, count) in [0, 2**53)."""
    numbers = torch.arange(1, count + 1, device=keys.device) + start
    z = keys[:, None] + numbers * GOLDEN
    z = z.bitwise_xor_(_shifted(z, 30)).mul_(FIRST)
    z = z.bitwise_xor_(_shifted(z, 27)).mul_(SECOND)
    return _shifted(z.bitwise_xor_(_shifted(z, 31)), 11)


def _shifted(z: torch.Tensor, bits: int) -> torch.Tensor:
    """z >> bits, with zeros from the left: torch's shift of int64 repeats the sign."""
    return (z >> bits).bitwise_and_((1 << (64 - bits)) - 1)


class CountedDraws:
    """Draws dropout masks for the clients in one step. `keys`: int64 (clients,); `step`: its number, from 0."""

    def __init__(self, keys: torch.Tensor, step: Number) -> None:
        self._keys, self._step, self._calls = keys, step, 0

    def keep(self, like: torch.Tensor, shape: Sequence[int], p: float, *, images: bool) -> torch.Tensor:
        """0 with probability p, else 1 / (1 - p): (clients, *shape), with the dtype of `like`.

        `images` has no effect: the order of the draws is that of the axes. Examples that only fill a batch come
        after a client's own, so they do not change its draws.
        """
        count = math.prod(shape)
        if count > DRAWS or self._calls >= CALLS:
            raise ValueError(f"dropout of {count} values, call {self._calls} of a step, is not stacked")
        draws = drawn(self._keys, (self._step * CALLS + self._calls) * DRAWS, count)
        self._calls += 1
        kept = (draws >= round(p * 2**53)).view(-1, *shape).to(like.dtype)
        return kept.div_(1.0 - p) if p < 1.0 else kept
