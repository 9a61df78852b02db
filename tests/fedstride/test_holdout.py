"""Held-out examples: disjoint from those of training, the same in every round, others for each client and seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstride.errors import DataError
from fedstride.tasks.holdout import hold_out


@given(st.integers(2, 300), st.floats(0.001, 0.999), st.integers(0, 5), st.integers(0, 5))
def test_every_example_is_on_one_side(count: int, share: float, seed: int, client: int) -> None:
    kept, held_out = hold_out(count, share, seed=seed, client=client)
    assert sorted([*kept, *held_out]) == list(range(count))
    assert len(kept) >= 1 and len(held_out) >= 1
    assert abs(len(held_out) - share * count) <= 1.0
    again = hold_out(count, share, seed=seed, client=client)
    assert np.array_equal(kept, again[0]) and np.array_equal(held_out, again[1])


def test_none_by_default() -> None:
    kept, held_out = hold_out(5, 0.0, seed=1, client=0)
    assert (kept.tolist(), held_out.tolist()) == ([0, 1, 2, 3, 4], [])
    assert hold_out(1, 0.0, seed=1, client=0)[0].tolist() == [0]


def test_other_clients_and_seeds_hold_out_others() -> None:
    drawn = {
        tuple(hold_out(100, 0.2, seed=seed, client=client)[1]) for seed, client in ((1, 0), (1, 1), (2, 0), (2, 1))
    }
    assert len(drawn) == 4


def test_one_example_cannot_be_divided() -> None:
    with pytest.raises(DataError, match=r"client 3 has 1 examples; with holdout = 0.2 it needs at least 2"):
        hold_out(1, 0.2, seed=1, client=3)
