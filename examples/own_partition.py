"""A partition of one's own: sizes that fall geometrically, labels as they come.

fedstride run parts=examples/own_partition.py partition=geometric partition.ratio=0.7
"""

from typing import Annotated

import numpy as np

from fedstride import Setting, part


@part(partition="geometric")
def geometric(
    labels: np.ndarray,
    clients: int,
    seed: int,
    *,
    ratio: Annotated[float, Setting("size of a client beside the one before", above=0, most=1)] = 0.8,
) -> list[np.ndarray]:
    """Each client holds `ratio` times as many examples as the one before."""
    order = np.random.default_rng(seed).permutation(len(labels))
    shares = ratio ** np.arange(clients)
    return np.split(order, (np.cumsum(shares)[:-1] / shares.sum() * len(labels)).astype(int))
