"""The Gaussian mechanism on one client's update, and what its releases cost; for both sides.

Knows clipping, noise and the exact (epsilon, delta) of Gaussian releases; does not know who clips whom,
nor what a rule does with an update (`strategies/differential_privacy.py`, `client_app/protection.py`).
"""

from __future__ import annotations

import math

import numpy as np
from array_api_compat import array_namespace, device

from .arrays import Arrays, Layout, difference, float64, like, norm

CLIPPING_NORMS = (1e-30, 1e30)
"""What C may be: beyond, noise in units of it would vanish or overflow."""


def is_between(value: object, least: float, most: float) -> bool:
    """Whether a setting from outside is a number in [least, most]; True and False are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most


def protect(
    sent: Arrays, model: Arrays, *, clipping_norm: float, stddev: float, rng: np.random.Generator | None
) -> tuple[Arrays, bool]:
    """w + (clip(w_k - w, C) + N(0, stddev^2)) on every parameter, and whether the update was longer than C.

    clip(x, C) = x min(1, C / ||x||) over all parameters together (McMahan et al., ICLR 2018: flat
    clipping). An update with NaN or infinity counts as zero, since it has no length to be shortened to.
    Parameters are returned in float64: whoever sends them on rounds them (`rounded`), after the noise.
    `rng` is needed where `stddev` > 0. Buffers are those that were sent.
    """
    names = Layout.of(sent).parameters
    update = difference(model, sent, names)
    length = norm(update)
    too_long = not length <= clipping_norm
    factor = clipping_norm / length if too_long else 1.0
    protected = dict(sent)
    for name in names:
        xp = array_namespace(update[name])
        change = update[name] * factor if math.isfinite(length) else xp.zeros_like(update[name])
        if stddev > 0.0:
            assert rng is not None
            drawn = rng.normal(0.0, stddev, tuple(change.shape))
            change = change + xp.asarray(drawn, device=device(change))
        # Rounded once, after the noise: a great w must not decide how much noise is left.
        protected[name] = float64(sent[name]) + change
    return protected, too_long


def rounded(model: Arrays, sent: Arrays) -> Arrays:
    """The model in the sent dtypes."""
    return {name: like(array, sent[name]) for name, array in model.items()}


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
    """Phi(-x) / phi(x) for x > 0, to nine digits."""
    if x < 25.0:
        return 0.5 * math.erfc(x / math.sqrt(2.0)) * math.sqrt(2.0 * math.pi) * math.exp(0.5 * x * x)
    square = x * x  # erfc underflows; the asymptotic series errs by 105 / x^8 at most
    return (1.0 - (1.0 - (3.0 - 15.0 / square) / square) / square) / x


# ---------------------------------------------------------------- adaptive clipping


def noise_beside_count(noise_multiplier: float, count_stddev: float) -> float:
    """z of the updates where the count of clipped ones is released too, so that both together cost z.

    (z^-2 - sigma_b^-2)^(-1/2), for z < sigma_b. Andrew et al. (NeurIPS 2021, theorem 1) have 2 sigma_b: they
    add or remove a client, and count it by -1/2 or 1/2. A client whose update is zero counts by 0, one that
    is clipped by 1.
    """
    if noise_multiplier == 0.0:
        return 0.0
    return float((noise_multiplier**-2 - count_stddev**-2) ** -0.5)


def next_clipping_norm(clipping_norm: float, clipped: float, target: float, lr: float) -> float:
    """C exp(lr (clipped - target)): longer where a greater share was clipped than is wanted.

    Andrew et al., section 2.2, there by the share of those that were not clipped.
    """
    return clipping_norm * math.exp(lr * (clipped - target))
