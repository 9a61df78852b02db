"""The Gaussian mechanism on one client's update, and what its releases cost; for both sides.

Knows clipping, noise and the exact (epsilon, delta) of Gaussian releases; does not know who clips whom,
nor what a rule does with an update (`strategies/privacy.py`, `client_app/privacy.py`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from fedstride.arrays import Arrays, Layout, difference, float64, like, norm


def protect(
    sent: Arrays, model: Arrays, *, clipping_norm: float, stddev: float, rng: np.random.Generator | None
) -> tuple[Arrays, bool]:
    """w + clip(w_k - w, C) + N(0, stddev^2) on every parameter, and whether the update was longer than C.

    clip(x, C) = x min(1, C / ||x||) over all parameters together (McMahan et al., ICLR 2018: flat
    clipping); in float64, returned in the sent dtypes. `rng` is needed where `stddev` > 0. Buffers are
    those that were sent: `running_statistics` tells where a model has some that would have to be protected.
    """
    names = Layout.of(sent).parameters
    update = difference(model, sent, names)
    length = norm(update)
    too_long = length > clipping_norm
    factor = clipping_norm / length if too_long else 1.0
    protected = dict(sent)
    for name in names:
        moved = float64(sent[name]) + update[name] * factor
        if stddev > 0.0:
            assert rng is not None
            moved = moved + _like_drawn(rng.normal(0.0, stddev, tuple(moved.shape)), moved)
        protected[name] = like(moved, sent[name])
    return protected, too_long


def _like_drawn(drawn: np.ndarray, array: Any) -> Any:
    """Drawn numbers as an array of the other's kind, where that one is."""
    return array_namespace(array).asarray(drawn, device=device(array))


def running_statistics(model: Arrays) -> list[str]:
    """Buffers that hold averages over a client's examples (BatchNorm's): noise would destroy them."""
    buffers = Layout.of(model).buffers
    return [name for name in buffers if name.rsplit(".", 1)[-1] in ("running_mean", "running_var")]


# ---------------------------------------------------------------- what it costs


def epsilon(noise_multiplier: float, releases: int, delta: float) -> float:
    """The smallest epsilon at which so many Gaussian releases are (epsilon, delta)-private together.

    `noise_multiplier` z = standard deviation / sensitivity of one release. T releases are one of
    multiplier z / sqrt(T) (Dong, Roth, Su, JRSS B 2022, corollary 3.3), whose exact trade-off is inverted
    (Balle, Wang, ICML 2018, theorem 8). Nothing is gained from sampling clients. inf where z = 0.
    """
    if releases == 0:
        return 0.0
    if noise_multiplier == 0.0:
        return math.inf
    mu = math.sqrt(releases) / noise_multiplier
    if _delta(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while _delta(high, mu) > delta:
        low, high = high, 2.0 * high
    for _ in range(100):  # to the last bit
        middle = 0.5 * (low + high)
        if _delta(middle, mu) > delta:
            low = middle
        else:
            high = middle
    return high


def _delta(eps: float, mu: float) -> float:
    """delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), without overflow.

    With a = eps/mu + mu/2 and b = eps/mu - mu/2, e^eps phi(a) = phi(b); so the second term is
    phi(b) Phi(-a) / phi(a).
    """
    a, b = eps / mu + mu / 2.0, eps / mu - mu / 2.0
    density = math.exp(-0.5 * b * b) / math.sqrt(2.0 * math.pi)
    return 0.5 * math.erfc(b / math.sqrt(2.0)) - density * _mills(a)


def _mills(x: float) -> float:
    """Phi(-x) / phi(x) for x > 0."""
    if x < 25.0:
        return 0.5 * math.erfc(x / math.sqrt(2.0)) * math.sqrt(2.0 * math.pi) * math.exp(0.5 * x * x)
    square = x * x  # erfc underflows; the asymptotic series is exact to the last bits here
    return (1.0 - (1.0 - (3.0 - 15.0 / square) / square) / square) / x


# ---------------------------------------------------------------- adaptive clipping


def noise_beside_count(noise_multiplier: float, count_stddev: float) -> float:
    """z of the updates where the count of clipped ones is released too, so that both together cost z.

    (z^-2 - (2 sigma_b)^-2)^(-1/2), Andrew et al. (NeurIPS 2021), theorem 1. Needs z < 2 sigma_b.
    """
    if noise_multiplier == 0.0:
        return 0.0
    return float((noise_multiplier**-2 - (2.0 * count_stddev) ** -2) ** -0.5)


def next_clipping_norm(clipping_norm: float, clipped: float, target: float, lr: float) -> float:
    """C exp(lr (clipped - target)): longer where a greater share was clipped than is wanted.

    Andrew et al., section 2.2, there by the share of those that were not clipped.
    """
    return clipping_norm * math.exp(lr * (clipped - target))
