"""Moments of examples: those of any parts together are those of all rows; values of a message are checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord
from hypothesis import given
from hypothesis import strategies as st
from own_files import SPECS

from fedstride.errors import ConfigError, ReplyError
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.spec import Spec
from fedstride.tasks.statistics import moments as module
from fedstride.tasks.statistics.moments import Moments, moments, normalisation, pooled


def table(columns: int) -> Spec:
    return Spec(Inputs(Kind.TABLE, (columns,)), 2)


def expected(rows: np.ndarray) -> Moments:
    """The definition, in extended precision."""
    values = rows.astype(np.longdouble)
    known = ~np.isnan(values)
    count = known.sum(0)
    mean = np.where(known, values, 0).sum(0) / np.maximum(count, 1)
    return Moments(count, mean, np.where(known, (values - mean) ** 2, 0).sum(0))


def assert_same(found: Moments, wanted: Moments, spread: float = 1.0) -> None:
    """Equal up to float64: the mean relative to its size, the squares relative to those of the values' spread."""
    np.testing.assert_array_equal(found.count, wanted.count)
    np.testing.assert_allclose(found.mean, wanted.mean.astype(float), rtol=1e-14, atol=1e-13 * spread)
    np.testing.assert_allclose(found.squares, wanted.squares.astype(float), rtol=1e-6, atol=1e-12 * spread**2)


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32 - 1),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    offset=st.sampled_from([0.0, -3.0, 1e8, -1e8]),
    missing=st.sampled_from([0.0, 0.2, 0.9, 1.0]),
    order=st.randoms(use_true_random=False),
)
def test_the_moments_of_any_parts_are_those_of_all_rows(
    seed: int, cuts: list[int], offset: float, missing: float, order: Any
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(offset, 2.0, (40, 3))
    rows[rng.random(rows.shape) < missing] = np.nan
    parts = [moments(part, table(3)) for part in np.split(rows, sorted(cuts))]  # some parts are empty
    order.shuffle(parts)
    assert_same(pooled(parts), expected(rows), spread=2.0)
    assert_same(moments(rows, table(3)), expected(rows), spread=2.0)
    grouped = pooled([pooled(parts[:1]), pooled(parts[1:])]) if len(parts) > 1 else pooled(parts)
    assert_same(grouped, expected(rows), spread=2.0)


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(1e8, 1.0, (50, 3))
    monkeypatch.setattr(module, "CHUNK", 7)
    assert_same(moments(x, table(3)), expected(x))


def test_one_value_for_each_feature_or_channel() -> None:
    rng = np.random.default_rng(0)
    frames = rng.normal(5, 2, (6, 5, 2)).astype(np.float32)
    assert_same(moments(frames, SPECS[Kind.FRAMES]), expected(frames.reshape(-1, 2)))
    signals = rng.integers(-30_000, 30_000, (6, 1, 6)).astype(np.int16)
    assert_same(moments(signals, SPECS[Kind.SIGNAL]), expected(signals.reshape(-1, 1) / 32_768))
    colour = Spec.images((3, 4, 5), 2, (), ())
    images = rng.integers(0, 256, (6, 3, 4, 5), dtype=np.uint8)
    assert_same(moments(images, colour), expected(np.moveaxis(images, 1, -1).reshape(-1, 3) / 255))
    mean, std = normalisation(moments(images, colour))
    np.testing.assert_allclose(mean, images.mean((0, 2, 3)) / 255)
    np.testing.assert_allclose(std, images.std((0, 2, 3)) / 255)


def test_tokens_have_no_moments() -> None:
    with pytest.raises(ConfigError, match=r"kind = 'tokens' is not allowed: .* image, signal, frames, table"):
        moments(np.zeros((2, 4), np.uint16), SPECS[Kind.TOKENS])


@pytest.mark.parametrize("value", [0.0, 0.1, 1e8 + 0.1, -7.3])
def test_a_constant_column_has_the_deviation_one(value: float) -> None:
    rows = np.full((1000, 1), value)
    parts = [moments(part, table(1)) for part in np.split(rows, [1, 333, 333, 700])]
    assert normalisation(pooled(parts)) == ((value,), (1.0,))


def test_columns_that_float32_cannot_tell_apart() -> None:
    rows = np.array([[1e8, 1e-41, 1e-9], [1e8 + 2, 0.0, 0.0]])
    mean, std = normalisation(moments(rows, table(3)))
    assert mean == (1e8 + 1, 5e-42, 5e-10)
    assert std == (1.0, 1.0, 5e-10)


def test_a_column_without_values() -> None:
    found = moments(np.full((3, 1), np.nan), table(1))
    assert (found.count.tolist(), found.mean.tolist(), found.squares.tolist()) == ([0.0], [0.0], [0.0])
    assert normalisation(found) == ((0.0,), (1.0,))
    assert normalisation(moments(np.zeros((0, 1)), table(1))) == ((0.0,), (1.0,))


# ---------------------------------------------------------------- in a message


def test_moments_survive_a_message() -> None:
    found = moments(np.random.default_rng(0).normal(3, 2, (20, 2)), table(2))
    back = Moments.unflatten(ConfigRecord(found.flatten()), 2)
    for name in ("count", "mean", "squares"):
        np.testing.assert_array_equal(getattr(back, name), getattr(found, name))


def test_without_values_mean_and_squares_do_not_count() -> None:
    record = {"moments.count": [0.0], "moments.mean": [5.0], "moments.squares": [1.0]}
    found = Moments.unflatten(record, 1)
    assert (found.mean.tolist(), found.squares.tolist()) == ([0.0], [0.0])


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("count", [1.0], r"has shape \(1,\), but must be a list of 2 numbers"),
        ("count", [-1.0, 1.0], "contains -1.0, which is not allowed: it must be from 0 to"),
        ("count", [2.0**54, 1.0], "contains 1.8"),
        ("mean", [np.nan, 1.0], "contains nan"),
        ("mean", [1.0, -np.inf], "contains -inf"),
        ("mean", [1.0, 1e39], r"contains 1e\+39"),
        ("squares", [-1e-300, 1.0], "contains -1e-300"),
        ("squares", [np.inf, 1.0], "contains inf"),
        ("squares", 1.0, "shape"),
        ("squares", ["a", "b"], "is not a list of 2 numbers"),
        ("squares", None, r"is not a list of 2 numbers \(KeyError\)"),
    ],
)
def test_moments_that_are_refused(key: str, value: Any, said: str) -> None:
    record = {f"moments.{name}": [1.0, 1.0] for name in ("count", "mean", "squares")}
    record |= {f"moments.{key}": value}
    if value is None:
        del record[f"moments.{key}"]
    with pytest.raises(ReplyError, match=rf"moments.{key} .*{said}"):
        Moments.unflatten(record, 2)


def test_no_allowed_values_overflow() -> None:
    ends = [
        Moments.unflatten(
            {
                "moments.count": [module.MOST],
                "moments.mean": [mean],
                "moments.squares": [module.MOST * module.LARGEST**2],
            },
            1,
        )
        for mean in (-module.LARGEST, module.LARGEST)
    ]
    mean, std = normalisation(pooled(ends * 1000))
    assert np.isfinite([*mean, *std]).all()
