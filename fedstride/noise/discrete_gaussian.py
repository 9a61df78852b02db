"""Exact samples of the discrete Gaussian: whole numbers y with P(y) proportional to exp(-y^2 / (2 sigma^2)).

Noise of floating-point numbers can be recognised by its last bits (Mironov, CCS 2012); whole numbers on a grid
have none. With vectors of whole numbers that differ by at most D (norm) between neighbours, one sample for each
entry is D^2 / (2 sigma^2)-concentrated differentially private (Canonne, Kamath, Steinke, NeurIPS 2020, theorem
14).

Algorithm 3 of that paper, with t = sigma. A candidate has U uniform in {0, ..., sigma - 1}, V geometric with
P(V >= k) = e^-k, a sign, and X = U + sigma V. It is accepted with the probability

    exp(-U / sigma) exp(-(X - sigma)^2 / (2 sigma^2)) = exp(-(2 sigma U + (X - sigma)^2) / (2 sigma^2)),

unless it is -0. Each comparison of a uniform number with e^-x is exact: float64 decides where its error cannot
matter; else more bits are drawn, and compared with e^-x to as many digits as are needed. So samples are the same
on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

import numpy as np

from .keystream import Keystream

MOST_SIGMA = 2**24
"""So that squares of candidates fit into 64 bits."""

ACCEPTED = 0.45
"""At least this share of candidates is accepted."""

_AT_ONCE = 2**16
_WORD = 2.0**64
_UNSURE = 2.0**-30
"""Relative distance within which float64 does not decide. Its errors are below 2^-40."""

_FEW = np.uint64(2**32)
"""Below this word, its own width is more than float64 may ignore."""


def sample(stream: Keystream, sigma: int, count: int) -> np.ndarray:
    """Independent samples, int64 (count,). `sigma`: a whole number in [1, 2^24]; the standard deviation.

    Equal streams and arguments give equal samples. Raises ValueError for another sigma.
    """
    if not 1 <= sigma <= MOST_SIGMA:
        raise ValueError(f"sigma = {sigma} is not a whole number from 1 to {MOST_SIGMA}")
    samples = np.empty(count, np.int64)
    have = 0
    while have < count:
        candidates = min(_AT_ONCE, int((count - have) / ACCEPTED) + 64)
        accepted = _accepted(stream, sigma, candidates)[: count - have]
        samples[have : have + len(accepted)] = accepted
        have += len(accepted)
    return samples


def _accepted(stream: Keystream, sigma: int, candidates: int) -> np.ndarray:
    """The accepted ones of so many candidates, in order."""
    first, second, third = stream.words(3 * candidates).reshape(3, candidates)
    sign, word = first & np.uint64(1), first >> np.uint64(1)
    inside = word < np.uint64(2**63 // sigma * sigma)  # so that the rest below is uniform
    u = (word % np.uint64(sigma)).astype(np.int64)
    x = u + sigma * _geometric(second, stream.more)
    inside &= ~((sign == 1) & (x == 0))
    exponent = 2 * sigma * u + (x - sigma) ** 2
    inside &= _below_exp(third, exponent, 2 * sigma**2, stream.more)
    samples: np.ndarray = np.where(sign == 1, -x, x)[inside]
    return samples


def _geometric(words: np.ndarray, more: Callable[[], int]) -> np.ndarray:
    """For each uniform number the largest k with which it is below e^-k, int64."""
    logs = -np.log((words.astype(np.float64) + 0.5) / _WORD)
    largest = np.floor(logs).astype(np.int64)
    unsure = (np.abs(logs - np.rint(logs)) <= _UNSURE * (1.0 + logs)) | (words < _FEW)
    for at in np.flatnonzero(unsure):
        uniform, k = _Uniform(int(words[at]), more), 0
        while uniform.is_below_exp(k + 1, 1):
            k += 1
        largest[at] = k
    return largest


def _below_exp(words: np.ndarray, numerators: np.ndarray, denominator: int, more: Callable[[], int]) -> np.ndarray:
    """Whether each uniform number is below exp(-numerator / denominator), bool."""
    limits = np.exp(-(numerators / denominator)) * _WORD
    values = words.astype(np.float64)
    below: np.ndarray = values < limits
    unsure = (np.abs(values - limits) <= _UNSURE * limits) | ((words < _FEW) & (limits < 2.0 * float(_FEW)))
    for at in np.flatnonzero(unsure):
        below[at] = _Uniform(int(words[at]), more).is_below_exp(int(numerators[at]), denominator)
    return below


class _Uniform:
    """A uniform number in [0, 1) of which the first 64 bits are known; `more` draws further ones."""

    def __init__(self, word: int, more: Callable[[], int]) -> None:
        self._value, self._bits, self._more = word, 64, more

    def is_below_exp(self, numerator: int, denominator: int) -> bool:
        """Whether it is below exp(-numerator / denominator), exactly."""
        if numerator == 0:
            return True
        while True:
            least, most = _exp(numerator, denominator, digits=self._bits // 2)
            if Fraction(self._value + 1, 2**self._bits) <= least:
                return True
            if Fraction(self._value, 2**self._bits) >= most:
                return False
            self._value, self._bits = (self._value << 64) | self._more(), self._bits + 64


def _exp(numerator: int, denominator: int, digits: int) -> tuple[Fraction, Fraction]:
    """Two numbers between which exp(-numerator / denominator) is, equal to about so many digits."""

    def exp(rounding: str) -> Decimal:
        context = Context(prec=digits, rounding=rounding, Emin=MIN_EMIN, Emax=MAX_EMAX)
        quotient = context.divide(Decimal(numerator), Decimal(denominator))
        return context.exp(context.minus(quotient))  # rounded to nearest, whatever the context says

    least, most = exp(ROUND_CEILING), exp(ROUND_FLOOR)
    step = Fraction(10) ** (max(least.adjusted(), most.adjusted()) - digits + 1)
    return Fraction(least) - step, Fraction(most) + step
