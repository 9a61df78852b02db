"""A test set for data that are published without one."""

from __future__ import annotations

import numpy as np

from ... import seeds

TEST_SHARE = 0.2


def stratified(strata: np.ndarray, share: float = TEST_SHARE) -> tuple[np.ndarray, np.ndarray]:
    """(train, test) positions, sorted: `share` of the examples of each stratum, rounded, are for testing.

    `strata` has one whole number for each example, such as its class. The draw has a fixed seed, so it depends on
    nothing but `strata` and `share`.
    """
    rng = seeds.generator(0, "split")
    is_test = np.zeros(len(strata), dtype=bool)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        is_test[rng.permutation(members)[: round(share * len(members))]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)
