"""The Gaussian mechanism for one client's update, and its privacy cost (epsilon, delta).

Used by the server (`strategies/differential_privacy.py`) and by the client (`client_app/protection.py`).
"""

from __future__ import annotations

import math

import numpy as np
from array_api_compat import array_namespace, device

from .arrays import Arrays, Layout, difference, float64, like, norm

CLIPPING_NORMS = (1e-30, 1e30)
"""The smallest and largest allowed clipping norm C. The noise is a multiple of C, and would underflow or overflow
outside of this range."""


def is_between(value: object, least: float, most: float) -> bool:
    """Whether a received value is a number in [least, most]. True and False are not numbers."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most


def protect(
    sent: Arrays, model: Arrays, *, clipping_norm: float, stddev: float, rng: np.random.Generator | None
) -> tuple[Arrays, bool]:
    """w + (clip(w_k - w, C) + N(0, stddev^2)) for every parameter, and whether the update was longer than C.

    `sent` is the model w that the server sent, `model` the client's trained model w_k.
    clip(x, C) = x min(1, C / ||x||), with the norm over all parameters together (flat clipping, McMahan et al.,
    ICLR 2018). An update that contains NaN or infinity is replaced by zero, since it has no finite length.
    Parameters are returned in float64; a caller that sends them must round them (`rounded`) after the noise.
    `rng` is required if `stddev` > 0. Buffers are returned unchanged from `sent`.
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
        # In float64: if w is large, rounding before the noise is added would remove part of the noise.
        protected[name] = float64(sent[name]) + change
    return protected, too_long


def rounded(model: Arrays, sent: Arrays) -> Arrays:
    """The arrays of `model` in the dtypes of `sent`."""
    return {name: like(array, sent[name]) for name, array in model.items()}


def running_statistics(model: Arrays) -> list[str]:
    """Names of the buffers with averages over a client's examples (BatchNorm), which noise would make useless."""
    buffers = Layout.of(model).buffers
    return [name for name in buffers if name.rsplit(".", 1)[-1] in ("running_mean", "running_var")]


# ---------------------------------------------------------------- privacy cost


def epsilon(noise_multiplier: float, releases: int, delta: float) -> float:
    """The smallest epsilon for which this number of Gaussian releases together is (epsilon, delta)-private.

    `noise_multiplier` z = standard deviation / sensitivity of one release. T releases are equivalent to one
    release with multiplier z / sqrt(T) (Dong, Roth, Su, JRSS B 2022, corollary 3.3). Its exact delta(epsilon)
    (Balle, Wang, ICML 2018, theorem 8) is inverted numerically. Amplification by client sampling is not counted.
    Returns inf if z = 0.
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
    for _ in range(100):  # enough bisection steps for full float precision
        middle = 0.5 * (low + high)
        if _delta(middle, mu) > delta:
            low = middle
        else:
            high = middle
    return high


def _delta(eps: float, mu: float) -> float:
    """delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), without overflow.

    With a = eps/mu + mu/2 and b = eps/mu - mu/2, e^eps phi(a) = phi(b). Therefore the second term is
    phi(b) Phi(-a) / phi(a).
    """
    a, b = eps / mu + mu / 2.0, eps / mu - mu / 2.0
    density = math.exp(-0.5 * b * b) / math.sqrt(2.0 * math.pi)
    return 0.5 * math.erfc(b / math.sqrt(2.0)) - density * _mills(a)


def _mills(x: float) -> float:
    """Mills ratio Phi(-x) / phi(x) for x > 0, to nine digits."""
    if x < 25.0:
        return 0.5 * math.erfc(x / math.sqrt(2.0)) * math.sqrt(2.0 * math.pi) * math.exp(0.5 * x * x)
    square = x * x  # erfc underflows; the error of the asymptotic series is at most 105 / x^8
    return (1.0 - (1.0 - (3.0 - 15.0 / square) / square) / square) / x


# ---------------------------------------------------------------- adaptive clipping


def update_noise_multiplier(noise_multiplier: float, count_stddev: float) -> float:
    """The noise multiplier of the updates, such that they and the count of clipped updates together cost z.

    z is `noise_multiplier`, sigma_b is `count_stddev`: (z^-2 - sigma_b^-2)^(-1/2), for z < sigma_b. Andrew et al.
    (NeurIPS 2021, theorem 1) have 2 sigma_b, because they add or remove a client and count it as -1/2 or 1/2.
    Here an update of zero counts as 0 and a clipped update as 1.
    """
    if noise_multiplier == 0.0:
        return 0.0
    return float((noise_multiplier**-2 - count_stddev**-2) ** -0.5)


def next_clipping_norm(clipping_norm: float, clipped: float, target: float, lr: float) -> float:
    """C exp(lr (clipped - target)). C grows if the share of clipped updates is greater than `target`.

    Andrew et al., section 2.2, where the formula uses the share of updates that were not clipped.
    """
    return clipping_norm * math.exp(lr * (clipped - target))
