"""Examples that stay on a device: copied once, not if they are too large, and only a few arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lab.engine.vectorized import examples_on_gpu

CPU, ROOM = torch.device("cpu"), 10**6


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples_on_gpu, "_kept", {})


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(12, dtype=np.uint8).reshape(4, 3), np.arange(4)


def test_they_are_copied_once_in_their_stored_form() -> None:
    given = arrays()
    first, again = (examples_on_gpu.kept(given, CPU, ROOM) for _ in range(2))
    assert first is not None
    assert again is not None
    for tensor, same, array in zip(first, again, given, strict=True):
        assert tensor is same
        assert tensor.numpy().dtype == array.dtype
        assert np.array_equal(tensor.numpy(), array)
    assert not np.shares_memory(first[0].numpy(), given[0])


def test_those_that_need_more_than_their_share_of_the_memory_do_not_stay() -> None:
    given = arrays()
    needed = sum(array.nbytes for array in given)
    assert examples_on_gpu.kept(given, CPU, int(needed / examples_on_gpu.SHARE) - 4) is None
    assert not examples_on_gpu._kept
    assert examples_on_gpu.kept(given, CPU, int(needed / examples_on_gpu.SHARE) + 4) is not None
    assert examples_on_gpu.kept(given, CPU, 0) is not None  # they are there, and need no more


def test_the_oldest_are_given_up() -> None:
    several = [arrays() for _ in range(4)]
    for given in several:
        assert examples_on_gpu.kept(given, CPU, ROOM) is not None
    assert len(examples_on_gpu._kept) == examples_on_gpu.MOST
    assert [
        array is own
        for (array, _), own in zip(examples_on_gpu._kept.values(), [*several[2], *several[3]], strict=True)
    ]


def test_those_that_are_used_stay() -> None:
    x, y = arrays()
    first = examples_on_gpu.kept((x, y), CPU, ROOM)
    for _ in range(5):
        assert examples_on_gpu.kept((x, y), CPU, ROOM) == first
        assert examples_on_gpu.kept((x, y.copy()), CPU, ROOM) is not None  # as with flipped labels


def test_a_processor_needs_no_copies() -> None:
    assert examples_on_gpu.copies(arrays(), CPU) is None
