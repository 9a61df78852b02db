"""Draws from a counter: SplitMix64 in plain integers, shares, independence of clients, calls, steps and sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab.engine.vectorized.random_draws import CALLS, DRAWS, CountedDraws, drawn

WORD = 2**64


def splitmix64(key: int, number: int) -> int:
    """The published algorithm: the state after `number + 1` steps from `key`, mixed."""
    z = (key + (number + 1) * 0x9E3779B97F4A7C15) % WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def keys(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def kept(own: torch.Tensor, step: int = 0, shape: tuple[int, ...] = (20, 300), p: float = 0.5) -> torch.Tensor:
    return CountedDraws(own, step).keep(torch.zeros(()), shape, p, images=False)


def test_the_published_numbers_of_the_algorithm() -> None:
    """The first outputs for the seed 1234567, as in the implementations of several languages."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [splitmix64(1234567, n) for n in range(4)] == published
    assert drawn(keys(1234567), 0, 4)[0].tolist() == [each >> 11 for each in published]


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**62), st.integers(1, 5))
def test_equals_plain_integers(key: int, start: int, count: int) -> None:
    found = drawn(keys(key, 0), start, count)
    for row, own in zip(found.tolist(), (key, 0), strict=True):
        assert row == [splitmix64(own, start + n) >> 11 for n in range(count)]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_a_share_of_1_minus_p_is_kept(p: float) -> None:
    found = kept(keys(3, 4), p=p)
    assert found.unique().tolist() == [0.0, pytest.approx(1.0 / (1.0 - p))]
    share = float((found > 0).double().mean())
    assert abs(share - (1.0 - p)) < 5.0 * np.sqrt(p * (1.0 - p) / found.numel())


def test_with_p_of_1_nothing_is_kept() -> None:
    assert not kept(keys(3), p=1.0).any()


def test_a_client_has_its_own_draws_whoever_is_beside_it_and_however_its_batch_is_filled() -> None:
    alone = kept(keys(5))[0]
    assert torch.equal(kept(keys(9, 5, 2))[1], alone)
    assert torch.equal(kept(keys(5), shape=(30, 300))[0, :20], alone)


def test_clients_calls_steps_and_neighbouring_draws_are_not_correlated() -> None:
    draws = CountedDraws(keys(7, 8), 0)
    first, second = (draws.keep(torch.zeros(()), (100, 300), 0.5, images=False) for _ in range(2))
    later = kept(keys(7, 8), step=1, shape=(100, 300))
    columns = [first[0], first[1], second[0], later[0], first[0].roll(1), first[0].roll(300)]
    found = np.corrcoef(np.stack([each.flatten().numpy() for each in columns]))
    assert np.abs(found - np.eye(len(columns))).max() < 5.0 / np.sqrt(30_000)


def test_no_two_draws_of_a_client_have_one_number() -> None:
    numbers = [
        (step * CALLS + call) * DRAWS + n for step in (0, 1) for call in (0, 1, CALLS - 1) for n in (0, DRAWS - 1)
    ]
    assert len(set(numbers)) == len(numbers)


def test_more_draws_than_there_are_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="is not stacked"):
        kept(keys(1), shape=(DRAWS, 2))
