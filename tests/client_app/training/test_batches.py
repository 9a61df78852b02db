"""The examples of each mini-batch: each example once per epoch, repeatable, in a new order in each epoch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_app.training import batches

SIZES = {"examples": st.integers(1, 60), "batch_size": st.integers(1, 70)}
FAST = settings(max_examples=60, deadline=None)


def drawn(
    examples: int, batch_size: int = 10, count: int = 1, *, seed: int = 1, server_round: int = 1, client: int = 0
) -> list[list[int]]:
    found = batches.epochs(examples, batch_size, count, seed=seed, server_round=server_round, client=client)
    return [batch.tolist() for batch in found]


def walked(
    examples: int, batch_size: int, count: int, cursor: int, *, seed: int = 1, client: int = 0
) -> list[list[int]]:
    found = batches.from_cursor(examples, batch_size, count, cursor, seed=seed, client=client)
    return [batch.tolist() for batch in found]


@FAST
@given(**SIZES, count=st.integers(1, 4), seed=st.integers(0, 2**63 - 1))
def test_each_epoch_uses_each_example_once(examples: int, batch_size: int, count: int, seed: int) -> None:
    found = drawn(examples, batch_size, count, seed=seed)
    per_epoch = -(-examples // batch_size)
    assert len(found) == count * per_epoch
    for epoch in _cut(found, per_epoch):
        assert sorted(itertools.chain(*epoch)) == list(range(examples))
        assert [len(batch) for batch in epoch[:-1]] == [batch_size] * (per_epoch - 1)
        assert len(epoch[-1]) == (examples - 1) % batch_size + 1  # the last partial batch is kept


def _cut(items: list[list[int]], size: int) -> list[list[list[int]]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


@FAST
@given(**SIZES, seed=st.integers(0, 2**63 - 1), server_round=st.integers(1, 500), client=st.integers(0, 500))
def test_a_round_can_be_drawn_again(
    examples: int, batch_size: int, seed: int, server_round: int, client: int
) -> None:
    where = {"seed": seed, "server_round": server_round, "client": client}
    assert drawn(examples, batch_size, 2, **where) == drawn(examples, batch_size, 2, **where)


@settings(max_examples=40, deadline=None)
@given(
    a=st.tuples(st.integers(0, 99), st.integers(1, 99), st.integers(0, 99)),
    b=st.tuples(st.integers(0, 99), st.integers(1, 99), st.integers(0, 99)),
)
def test_seeds_rounds_and_clients_differ(a: tuple[int, int, int], b: tuple[int, int, int]) -> None:
    first, second = (drawn(100, seed=s, server_round=r, client=k) for s, r, k in (a, b))
    assert (first == second) == (a == b)


def test_epochs_of_a_round_differ() -> None:
    found = drawn(50, 50, 2)
    assert found[0] != found[1]


def test_a_longer_round_begins_like_a_shorter_one() -> None:
    assert drawn(50, 10, 3)[:5] == drawn(50, 10, 1)


# ---- from a cursor (A4-5)


@FAST
@given(**SIZES, cursor=st.integers(0, 40), counts=st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_the_cursor_continues_where_the_last_round_ended(
    examples: int, batch_size: int, cursor: int, counts: list[int]
) -> None:
    pieces: list[list[int]] = []
    for count in counts:
        piece = walked(examples, batch_size, count, cursor + len(pieces))
        assert len(piece) == count
        pieces += piece
    assert pieces == walked(examples, batch_size, sum(counts), cursor)


@FAST
@given(**SIZES, epochs=st.integers(1, 4))
def test_a_cursor_epoch_uses_each_example_once(examples: int, batch_size: int, epochs: int) -> None:
    per_epoch = -(-examples // batch_size)
    found = walked(examples, batch_size, epochs * per_epoch, 0)
    for epoch in _cut(found, per_epoch):
        assert sorted(itertools.chain(*epoch)) == list(range(examples))


def test_cursor_reshuffles_every_epoch() -> None:
    found = walked(40, 40, 5, 0)
    assert len({tuple(batch) for batch in found}) == 5


@pytest.mark.parametrize("change", [{"seed": 2}, {"client": 1}])
def test_cursor_sequence_depends_on_seed_and_client(change: dict[str, int]) -> None:
    assert walked(40, 10, 4, 0) != walked(40, 10, 4, 0, **change)


def test_positions_are_whole_numbers_to_index_with() -> None:
    rng_batch = next(iter(batches.epochs(7, 3, 1, seed=1, server_round=1, client=0)))
    cursor_batch = next(iter(batches.from_cursor(7, 3, 1, 0, seed=1, client=0)))
    assert np.arange(7)[rng_batch].shape == np.arange(7)[cursor_batch].shape == (3,)
