"""Clipping and noise on one update, and the privacy cost, compared with independent integrals and formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedstride import mechanism, seeds
from fedstride.arrays import Layout, norm

PROPERTY = settings(max_examples=60, deadline=None, database=None, derandomize=True)
SENT = {"a.weight": np.array([[1.0, -2.0], [0.5, 3.0]]), "a.bias": np.array([0.0, 1.0]), "steps": np.array(7)}
STEP = {"a.weight": np.array([[3.0, 0.0], [0.0, 0.0]]), "a.bias": np.array([0.0, 4.0])}  # of length 5
MOVED = {name: SENT[name] + step for name, step in STEP.items()} | {"steps": np.array(9)}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def clipped(clipping_norm: float, stddev: float = 0.0) -> tuple[dict, bool]:
    return mechanism.protect(SENT, MOVED, clipping_norm=clipping_norm, stddev=stddev, rng=rng())


# ---------------------------------------------------------------- one update


def test_a_long_update_is_shortened_to_c_in_its_direction() -> None:
    model, too_long = clipped(2.5)
    assert too_long
    np.testing.assert_allclose(model["a.weight"], SENT["a.weight"] + 0.5 * STEP["a.weight"], rtol=1e-15)
    np.testing.assert_allclose(model["a.bias"], SENT["a.bias"] + 0.5 * STEP["a.bias"], rtol=1e-15)


@pytest.mark.parametrize("clipping_norm", [5.0, 6.0, 1e300])
def test_a_short_update_is_not_changed(clipping_norm: float) -> None:
    model, too_long = clipped(clipping_norm)
    assert not too_long
    for name in STEP:
        np.testing.assert_array_equal(model[name], MOVED[name])


def test_buffers_are_those_that_were_sent() -> None:
    assert clipped(5.0)[0]["steps"] == 7
    assert list(clipped(5.0)[0]) == list(SENT)


def test_an_update_of_zero_has_no_direction_to_shorten() -> None:
    model, too_long = mechanism.protect(SENT, SENT, clipping_norm=1e-300, stddev=0.0, rng=None)
    assert not too_long
    assert all(np.array_equal(model[name], SENT[name]) for name in SENT)


@PROPERTY
@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), st.floats(1e-3, 1e3), st.sampled_from(["f4", "f8"]))
def test_no_protected_update_is_longer_than_c(values: list[float], clipping_norm: float, dtype: str) -> None:
    sent = {"w": np.array([0.25, -0.5, 1.0], dtype)}
    model = {"w": sent["w"] + np.array(values, dtype)}
    moved, _ = mechanism.protect(sent, model, clipping_norm=clipping_norm, stddev=0.0, rng=None)
    assert moved["w"].dtype == np.float64  # so that noise is not lost by rounding before a mean is computed
    protected = mechanism.rounded(moved, sent)
    length = norm({"w": protected["w"].astype("f8") - sent["w"]})
    rounding = float(np.finfo(dtype).eps) * (np.abs(protected["w"]).max() + 1.0)
    assert length <= clipping_norm + 2.0 * rounding
    assert protected["w"].dtype == np.dtype(dtype)


def test_noise_has_the_given_stddev_and_is_independent_for_every_array() -> None:
    sent = {"a": np.zeros(200_000), "b": np.zeros(200_000)}
    model, _ = mechanism.protect(sent, sent, clipping_norm=1.0, stddev=0.3, rng=rng())
    for array in model.values():
        assert array.std() == pytest.approx(0.3, rel=0.01)
        assert abs(array.mean()) < 0.3 * 4 / math.sqrt(array.size)
    assert abs(np.corrcoef(model["a"], model["b"])[0, 1]) < 0.01
    assert stats.kstest(model["a"][:20_000] / 0.3, "norm").pvalue > 1e-3


def test_torch_tensors_pass_through() -> None:
    import torch

    sent = {name: torch.tensor(array) for name, array in SENT.items()}
    moved = {name: torch.tensor(array) for name, array in MOVED.items()}
    got, _ = mechanism.protect(sent, moved, clipping_norm=2.0, stddev=0.1, rng=rng(3))
    want, _ = mechanism.protect(SENT, MOVED, clipping_norm=2.0, stddev=0.1, rng=rng(3))
    for name in Layout.of(SENT).parameters:
        assert isinstance(got[name], torch.Tensor)
        np.testing.assert_allclose(got[name].numpy(), want[name], rtol=1e-12)


def test_running_statistics_are_found() -> None:
    model = {"bn.weight": np.ones(2), "bn.running_mean": np.ones(2), "bn.num_batches_tracked": np.array(1)}
    assert mechanism.running_statistics(model) == ["bn.running_mean"]
    assert mechanism.running_statistics(SENT) == []


def test_a_secret_draw_needs_its_secret() -> None:
    def drawn(*named: object) -> list[float]:
        return seeds.secret_generator(*named).normal(size=3).tolist()  # type: ignore[arg-type]

    draws = [drawn("a", "p", 1, 2), drawn("b", "p", 1, 2), drawn("a", "q", 1, 2), drawn("a", "p", 2, 2)]
    assert drawn("a", "p", 1, 2) == draws[0]
    assert len({tuple(draw) for draw in [*draws, drawn("a", "p", 1, 3)]}) == 5


# ---------------------------------------------------------------- privacy cost


def integrated_delta(eps: float, sigma: float, releases: int) -> float:
    """The hockey-stick divergence of N(T, T sigma^2) from N(0, T sigma^2), integrated on a fine grid."""
    spread = sigma * math.sqrt(releases)
    x = np.linspace(-12 * spread, releases + 12 * spread, 4_000_001)
    p, q = stats.norm.pdf(x, releases, spread), stats.norm.pdf(x, 0.0, spread)
    return float(np.trapezoid(np.maximum(p - math.exp(eps) * q, 0.0), x))


@pytest.mark.parametrize(
    ("sigma", "releases", "delta"),
    [(1.0, 1, 1e-5), (3.730632, 1, 1e-5), (5.0, 20, 1e-6), (0.7, 3, 1e-3), (50, 9, 0.1)],
)
def test_epsilon_against_an_integral(sigma: float, releases: int, delta: float) -> None:
    eps = mechanism.epsilon(sigma, releases, delta)
    if eps > 0:
        assert integrated_delta(eps, sigma, releases) == pytest.approx(delta, rel=1e-4)
    else:
        assert integrated_delta(0.0, sigma, releases) <= delta


def test_epsilon_as_published() -> None:
    """The analytic Gaussian mechanism needs sigma = 3.730632 for (1, 1e-5); the classic one needs 4.84."""
    assert mechanism.epsilon(3.730632, 1, 1e-5) == pytest.approx(1.0, abs=1e-5)


@PROPERTY
@given(st.floats(0.01, 100.0), st.integers(1, 10_000), st.floats(1e-12, 0.5))
def test_many_releases_are_one_with_less_noise(z: float, releases: int, delta: float) -> None:
    eps = mechanism.epsilon(z, releases, delta)
    assert math.isfinite(eps) and eps >= 0.0
    assert eps == pytest.approx(mechanism.epsilon(z / math.sqrt(releases), 1, delta), rel=1e-6, abs=1e-9)
    assert mechanism.epsilon(z, releases + 1, delta) >= eps
    assert mechanism.epsilon(2 * z, releases, delta) <= eps
    assert mechanism.epsilon(z, releases, delta / 2) >= eps


def test_epsilon_at_the_ends() -> None:
    assert mechanism.epsilon(1.0, 0, 1e-5) == 0.0
    assert mechanism.epsilon(0.0, 1, 1e-5) == math.inf
    assert mechanism.epsilon(1e6, 1, 1e-5) < 1e-5
    assert math.isfinite(mechanism.epsilon(1e-3, 1000, 1e-12))


def test_the_series_is_continuous_with_the_function() -> None:
    below, above = mechanism._mills(24.999999), mechanism._mills(25.0)
    assert below == pytest.approx(above, rel=1e-6)
    assert mechanism._mills(3.0) == pytest.approx(stats.norm.sf(3.0) / stats.norm.pdf(3.0), rel=1e-12)
    assert mechanism._mills(30.0) == pytest.approx(
        math.exp(stats.norm.logsf(30.0) - stats.norm.logpdf(30.0)), rel=1e-9
    )


# ---------------------------------------------------------------- adaptive clipping


def test_the_count_uses_a_part_of_the_privacy_cost() -> None:
    z, sigma_b = 0.7, 2.0
    z_delta = mechanism.update_noise_multiplier(z, sigma_b)
    assert z_delta > z
    assert z_delta**-2 + sigma_b**-2 == pytest.approx(z**-2)
    assert mechanism.update_noise_multiplier(0.0, sigma_b) == 0.0


def test_updates_and_count_together_cost_z() -> None:
    """A client whose update is zero moves the mean by up to C / m and the count by up to 1: one joint Gaussian."""
    z, sigma_b, c, m = 0.7, 2.0, 0.5, 10
    z_delta = mechanism.update_noise_multiplier(z, sigma_b)
    apart = [(c / m) / (z_delta * c / m), 1.0 / sigma_b]  # in standard deviations, direction by direction
    assert math.hypot(*apart) == pytest.approx(1.0 / z)


def test_c_grows_if_too_many_are_clipped_and_converges_to_the_quantile() -> None:
    assert mechanism.next_clipping_norm(1.0, 1.0, 0.5, 0.2) == pytest.approx(math.exp(0.1))
    assert mechanism.next_clipping_norm(1.0, 0.0, 0.5, 0.2) == pytest.approx(math.exp(-0.1))
    lengths = rng(1).gamma(2.0, 3.0, 1000)
    c = 0.01
    for _ in range(300):
        c = mechanism.next_clipping_norm(c, float((lengths > c).mean()), 0.3, 0.2)
    assert c == pytest.approx(np.quantile(lengths, 0.7), rel=0.02)
