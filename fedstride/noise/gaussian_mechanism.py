"""The discrete Gaussian mechanism for clients' updates, and its privacy cost (epsilon, delta).

An update is clipped and brought onto a grid; whole numbers are added up and get whole noise. What follows, in
floating point, is made of the noised whole numbers and of nothing else.

Used by the server (`strategies/differential_privacy.py`) and by the client (`client_app/protection.py`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

import numpy as np
from array_api_compat import array_namespace, device

from fedstride.plain_numbers import is_number

from ..arrays.float64_sums import difference, float64, norm
from ..arrays.named import Arrays, Layout, host, like
from .discrete_gaussian import sample
from .keystream import Keystream

CLIPPING_NORMS = (1e-30, 1e30)
"""The smallest and largest allowed clipping norm C. The noise is a multiple of C, and would underflow or overflow
outside of this range."""


def is_between(value: object, least: float, most: float) -> bool:
    """Whether a received value is a number in [least, most]. True and False are not numbers."""
    return is_number(value) and least <= value <= most


NOISE_MULTIPLIERS = (1e-6, 1e30)
"""The smallest noise multiplier z above 0, and the largest. With less, the grid would have too many places."""

SIGMA = 2**20
"""The standard deviation of the noise, in units of the grid: so fine is the grid."""

GUARD = 1.0 - 2.0**-30
"""Where there is noise, updates are shortened by this factor, so that no rounding makes one longer than C."""


def clipped(sent: Arrays, model: Arrays, clipping_norm: float) -> tuple[Arrays, bool]:
    """clip(w_k - w, C) of every parameter, in float64, and whether the update was longer than C.

    `sent` is the model w that the server sent, `model` the client's trained model w_k.
    clip(x, C) = x min(1, C / ||x||), with the norm over all parameters together (flat clipping, McMahan et al.,
    ICLR 2018). An update that contains NaN or infinity is replaced by zero, since it has no finite length.
    """
    update = difference(model, sent, Layout.of(sent).parameters)
    length = norm(update)
    too_long = not length <= clipping_norm
    if not math.isfinite(length):
        return {name: array_namespace(array).zeros_like(array) for name, array in update.items()}, too_long
    factor = clipping_norm / length if too_long else 1.0
    return {name: array * factor for name, array in update.items()}, too_long


def protect(
    sent: Arrays, model: Arrays, *, clipping_norm: float, stddev: float, stream: Keystream | None
) -> tuple[Arrays, bool]:
    """w + (clip(w_k - w, C) + noise of this standard deviation), and whether the update was longer than C.

    Parameters are returned in float64; a caller that sends them must round them (`rounded`) after the noise.
    `stream` is required if `stddev` > 0. Buffers are returned unchanged from `sent`.
    """
    update, too_long = clipped(sent, model, clipping_norm)
    if stddev > 0.0:
        assert stream is not None
        unit = stddev / SIGMA
        update = _noised(_on_grid(update, unit), sent, unit, stream)
    return _moved(sent, update), too_long


def protect_mean(
    sent: Arrays, models: Sequence[Arrays], *, clipping_norm: float, stddev: float, stream: Keystream
) -> tuple[Arrays, list[bool]]:
    """w + (sum of clip(w_k - w, C) + noise of this standard deviation) / m, and which updates were longer than C.

    The sum is one of whole numbers: rounding of single updates cannot show in it. Otherwise as `protect`.
    """
    unit, total, long = stddev / SIGMA, dict[str, np.ndarray](), list[bool]()
    for model in models:
        update, too_long = clipped(sent, model, clipping_norm)
        long.append(too_long)
        for name, values in _on_grid(update, unit).items():
            total[name] = total.get(name, 0) + values
    return _moved(sent, _noised(total, sent, unit, stream, parts=len(models))), long


def fingerprint(sent: Arrays, models: Sequence[Arrays], *said: object) -> str:
    """A digest of all inputs of a release, so that no two different releases have the same noise.

    If they had, their difference would show the updates without noise.
    """
    digest = hashlib.sha256(repr((said, len(models))).encode())
    for model in (sent, *models):
        for name in sent:
            array = np.ascontiguousarray(host(model[name]))
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(array.tobytes())
    return digest.hexdigest()


def noised_count(count: int, stddev: float, stream: Keystream) -> float:
    """The count with noise of at least this standard deviation, at most `SIGMA`, if one client moves it by one."""
    unit = int(SIGMA // stddev)
    return (count * unit + int(sample(stream, SIGMA, 1)[0])) / unit


def _on_grid(update: Arrays, unit: float) -> dict[str, np.ndarray]:
    """The update in whole units, int64. Rounded towards zero, so that it becomes no longer."""
    return {name: np.trunc(host(array) * (GUARD / unit)).astype(np.int64) for name, array in update.items()}


def _noised(
    total: Mapping[str, np.ndarray], sent: Arrays, unit: float, stream: Keystream, *, parts: int = 1
) -> Arrays:
    """(total + noise) / parts, in float64, where `sent` is. `total`: whole units."""
    result = {}
    for name, values in total.items():
        noise = sample(stream, SIGMA, values.size).reshape(values.shape)
        xp = array_namespace(sent[name])
        result[name] = xp.asarray((values + noise) * (unit / parts), device=device(sent[name]))
    return result


def _moved(sent: Arrays, update: Arrays) -> Arrays:
    """w + update, in float64: if w is large, rounding would remove a part of the noise from a mean."""
    return {name: float64(array) + update[name] if name in update else array for name, array in sent.items()}


def rounded(model: Arrays, sent: Arrays) -> Arrays:
    """The arrays of `model` in the dtypes of `sent`."""
    return {name: like(array, sent[name]) for name, array in model.items()}


def running_statistics(model: Arrays) -> list[str]:
    """Names of the buffers with averages over a client's examples (BatchNorm), which noise would make useless."""
    buffers = Layout.of(model).buffers
    return [name for name in buffers if name.rsplit(".", 1)[-1] in ("running_mean", "running_var")]


# ---------------------------------------------------------------- privacy cost


def epsilon(noise_multiplier: float, releases: int, delta: float) -> float:
    """An epsilon with which this number of releases together is (epsilon, delta)-private; inf if z = 0.

    `noise_multiplier` z = standard deviation / sensitivity of one release. Each is rho-concentrated private with
    rho = 1 / (2 z^2), and rho adds up: over rounds, and where a release depends on earlier ones (Bun, Steinke,
    TCC 2016). That gives, for each order a > 1 (Canonne, Kamath, Steinke, NeurIPS 2020, proposition 12),

        epsilon = a rho + (log(1 / delta) - log(a)) / (a - 1) + log(1 - 1 / a),

    of which the smallest is taken. Amplification by client sampling is not counted.
    """
    if releases == 0:
        return 0.0
    if noise_multiplier == 0.0:
        return math.inf
    rho = 0.5 * releases / noise_multiplier**2
    orders = 1.0 + np.logspace(-9, 18, 2701)
    best = int(np.argmin(_by_order(orders, rho, delta)))
    low, high = orders[max(best - 1, 0)], orders[min(best + 1, len(orders) - 1)]
    finer = np.linspace(low, high, 2001)
    return max(0.0, float(_by_order(finer, rho, delta).min()))


def _by_order(orders: np.ndarray, rho: float, delta: float) -> np.ndarray:
    epsilons: np.ndarray = (
        orders * rho + (-math.log(delta) - np.log(orders)) / (orders - 1.0) + np.log1p(-1.0 / orders)
    )
    return epsilons


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
