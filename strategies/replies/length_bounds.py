"""How long an update may be, and how much weight a client may have: pure functions of numbers.

One client must not be able to move these bounds. So they depend on medians, and on what earlier rounds learnt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

PRIOR = 0.1
"""Before anything is learnt: a typical update, in units of the norm of the model that was sent."""

SINGLE = 20.0
"""Before anything is learnt, with one reply: the largest reference length, in the same units."""

GROWTH = 2.0
"""The reference length grows by at most this factor from one round to the next."""


def reference(lengths: Sequence[float], learnt: float | None, scale: float = 0.0) -> float | None:
    """The reference length after a round: the largest median of a round so far. None if nothing is known.

    `lengths` are those of the round's updates (each >= 0), `learnt` is the reference before the round, None in
    the first one, `scale` the norm of the model that was sent (0: not known). The reference grows by at most a
    factor `GROWTH`. It does not become smaller: when training converges, a few honest clients still have updates
    as long as at the beginning, many times longer than the median.

    Of an even number of lengths, `learnt` decides which of the two in the middle counts, so that one of two
    clients cannot choose the reference. In the first round, `PRIOR` times `scale` takes its place, and if that
    is 0, the smaller one counts.
    """
    if not lengths:
        return learnt
    tie = learnt or PRIOR * scale
    votes = sorted([*lengths, tie] if tie and len(lengths) % 2 == 0 else lengths)
    middle = votes[(len(votes) - 1) // 2]
    if learnt:
        middle = min(max(middle, learnt), GROWTH * learnt)
    elif scale and len(lengths) == 1:
        middle = min(middle, SINGLE * scale)
    return middle or None


def quantile(lengths: Sequence[float], share: float) -> float:
    """The smallest of the lengths that at least this share of them does not exceed, with `share` in (0, 1]."""
    return sorted(lengths)[max(math.ceil(share * len(lengths) - 1e-9), 1) - 1]


def capped(counts: Sequence[float], max_share: float) -> list[float]:
    """The counts of examples, the largest of them lowered so that no client has more than `max_share` of the sum.

    All counts that are lowered become equal. If `max_share` is at most 1 / (number of clients), all become equal
    to the smallest. Counts are > 0, and a count that need not be lowered is returned as it is.
    """
    order = sorted(counts, reverse=True)
    for lowered, largest in enumerate(order):
        left = 1.0 - lowered * max_share
        if left <= 0.0:
            break
        cap = max_share * math.fsum(order[lowered:]) / left  # solves cap = max_share (lowered * cap + the rest)
        if largest <= cap * (1.0 + 1e-12):
            return [min(count, cap) if lowered else count for count in counts]
    return [order[-1]] * len(counts)
