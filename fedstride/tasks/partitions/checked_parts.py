"""What a partition returned, checked: for each client the positions of its examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import DataError

ALLOWED = "a list with an array (or list) of whole numbers for each client, the positions of its examples"


def checked_parts(parts: Any, who: str, examples: int, clients: int) -> list[np.ndarray]:
    """The positions of each client's examples, int64. Several clients may have the same example.

    Raises DataError, in one line that begins with `who`, for anything else than `clients` parts, none of them
    empty, each with different positions in [0, `examples`).
    """
    is_list = isinstance(parts, Sequence) and not isinstance(parts, (str, bytes))
    if not (is_list or (isinstance(parts, np.ndarray) and parts.ndim > 0)):
        raise DataError(f"{who} returns {_described(parts)}; it must return {ALLOWED}")
    if len(parts) != clients:
        raise DataError(f"{who} returns {len(parts)} parts for clients = {clients}; it must return {ALLOWED}")
    arrays = [_array(part, f"{who}, client {k}", examples) for k, part in enumerate(parts)]
    if empty := [k for k, array in enumerate(arrays) if not len(array)]:
        raise DataError(f"{who} gives no examples to the clients {empty}; use fewer clients")
    return [_positions(array, f"{who}, client {k}", examples) for k, array in enumerate(arrays)]


def _array(part: Any, where: str, examples: int) -> np.ndarray:
    """The part as a vector of whole numbers, or empty."""
    try:
        array = np.asarray(part)
    except ValueError:  # lists of different lengths
        raise DataError(
            f"{where}: the part is a nested {type(part).__name__}; it must be one list of positions"
        ) from None
    if array.ndim != 1 or isinstance(part, (str, bytes)):
        raise DataError(f"{where}: the part is {_described(part)}; it must have one dimension, of positions")
    if array.dtype == bool:
        raise DataError(
            f"{where}: the part is a mask, {_described(part)}; it must be positions: np.flatnonzero(mask)"
        )
    if array.size and array.dtype.kind not in "iu":
        then = "; .astype(int) makes whole numbers of them" if array.dtype.kind == "f" else ""
        allowed = f"whole numbers in [0, {examples - 1}]"
        raise DataError(f"{where}: the part is {_described(part)}; positions must be {allowed}{then}")
    return array


def _positions(array: np.ndarray, where: str, examples: int) -> np.ndarray:
    ordered = np.sort(array)
    least, most = int(ordered[0]), int(ordered[-1])
    if least < 0 or most >= examples:
        wrong = least if least < 0 else most
        raise DataError(f"{where}: position {wrong} is not in [0, {examples - 1}], of {examples} examples")
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(again):
        raise DataError(f"{where}: position {again[0]} is there twice; give it once: np.unique(positions)")
    return array.astype(np.int64, copy=False)


def _described(value: Any) -> str:
    """Its type and, of an array, its dtype and shape."""
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype}{value.shape}"
    kinds = sorted({type(each).__name__ for each in value[:1000]}) if isinstance(value, (list, tuple)) else []
    return f"a {type(value).__name__}" + (f" of {', '.join(kinds)}" if kinds else "")
