"""What a partition of a user returns is refused in one line, unless it is positions for each client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedstride.errors import DataError
from fedstride.tasks.partitions.checked_parts import checked_parts

N = 12


def check(parts: Any) -> list[list[int]]:
    arrays = checked_parts(parts, "partition = 'mine'", N, 3)
    assert all(array.dtype == np.int64 for array in arrays)
    return [array.tolist() for array in arrays]


@pytest.mark.parametrize(
    "parts",
    [
        [[3, 1], [0], [5, 4]],
        ((3, 1), (0,), (5, 4)),
        [np.array([3, 1], np.uint8), np.array([0], np.int32), range(5, 3, -1)],
        [[np.int64(3), 1], [0], [5, 4]],
    ],
)
def test_positions_of_any_kind_are_taken(parts: Any) -> None:
    assert check(parts) == [[3, 1], [0], [5, 4]]


def test_an_array_with_a_row_for_each_client_and_shared_examples_are_allowed() -> None:
    assert check(np.arange(12).reshape(3, 4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert check([[0, 1]] * 3) == [[0, 1]] * 3


GOOD = [0, 1]
WRONG = {
    "none": (None, "returns a NoneType; it must return a list with an array"),
    "dict": ({k: [k] for k in range(3)}, "returns a dict; it must return a list"),
    "generator": (([k] for k in range(3)), "returns a generator; it must return a list"),
    "text": ("abc", "returns a str; it must return a list"),
    "number": (np.array(3), r"returns an array int64\(\); it must return a list"),
    "few": ([GOOD, GOOD], "returns 2 parts for clients = 3; it must"),
    "many": ([GOOD] * 4, "returns 4 parts for clients = 3; it must"),
    "empty": ([GOOD, [], np.array([])], r"gives no examples to the clients \[1, 2\]; use fewer clients"),
    "mask": (
        [GOOD, np.arange(N) == 3, GOOD],
        r", client 1: the part is a mask, an array .*np.flatnonzero",
    ),
    "list mask": ([GOOD, GOOD, [True, False]], ", client 2: the part is a mask, a list of bool; .*np.flatnonzero"),
    "float": (
        [GOOD, GOOD, np.array([1.0])],
        r", client 2: .* float64\(1,\); positions must be whole",
    ),
    "fraction": ([[0.5], GOOD, GOOD], r", client 0: the part is a list of float; positions must be"),
    "nan": ([[np.nan], GOOD, GOOD], ", client 0: the part is a list of float; positions must be"),
    "objects": ([GOOD, [None, 1], GOOD], ", client 1: the part is a list of NoneType, int; positions must be"),
    "texts": ([GOOD, ["1"], GOOD], ", client 1: the part is a list of str; positions must be"),
    "complex": ([GOOD, [1j], GOOD], ", client 1: the part is a list of complex; positions must be"),
    "one number": ([GOOD, 3, GOOD], ", client 1: the part is a int; it must have one dimension"),
    "none within": ([GOOD, None, GOOD], ", client 1: the part is a NoneType; it must have one dimension"),
    "2-d": (np.arange(12).reshape(3, 4, 1), r", client 0: the part is an array int64\(4, 1\); it must have one"),
    "ragged": ([GOOD, [[1], [2, 3]], GOOD], ", client 1: the part is a nested list; it must be one list"),
    "negative": ([GOOD, [3, -1], GOOD], r", client 1: position -1 is not in \[0, 11\], of 12 examples"),
    "N": ([GOOD, [3, 12], GOOD], r", client 1: position 12 is not in \[0, 11\]"),
    "huge": ([GOOD, np.array([2**63 + 5], np.uint64), GOOD], ", client 1: position 9223372036854775813 is not in"),
    "twice": ([GOOD, GOOD, [4, 2, 4]], ", client 2: position 4 is there twice; give it once: np.unique"),
}


@pytest.mark.parametrize("name", WRONG)
def test_anything_else_is_refused_in_one_line(name: str) -> None:
    parts, text = WRONG[name]
    with pytest.raises(
        DataError, match=rf"^partition = 'mine'{'' if text.startswith(',') else ' '}{text}"
    ) as error:
        check(parts)
    assert "\n" not in str(error.value)
