"""Clipping and noise on updates, and the privacy cost, compared with exact sums and an independent accountant."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedstride.arrays.float64_sums import norm
from fedstride.arrays.named import Layout
from fedstride.noise import gaussian_mechanism
from fedstride.noise.keystream import Keystream, new_secret

PROPERTY = settings(max_examples=60, deadline=None, database=None, derandomize=True)
SENT = {"a.weight": np.array([[1.0, -2.0], [0.5, 3.0]]), "a.bias": np.array([0.0, 1.0]), "steps": np.array(7)}
STEP = {"a.weight": np.array([[3.0, 0.0], [0.0, 0.0]]), "a.bias": np.array([0.0, 4.0])}  # of length 5
MOVED = {name: SENT[name] + step for name, step in STEP.items()} | {"steps": np.array(9)}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def stream(seed: int = 0) -> Keystream:
    return Keystream(new_secret(seed), "test", 1, "")


def clipped(clipping_norm: float, stddev: float = 0.0) -> tuple[dict, bool]:
    return gaussian_mechanism.protect(SENT, MOVED, clipping_norm=clipping_norm, stddev=stddev, stream=stream())


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
    model, too_long = gaussian_mechanism.protect(SENT, SENT, clipping_norm=1e-300, stddev=0.0, stream=None)
    assert not too_long
    assert all(np.array_equal(model[name], SENT[name]) for name in SENT)


@PROPERTY
@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), st.floats(1e-3, 1e3), st.sampled_from(["f4", "f8"]))
def test_no_protected_update_is_longer_than_c(values: list[float], clipping_norm: float, dtype: str) -> None:
    sent = {"w": np.array([0.25, -0.5, 1.0], dtype)}
    model = {"w": sent["w"] + np.array(values, dtype)}
    moved, _ = gaussian_mechanism.protect(sent, model, clipping_norm=clipping_norm, stddev=0.0, stream=None)
    assert moved["w"].dtype == np.float64  # so that noise is not lost by rounding before a mean is computed
    protected = gaussian_mechanism.rounded(moved, sent)
    length = norm({"w": protected["w"].astype("f8") - sent["w"]})
    rounding = float(np.finfo(dtype).eps) * (np.abs(protected["w"]).max() + 1.0)
    assert length <= clipping_norm + 2.0 * rounding
    assert protected["w"].dtype == np.dtype(dtype)


def test_noise_has_the_given_stddev_and_is_independent_for_every_array() -> None:
    sent = {"a": np.zeros(200_000), "b": np.zeros(200_000)}
    model, _ = gaussian_mechanism.protect(sent, sent, clipping_norm=1.0, stddev=0.3, stream=stream())
    for array in model.values():
        assert array.std() == pytest.approx(0.3, rel=0.01)
        assert abs(array.mean()) < 0.3 * 4 / math.sqrt(array.size)
    assert abs(np.corrcoef(model["a"], model["b"])[0, 1]) < 0.01
    assert stats.kstest(model["a"][:20_000] / 0.3, "norm").pvalue > 1e-3


def test_torch_tensors_pass_through() -> None:
    import torch

    sent = {name: torch.tensor(array) for name, array in SENT.items()}
    moved = {name: torch.tensor(array) for name, array in MOVED.items()}
    got, _ = gaussian_mechanism.protect(sent, moved, clipping_norm=2.0, stddev=0.1, stream=stream(3))
    want, _ = gaussian_mechanism.protect(SENT, MOVED, clipping_norm=2.0, stddev=0.1, stream=stream(3))
    for name in Layout.of(SENT).parameters:
        assert isinstance(got[name], torch.Tensor)
        np.testing.assert_allclose(got[name].numpy(), want[name], rtol=1e-12)


def test_running_statistics_are_found() -> None:
    model = {"bn.weight": np.ones(2), "bn.running_mean": np.ones(2), "bn.num_batches_tracked": np.array(1)}
    assert gaussian_mechanism.running_statistics(model) == ["bn.running_mean"]
    assert gaussian_mechanism.running_statistics(SENT) == []


UPDATES = [
    {"a": np.array([0.3, -4.0, 1e-9]), "b": np.array([[2.5]])},
    {"a": np.array([0.1, 0.2, 0.3]), "b": np.zeros((1, 1))},
]
ZERO = {"a": np.zeros(3), "b": np.zeros((1, 1))}


@PROPERTY
@given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=4, max_size=40),
    st.floats(1e-6, 1e6),
    st.floats(1e-6, 1e3),
)
def test_on_the_grid_no_update_is_longer_than_c(values: list[float], clipping_norm: float, z: float) -> None:
    """In exact arithmetic: so one client moves the sum by at most 1 / z standard deviations."""
    sent, model = {"w": np.zeros(len(values))}, {"w": np.array(values)}
    update, _ = gaussian_mechanism.clipped(sent, model, clipping_norm)
    whole = gaussian_mechanism._on_grid(update, z * clipping_norm / gaussian_mechanism.SIGMA)["w"]
    square = sum(int(each) ** 2 for each in whole.tolist())
    assert square * Fraction(z) ** 2 <= gaussian_mechanism.SIGMA**2
    error = np.abs(whole * (z * clipping_norm / gaussian_mechanism.SIGMA) - update["w"])
    assert error.max() <= z * clipping_norm / gaussian_mechanism.SIGMA + np.abs(update["w"]).max() * 2.0**-29


def test_the_mean_is_that_of_the_clipped_updates_with_noise_on_their_sum() -> None:
    mean, long = gaussian_mechanism.protect_mean(ZERO, UPDATES, clipping_norm=1.0, stddev=0.5, stream=stream(4))
    bare = [gaussian_mechanism.clipped(ZERO, each, 1.0)[0] for each in UPDATES]
    only, _ = gaussian_mechanism.protect_mean(ZERO, [ZERO, ZERO], clipping_norm=1.0, stddev=0.5, stream=stream(4))
    assert long == [True, False]
    for name, noise in only.items():
        want = (bare[0][name] + bare[1][name]) / 2 + noise
        np.testing.assert_allclose(mean[name], want, atol=1e-6)
        assert np.array_equal(
            noise * 2 / (0.5 / gaussian_mechanism.SIGMA), np.rint(noise * 2 / (0.5 / gaussian_mechanism.SIGMA))
        )


def test_the_sum_is_all_that_the_mean_says_of_updates() -> None:
    """Other updates with the same sum give the same bits; floating-point sums of them would differ."""
    unit = 0.5 / gaussian_mechanism.SIGMA
    draws = np.random.default_rng(1).integers(-(2**17), 2**17, (3, 50)).astype(float)
    others = draws + np.array([[5.0], [-3.0], [-2.0]])
    sent = {"w": np.zeros(50)}

    def bits(rows: np.ndarray) -> bytes:
        models = [{"w": (row + 0.5 * np.sign(row)) * unit} for row in rows]
        out, _ = gaussian_mechanism.protect_mean(sent, models, clipping_norm=1e3, stddev=0.5, stream=stream())
        return out["w"].tobytes()

    assert bits(draws) == bits(others)


@pytest.mark.slow
def test_the_noised_count() -> None:
    drawn = np.array(
        [gaussian_mechanism.noised_count(7, 2.5, Keystream(new_secret(n), "c", 1, "")) for n in range(4000)]
    )
    assert drawn.mean() == pytest.approx(7.0, abs=0.15) and drawn.std() == pytest.approx(2.5, rel=0.04)
    assert gaussian_mechanism.noised_count(3, gaussian_mechanism.SIGMA, stream()) == int(
        gaussian_mechanism.noised_count(3, gaussian_mechanism.SIGMA, stream())
    )


def test_a_fingerprint_is_of_everything() -> None:
    found = {
        gaussian_mechanism.fingerprint(SENT, [MOVED], 1.0),
        gaussian_mechanism.fingerprint(MOVED, [SENT], 1.0),
        gaussian_mechanism.fingerprint(SENT, [MOVED, SENT], 1.0),
        gaussian_mechanism.fingerprint(SENT, [MOVED], 2.0),
        gaussian_mechanism.fingerprint(SENT, [MOVED], 1.0, [3]),
    }
    assert len(found) == 5 and gaussian_mechanism.fingerprint(SENT, [MOVED], 1.0) in found


# ---------------------------------------------------------------- privacy cost

PUBLISHED = [
    (1.0, 1, 1e-5, 4.7283870, 4.3771781),
    (1.0, 20, 1e-5, 30.1108599, 28.3734738),
    (0.1, 20, 1e-5, 1211.3107264, 1190.7317000),
    (2.5, 100, 1e-6, 27.8120485, 26.3569639),
    (10.0, 7, 1e-3, 0.7349012, 0.6332753),
    (0.7, 3, 1e-8, 17.2241864, 16.4269260),
]
"""z, releases, delta, and epsilon by dp-accounting 0.6.0: by Renyi divergences (orders 1 + 10^(-6...6), 4,000 of
them), and by the privacy loss distribution of continuous Gaussian noise, which no epsilon of ours may be below."""


@pytest.mark.parametrize(("z", "releases", "delta", "by_orders", "by_losses"), PUBLISHED)
def test_epsilon_is_that_of_an_independent_accountant(
    z: float, releases: int, delta: float, by_orders: float, by_losses: float
) -> None:
    found = gaussian_mechanism.epsilon(z, releases, delta)
    assert found == pytest.approx(by_orders, rel=2e-5) and by_losses < found


@pytest.mark.parametrize(("sigma", "shift"), [(1, 1), (2, 1), (3, 4), (10, 3), (40, 60), (7, 7)])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_epsilon_holds_for_the_probabilities_themselves(sigma: int, shift: int, delta: float) -> None:
    """The sum over all outcomes of max(0, P(y - shift) - e^epsilon P(y)) is at most delta."""
    eps = gaussian_mechanism.epsilon(sigma / shift, 1, delta)
    y = np.arange(-60 * sigma, 60 * sigma + shift + 1)
    logs = -(y.astype(float) ** 2) / (2 * sigma**2), -((y - shift).astype(float) ** 2) / (2 * sigma**2)
    q, p = (np.exp(each) / np.exp(each).sum() for each in logs)
    assert np.maximum(p - math.exp(eps) * q, 0.0).sum() <= delta


@PROPERTY
@given(st.floats(0.01, 100.0), st.integers(1, 10_000), st.floats(1e-12, 0.5))
def test_many_releases_are_one_with_less_noise(z: float, releases: int, delta: float) -> None:
    eps = gaussian_mechanism.epsilon(z, releases, delta)
    assert math.isfinite(eps) and eps >= 0.0
    assert eps == pytest.approx(gaussian_mechanism.epsilon(z / math.sqrt(releases), 1, delta), rel=1e-6, abs=1e-9)
    slack = 1e-6 * eps + 1e-9
    assert gaussian_mechanism.epsilon(z, releases + 1, delta) >= eps - slack
    assert gaussian_mechanism.epsilon(2 * z, releases, delta) <= eps + slack
    assert gaussian_mechanism.epsilon(z, releases, delta / 2) >= eps - slack


def test_epsilon_at_the_ends() -> None:
    assert gaussian_mechanism.epsilon(1.0, 0, 1e-5) == 0.0
    assert gaussian_mechanism.epsilon(0.0, 1, 1e-5) == math.inf
    assert gaussian_mechanism.epsilon(1e6, 1, 1e-5) < 1e-4
    assert math.isfinite(gaussian_mechanism.epsilon(1e-3, 1000, 1e-12))
    assert math.isfinite(gaussian_mechanism.epsilon(gaussian_mechanism.NOISE_MULTIPLIERS[0], 10**6, 1e-300))


# ---------------------------------------------------------------- adaptive clipping


def test_the_count_uses_a_part_of_the_privacy_cost() -> None:
    z, sigma_b = 0.7, 2.0
    z_delta = gaussian_mechanism.update_noise_multiplier(z, sigma_b)
    assert z_delta > z
    assert z_delta**-2 + sigma_b**-2 == pytest.approx(z**-2)
    assert gaussian_mechanism.update_noise_multiplier(0.0, sigma_b) == 0.0


def test_updates_and_count_together_cost_z() -> None:
    """A client whose update is zero moves the mean by up to C / m and the count by up to 1: one joint Gaussian."""
    z, sigma_b, c, m = 0.7, 2.0, 0.5, 10
    z_delta = gaussian_mechanism.update_noise_multiplier(z, sigma_b)
    apart = [(c / m) / (z_delta * c / m), 1.0 / sigma_b]  # in standard deviations, direction by direction
    assert math.hypot(*apart) == pytest.approx(1.0 / z)


def test_c_grows_if_too_many_are_clipped_and_converges_to_the_quantile() -> None:
    assert gaussian_mechanism.next_clipping_norm(1.0, 1.0, 0.5, 0.2) == pytest.approx(math.exp(0.1))
    assert gaussian_mechanism.next_clipping_norm(1.0, 0.0, 0.5, 0.2) == pytest.approx(math.exp(-0.1))
    lengths = rng(1).gamma(2.0, 3.0, 1000)
    c = 0.01
    for _ in range(300):
        c = gaussian_mechanism.next_clipping_norm(c, float((lengths > c).mean()), 0.3, 0.2)
    assert c == pytest.approx(np.quantile(lengths, 0.7), rel=0.02)
