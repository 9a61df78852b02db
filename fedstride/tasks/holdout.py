"""The examples of a client that training never sees; federated evaluation measures on them."""

from __future__ import annotations

import numpy as np

from .. import seeds
from ..errors import DataError


def hold_out(count: int, share: float, *, seed: int, client: int) -> tuple[np.ndarray, np.ndarray]:
    """(training, held out): positions among a client's `count` examples, each in rising order.

    The same positions in every round, drawn from the run's seed and the client's id. `share` is in [0, 1); above
    0, at least one example is held out and at least one is kept. Raises DataError if there are not two examples.
    """
    if share == 0.0:
        return np.arange(count), np.arange(0)
    if count < 2:
        raise DataError(
            f"client {client} has {count} examples; with holdout = {share:g} it needs at least 2: one to train "
            "on, one to measure on"
        )
    size = min(max(round(share * count), 1), count - 1)
    order = seeds.generator(seed, "holdout", client).permutation(count)
    return np.sort(order[size:]), np.sort(order[:size])
