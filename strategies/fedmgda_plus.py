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

from fedstride.arrays.float64_sums import total
from fedstride.arrays.named import Arrays
from fedstride.settings import Setting, check

from .replies.cohort import Cohort
from .replies.declared_needs import Needs
from .shell.rule_strategy import RuleOptions, RuleStrategy, Weighting
from .shell.stack import RoundResult
from .sums.blocks import norm
from .sums.means import add_step, averaged_buffers
from .sums.updates import updates_of

NOT_MOVED = 1e-12

NEARNESS = 1e-10
"""Far below the eigenvalues that decide, and far above the rounding of K, whose entries are at most 1."""
TURNS = 20
ROUNDING = 1e-14
"""A smaller gain may be rounding."""


def inverse_lengths(sent: Arrays, models: Sequence[Arrays]) -> list[float]:
    """1 / ||Delta_k||; 0 for a client that did not move."""
    updates = updates_of(sent, models)
    squares = zip(*(updates.squares(name) for name in updates.names), strict=True)
    lengths = [math.sqrt(total(of_client)) for of_client in squares]
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


def weights(K: Any, shares: Sequence[float], epsilon: float) -> list[float]:
    """lambda (MG2). Of several, about the nearest to p: updates that are the same keep the weights of p.

    Each turn solves the program with NEARNESS / 2 ||l - l'||^2 added, l' being the solution of the turn before and
    p at first. So it is strictly convex, and the turns come to a solution of the program itself. Where K is
    singular to working precision, the weights that it leaves open stay where p has them (B-28).
    """
    p = np.asarray(shares, dtype=np.float64)
    if epsilon == 0.0:
        return list(shares)
    least, most = np.maximum(0.0, p - epsilon), np.minimum(1.0, p + epsilon)
    P = K + NEARNESS * np.eye(len(p))
    solution = p
    for _ in range(TURNS):
        before, solution = solution, solved_in_box(P, -NEARNESS * solution, solution, least, most)
        if float(np.abs(solution - before).max()) < 1e-13:
            break
    return [float(weight) for weight in solution]


def solved_in_box(P: Any, q: Any, start: Any, least: Any, most: Any) -> Any:
    """argmin x' P x / 2 + q' x with the sum of `start` and least <= x <= most, by a primal active-set method.

    float64: P (m, m), positive definite; the others (m,); `start` must be in the box. The free entries move to
    their best values, the others being fixed, until an entry reaches its bound and is fixed there. Where no free
    entry moves, the one whose bound costs most becomes free; if none does, x is the solution (Nocedal and Wright,
    Numerical Optimization, 2006, algorithm 16.3). No function of LAPACK is used: it has other bits on other
    processors.
    """
    x, free = start.copy(), (least < start) & (start < most)
    for _ in range(100 + 10 * len(x)):
        slope = np.add.reduce(P * x, axis=1) + q
        step = _free_step(P, slope, free)
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(step > 0.0, most - x, least - x) / step
        room = np.where(free & (step != 0.0), room, np.inf)
        first = int(np.argmin(room))
        if room[first] < 1.0:
            x = np.clip(x + room[first] * step, least, most)
            x[first] = most[first] if step[first] > 0.0 else least[first]
            free[first] = False
            continue
        x = np.clip(x + step, least, most)
        gain = _gains(np.add.reduce(P * x, axis=1) + q, x, free, least, most)
        worst = int(np.argmax(gain))
        if gain[worst] <= ROUNDING:
            break
        free[worst] = True
    return x


def _free_step(P: Any, slope: Any, free: Any) -> Any:
    """The step of the free entries to their best values with the same sum; 0 for the others.

    With s_r = -sum of the other s, r being the last free entry, there is no constraint left.
    """
    step, places = np.zeros(len(slope)), np.flatnonzero(free)
    if len(places) < 2:
        return step
    r, others = places[-1], places[:-1]
    H = P[np.ix_(others, others)] - P[others, r][:, None] - P[r, others] + P[r, r]
    step[others] = _solved(H, slope[r] - slope[others])
    step[r] = -np.add.reduce(step[others])
    return step


def _gains(slope: Any, x: Any, free: Any, least: Any, most: Any) -> Any:
    """How fast the value falls if a fixed entry leaves its bound, and the free ones make up for it; else 0."""
    low, high = ~free & (x <= least) & (least < most), ~free & (x >= most) & (least < most)
    if free.any():
        level = np.add.reduce(slope[free]) / np.count_nonzero(free)
    else:  # one that must fall goes first, and the one that rises for it follows
        level = np.min(slope[low], initial=np.inf)
    return np.where(low, level - slope, np.where(high, slope - level, 0.0))


def _solved(H: Any, b: Any) -> Any:
    """The solution of H x = b, H positive definite, by elimination."""
    H, x = H.copy(), b.copy()
    for k in range(len(x) - 1):
        factors = H[k + 1 :, k] / H[k, k]
        H[k + 1 :, k + 1 :] -= factors[:, None] * H[k, k + 1 :]
        x[k + 1 :] -= factors * x[k]
    for k in reversed(range(len(x))):
        x[k] = (x[k] - np.add.reduce(H[k, k + 1 :] * x[k + 1 :])) / H[k, k]
    return x


def aggregate(
    sent: Arrays, models: Sequence[Arrays], shares: Sequence[float], *, epsilon: float, server_lr: float = 1.0
) -> tuple[Arrays, list[float], float]:
    """w^ in the sent dtypes, lambda, and ||sum_k lambda_k U_k||."""
    inverse = inverse_lengths(sent, models)
    lambdas = weights(gram(sent, models, inverse), shares, epsilon)
    factors = [server_lr * weight * scale for weight, scale in zip(lambdas, inverse, strict=True)]
    step = updates_of(sent, models).summed(factors)
    return add_step(sent, step, averaged_buffers(sent, models, shares)), lambdas, norm(step) / server_lr


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
        model, lambdas, length = aggregate(
            sent, cohort.models, shares, epsilon=self.epsilon, server_lr=self.server_lr
        )
        return RoundResult(model, state, {"fedmgda_plus/d": length, "fedmgda_plus/lambda": lambdas})
