"""The proxy set: examples of a task that the server alone has, a fixed number of each class (B-30).

They are taken from the test examples or from the training examples, and are then in neither: no method that is run
with the same settings is measured on them or trains on them. They are the same for all runs, whatever the seed, so
runs that are compared have the same test set. Server and clients find the same positions from the labels; nothing
is sent.
"""

from __future__ import annotations

import numpy as np

from .. import seeds
from ..errors import DataError

NONE, TEST, TRAIN = "none", "test", "train_holdout"
SOURCES = (NONE, TEST, TRAIN)
"""Where the proxy set comes from."""


def counts_of_classes(count: int, classes: int, smallest: float = 1.0) -> list[int]:
    """How many examples of each class: int(count / C smallest^(c / (C - 1))), with C classes.

    `smallest`: the share of the last class in the first one's, in (0, 1]; 1: all have int(count / C).
    """
    last = max(1, classes - 1)
    return [int(count / classes * smallest ** (c / last) + 1e-9) for c in range(classes)]


def positions(labels: np.ndarray, counts: list[int], what: str) -> np.ndarray:
    """The positions of the proxy set among these labels, sorted, int64.

    A set with larger counts contains the smaller one. Raises DataError if a class would be left without examples,
    or if there are none to take; `what` names the examples in the message.
    """
    if not sum(counts):
        raise DataError(f"task.proxy_examples takes no example of any class; it must be at least {len(counts)}")
    taken = []
    for c, wanted in enumerate(counts):
        members = np.flatnonzero(labels == c)
        if wanted >= max(1, len(members)):
            raise DataError(
                f"task.proxy_examples takes {wanted} {what} examples of class {c}, which has {len(members)}, and "
                "at least one must be left; choose a smaller number"
            )
        taken.append(seeds.generator(0, "proxy", c).permutation(members)[:wanted])
    return np.sort(np.concatenate(taken).astype(np.int64))
