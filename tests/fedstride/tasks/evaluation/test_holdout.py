"""Held-out examples: disjoint from those of training, stable when examples are added, decided by a key."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstride.errors import DataError
from fedstride.tasks.evaluation.holdout import (
    digest_of,
    digests_of,
    draws_of,
    folds_of,
    held_key,
    hold_out,
    key_of,
    stacked,
)

KEY = key_of(0)


def draws(count: int, key: bytes = KEY, start: int = 0) -> np.ndarray:
    return draws_of(stacked(digest_of(str(i).encode()) for i in range(start, start + count)), key)


@given(st.integers(2, 300), st.floats(0.001, 0.999), st.integers(0, 5))
def test_every_example_is_on_one_side(count: int, share: float, split_seed: int) -> None:
    found = draws(count, key_of(split_seed))
    kept, held_out = hold_out(found, share, 0)
    assert sorted([*kept, *held_out]) == list(range(count))
    assert len(kept) >= 1 and len(held_out) >= 1
    again = hold_out(found, share, 3)
    assert np.array_equal(kept, again[0]) and np.array_equal(held_out, again[1])


def test_the_share_of_many_is_held_out() -> None:
    for share in (0.05, 0.2, 0.5):
        assert len(hold_out(draws(20_000), share, 0)[1]) == pytest.approx(share * 20_000, rel=0.06)


@given(st.integers(2, 60), st.integers(1, 60), st.floats(0.1, 0.9))
def test_no_example_changes_sides_when_others_are_added(count: int, more: int, share: float) -> None:
    before, after = draws(count), draws(count + more)
    below = set(np.flatnonzero(before < np.uint64(int(share * 2**64))))
    largest = {int(after.argmax())} if (after < np.uint64(int(share * 2**64))).all() else set()  # one must be kept
    assert below - largest <= set(hold_out(after, share, 0)[1])


@given(st.floats(0.1, 0.9), st.floats(0.1, 0.9))
def test_what_a_smaller_share_holds_out_a_larger_one_does(one: float, other: float) -> None:
    smaller, larger = (set(hold_out(draws(200), share, 0)[1]) for share in sorted((one, other)))
    assert smaller <= larger


@pytest.mark.parametrize("count", [2, 3, 5, 7, 10, 49, 100])
def test_the_folds_hold_out_each_example_once(count: int) -> None:
    found = draws(3000)
    assert folds_of(1 / count) == count
    both = [hold_out(found, 1 / count, 0, fold) for fold in range(count)]
    assert sorted(each for _, held in both for each in held) == list(range(3000))
    assert all(sorted([*kept, *held]) == list(range(3000)) for kept, held in both)
    assert np.array_equal(both[0][1], hold_out(found, 1 / count, 0)[1])


@pytest.mark.parametrize(
    ("share", "count"), [(0.0, 1), (0.2, 5), (0.15, 6), (0.5, 2), (0.6, 1), (0.999, 1), (0.1, 10)]
)
def test_how_many_folds_a_share_has(share: float, count: int) -> None:
    assert folds_of(share) == count


@pytest.mark.parametrize("fold", range(1, 20))
def test_a_fold_without_examples_is_refused(fold: int) -> None:
    few = draws(3)
    if (np.floor(few / 2.0**64 * 20) == fold).any():
        assert len(hold_out(few, 0.05, 8, fold)[1]) == 1
        return
    with pytest.raises(
        DataError, match=f"client 8 has 3 examples, which do not give fold {fold} of holdout = 0.05 "
    ):
        hold_out(few, 0.05, 8, fold)


def test_folds_have_their_own_names() -> None:
    assert [held_key(0.2, 0), held_key(0.2, 1), held_key(0, 0)] == ["0.2", "0.2/1", "0.0"]


def test_equal_examples_stay_together() -> None:
    found = draws_of(stacked([digest_of(b"a"), digest_of(b"b"), digest_of(b"a"), digest_of(b"c")]), KEY)
    assert found[0] == found[2] and len({*found}) == 3


def test_none_without_a_share() -> None:
    kept, held_out = hold_out(draws(5), 0.0, 0)
    assert (kept.tolist(), held_out.tolist()) == ([0, 1, 2, 3, 4], [])
    assert hold_out(draws(1), 0.0, 0)[0].tolist() == [0]


def test_other_keys_hold_out_others() -> None:
    drawn = {tuple(hold_out(draws(100, key), 0.2, 0)[1]) for key in (key_of(0), key_of(1), b"s" * 32)}
    assert len(drawn) == 3


def test_a_draw_is_the_hash_of_the_digest_with_the_key() -> None:
    digest = hashlib.blake2b(b"7", digest_size=16).digest()
    expected = int.from_bytes(hashlib.blake2b(digest, key=KEY, digest_size=8).digest(), "little")
    assert draws(1, start=7)[0] == expected


@pytest.mark.parametrize("digests", [[b"a"], [b"a", b"a", b"a"]])
def test_examples_that_cannot_be_divided(digests: list[bytes]) -> None:
    found = draws_of(stacked(map(digest_of, digests)), KEY)
    with pytest.raises(DataError, match=rf"client 3 has {len(digests)} examples, and no two different ones"):
        hold_out(found, 0.2, 3)


def test_digests_of_arrays_are_of_inputs_and_targets() -> None:
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.array([0, 1, 0])
    found = {bytes(each) for each in digests_of(np.concatenate([x, x]), np.concatenate([y, 1 - y]))}
    assert len(found) == 6
    assert np.array_equal(digests_of(np.asfortranarray(x), y), digests_of(x, y))
