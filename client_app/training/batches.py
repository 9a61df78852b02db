"""The examples of each mini-batch of a round, as positions drawn from the run's seed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedstride import seeds


def epochs(
    examples: int, batch_size: int, count: int, *, seed: int, server_round: int, client: int
) -> Iterator[np.ndarray]:
    """Mini-batches of `count` passes over all examples, each in a new random order.

    The last batch of a pass can be smaller.
    """
    rng = seeds.generator(seed, "batches", server_round, client)
    for _ in range(count):
        order = rng.permutation(examples)
        yield from (order[start : start + batch_size] for start in range(0, examples, batch_size))


def from_cursor(
    examples: int, batch_size: int, count: int, cursor: int, *, seed: int, client: int
) -> Iterator[np.ndarray]:
    """`count` mini-batches of the client's endless sequence, from mini-batch number `cursor` on.

    The sequence is epoch after epoch, each shuffled from (seed, epoch, client). So the cursor alone determines the
    position of a client in its sequence (A4-5).
    """
    per_epoch = -(-examples // batch_size)
    epoch, order = -1, np.empty(0, dtype=np.int64)
    for number in range(cursor, cursor + count):
        if number // per_epoch != epoch:
            epoch = number // per_epoch
            order = seeds.generator(seed, "cursor", epoch, client).permutation(examples)
        start = number % per_epoch * batch_size
        yield order[start : start + batch_size]
