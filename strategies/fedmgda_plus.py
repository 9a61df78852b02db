"""FedMGDA+: a common descent direction near FedAvg's weights (Hu et al., IEEE TNSE 2022).

    U_k = -Delta_k / ||Delta_k||;  0 if ||Delta_k|| < 1e-12                                        (MG1)
    lambda = argmin l' K l,  K_jk = <U_j, U_k>,  sum l = 1,  max(0, p_k - eps) <= l_k <= min(1, p_k + eps)   (MG2)
    w^ = w - eta_s sum_k lambda_k U_k                                                              (MG3)

over the clients of the round. Buffers are averaged with p_k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from typing_extensions import Unpack

from fedstride.arrays import Arrays, total
from fedstride.settings import Setting, check

from .blocks import norm
from .cohort import Cohort
from .means import add_step, averaged_buffers
from .needs import Needs
from .rules import RuleOptions, RuleStrategy, Weighting
from .stack import RoundResult
from .updates import updates_of

NOT_MOVED = 1e-12
MOST_STEPS = 10_000


def inverse_lengths(sent: Arrays, models: Sequence[Arrays]) -> list[float]:
    """1 / ||Delta_k||; 0 for a client that did not move."""
    updates = updates_of(sent, models)
    squares = zip(*(updates.squares(name) for name in updates.names), strict=True)
    lengths = [math.sqrt(total(each)) for each in squares]
    return [1.0 / length if length >= NOT_MOVED else 0.0 for length in lengths]


def gram(sent: Arrays, models: Sequence[Arrays], inverse: Sequence[float]) -> Any:
    """K, float64 (m, m). One unit vector is in memory at a time, for the price of reading the updates m times."""
    updates, m = updates_of(sent, models), len(models)
    K = np.zeros((m, m))
    for k in range(m):
        if inverse[k]:
            unit = updates.summed([inverse[k] if j == k else 0.0 for j in range(m)])
            K[:, k] = [product * scale for product, scale in zip(updates.products(unit), inverse, strict=True)]
    return np.triu(K) + np.triu(K, 1).T


def projected(y: Any, least: Any, most: Any) -> Any:
    """The nearest point to y with sum 1 and least <= x <= most: clip(y - t), with t where the sum is 1.

    The sum falls piecewise linearly in t, so t is found between two neighbouring corners.
    """
    corners = np.sort(np.concatenate([y - least, y - most]))
    sums = np.add.reduce(np.clip(y[None, :] - corners[:, None], least, most), axis=1)  # falling
    place = int(np.count_nonzero(sums >= 1.0))
    if place == 0 or place == len(corners):  # only by rounding: the sum is 1 at a corner
        return np.clip(y - corners[min(place, len(corners) - 1)], least, most)
    high, low = sums[place - 1], sums[place]
    t = corners[place - 1] + (high - 1.0) / (high - low) * (corners[place] - corners[place - 1])
    return np.clip(y - t, least, most)


def weights(K: Any, shares: Sequence[float], epsilon: float) -> list[float]:
    """lambda (MG2), by projected gradient steps from p (B-28).

    The step is 1 / the largest row sum of |K|, which is at least the largest eigenvalue: an eigenvalue from LAPACK
    would have other bits on another processor.
    """
    p = np.asarray(shares, dtype=np.float64)
    bound = float(np.add.reduce(np.abs(K), axis=1).max())
    if epsilon == 0.0 or bound < NOT_MOVED:
        return list(shares)
    least, most = np.maximum(0.0, p - epsilon), np.minimum(1.0, p + epsilon)
    found = p
    for _ in range(MOST_STEPS):
        gradient = np.add.reduce(K * found, axis=1)
        after = projected(found - gradient / bound, least, most)
        change, found = float(np.abs(after - found).max()), after
        if change < 1e-12:
            break
    return [float(each) for each in found]


def aggregate(
    sent: Arrays, models: Sequence[Arrays], shares: Sequence[float], *, epsilon: float, server_lr: float = 1.0
) -> tuple[Arrays, list[float], float]:
    """w^ in the sent dtypes, lambda, and ||sum_k lambda_k U_k||."""
    inverse = inverse_lengths(sent, models)
    found = weights(gram(sent, models, inverse), shares, epsilon)
    factors = [server_lr * each * scale for each, scale in zip(found, inverse, strict=True)]
    step = updates_of(sent, models).summed(factors)
    return add_step(sent, step, averaged_buffers(sent, models, shares)), found, norm(step) / server_lr


class FedMGDAPlus(RuleStrategy):
    """FedMGDA+ as a Flower strategy; clients only train.

    `epsilon` in [0, 1]: how far a weight may be from p_k; 0 gives p_k, 1 any weights. `server_lr` eta_s > 0 is the
    length of the step in units of the model: the clients' updates are normalised, as Fedalr's are.

    Metrics: `fedmgda_plus/d`, the norm of the direction, at most 1; the list `fedmgda_plus/lambda`, in the order
    of client ids.
    """

    needs = Needs.EACH
    takes_tensors = True

    def __init__(
        self,
        *,
        epsilon: Annotated[float, Setting("how far a client's weight may be from p_k", least=0, most=1)] = 0.1,
        server_lr: Annotated[float, Setting("eta_s, length of a step of unit vectors", above=0)] = 1.0,
        weighting: Weighting = "examples",
        **options: Unpack[RuleOptions],
    ) -> None:
        super().__init__(weighting=weighting, **options)
        check(FedMGDAPlus, locals())
        self.epsilon = epsilon
        self.server_lr = server_lr

    def rule(self, sent: Arrays, cohort: Cohort, state: Any) -> RoundResult:
        """See `aggregate`."""
        shares = cohort.shares(self.weighting)
        model, found, length = aggregate(
            sent, cohort.models, shares, epsilon=self.epsilon, server_lr=self.server_lr
        )
        return RoundResult(model, state, {"fedmgda_plus/d": length, "fedmgda_plus/lambda": found})
