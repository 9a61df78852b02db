"""Samples of the discrete Gaussian, against its probabilities; and the stream of a secret."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from fedstride.noise import discrete_gaussian
from fedstride.noise.discrete_gaussian import MOST_SIGMA, sample
from fedstride.noise.keystream import Keystream, is_secret, new_secret


def stream(about: str = "x", seed: int = 1) -> Keystream:
    return Keystream(new_secret(seed), "test", 3, about)


def probabilities(sigma: int) -> tuple[np.ndarray, np.ndarray]:
    values = np.arange(-40 * sigma, 40 * sigma + 1)
    weights = np.exp(-(values**2) / (2.0 * sigma**2))
    return values, weights / weights.sum()


# ---------------------------------------------------------------- samples


@pytest.mark.parametrize("sigma", [1, 2, 3, 7, 50])
def test_values_have_their_probabilities(sigma: int) -> None:
    count = 400_000
    drawn = sample(stream(), sigma, count)
    values, chances = probabilities(sigma)
    seen = np.bincount(drawn + 40 * sigma, minlength=len(values))
    often = chances * count >= 10
    rest = count - seen[often].sum(), count * (1 - chances[often].sum())
    chi = ((seen[often] - chances[often] * count) ** 2 / (chances[often] * count)).sum()
    chi += (rest[0] - rest[1]) ** 2 / max(rest[1], 1e-9)
    assert stats.chi2.sf(chi, often.sum()) > 1e-3


@pytest.mark.parametrize("sigma", [2**10, 2**20, MOST_SIGMA, 999_983])
def test_a_large_one_is_nearly_normal(sigma: int) -> None:
    drawn = sample(stream(), sigma, 200_000) / sigma
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    assert drawn.std() == pytest.approx(1.0, rel=0.01) and abs(drawn.mean()) < 0.01
    odd = sample(stream("more"), sigma, 50_000) % 2  # the last place is as it comes
    assert abs(odd.mean() - 0.5) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [1, 5, 2**20])
def test_where_float64_decides_it_decides_as_all_digits_do(sigma: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = sample(stream(), sigma, 1500)
    monkeypatch.setattr(discrete_gaussian, "_UNSURE", 4.0)
    assert np.array_equal(sample(stream(), sigma, 1500), fast)


@pytest.mark.parametrize(
    ("numerator", "denominator"), [(1, 1), (1, 3), (7, 2), (2**50 + 1, 2**51), (30, 1), (1, 2**70)]
)
def test_a_comparison_next_to_the_limit_is_exact(numerator: int, denominator: int) -> None:
    """The 64 bits of the limit itself do not decide; further ones do, on both sides."""
    least, most = discrete_gaussian._exp(numerator, denominator, digits=200)
    assert 0 < most - least < least * Fraction(1, 10**190)
    value = math.floor(least * 2**192)
    words = [(value >> 64) & (2**64 - 1), value & (2**64 - 1)]

    def below(first: int, *more: int) -> bool:
        rest = iter(more)
        return discrete_gaussian._Uniform(first, lambda: next(rest)).is_below_exp(numerator, denominator)

    assert below(value >> 128, words[0], max(words[1] - 1, 0), 0) is (words[1] > 0)
    assert not below(value >> 128, words[0], min(words[1] + 2, 2**64 - 1), 0)


def test_zero_is_not_twice_as_frequent() -> None:
    drawn = sample(stream(), 1, 300_000)
    chances = probabilities(1)[1]
    assert (drawn == 0).mean() == pytest.approx(chances.max(), abs=0.005)
    assert (drawn > 0).mean() == pytest.approx((drawn < 0).mean(), abs=0.005)


def test_as_many_as_are_wanted() -> None:
    assert [len(sample(stream(), 3, count)) for count in (0, 1, 17, 70_000)] == [0, 1, 17, 70_000]
    assert sample(stream(), 3, 4).dtype == np.int64


@pytest.mark.parametrize("sigma", [0, -1, MOST_SIGMA + 1])
def test_sigma_out_of_range(sigma: int) -> None:
    with pytest.raises(ValueError, match=f"sigma = {sigma} is not"):
        sample(stream(), sigma, 1)


# ---------------------------------------------------------------- bits


def test_the_cipher_is_chacha20() -> None:
    """The first block of RFC 8439, appendix A.1, test vector 1: key, nonce and counter of zeros."""
    found = stream()
    found._key = bytes(32)
    block = found._stream(0).update(bytes(64))
    assert block.hex().startswith("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")


def test_other_purposes_rounds_contents_and_secrets_have_other_bits() -> None:
    secret = new_secret(1)
    streams = [
        Keystream(secret, "a", 1, "x"),
        Keystream(secret, "b", 1, "x"),
        Keystream(secret, "a", 2, "x"),
        Keystream(secret, "a", 1, "y"),
        Keystream(new_secret(2), "a", 1, "x"),
        Keystream(new_secret(), "a", 1, "x"),
    ]
    first = [tuple(each.words(4).tolist()) for each in streams]
    assert len(set(first)) == len(first)
    assert tuple(Keystream(secret, "a", 1, "x").words(4).tolist()) == first[0]
    again = Keystream(secret, "a", 1, "x")
    assert [again.more(), again.more()] != list(first[0][:2])  # the two streams of a key share nothing


def test_a_secret_has_256_bits() -> None:
    drawn = {new_secret() for _ in range(20)}
    assert len(drawn) == 20 and all(len(bytes.fromhex(each)) == 32 and is_secret(each) for each in drawn)
    assert new_secret(5) == new_secret(5) != new_secret(6) and is_secret(new_secret(5))
    for other in ("", "ab", "g" * 64):
        with pytest.raises(ValueError, match="64 hexadecimal digits"):
            Keystream(other, "a", 1, "x")
    assert not any(map(is_secret, ("", "ab", None, 5, "g" * 64, new_secret(1).upper(), new_secret(1)[1:])))
