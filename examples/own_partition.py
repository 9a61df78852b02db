"""A user-defined partition: the clients' data sizes decrease geometrically, the labels are not skewed.

fedstride run parts=examples/own_partition.py partition=geometric partition.ratio=0.7
"""

from typing import Annotated

import numpy as np

from fedstride import Divisible, Setting, part


@part(partition="geometric")
def geometric(
    source: Divisible,
    clients: int,
    seed: int,
    *,
    ratio: Annotated[float, Setting("data size of a client / data size of the one before", above=0, most=1)] = 0.8,
) -> list[np.ndarray]:
    """Each client has `ratio` times as many examples as the one before."""
    order = np.random.default_rng(seed).permutation(len(source))
    shares = ratio ** np.arange(clients)
    return np.split(order, (np.cumsum(shares)[:-1] / shares.sum() * len(source)).astype(int))
