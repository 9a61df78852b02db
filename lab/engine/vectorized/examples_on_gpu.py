"""Copies of the stored examples that stay on a GPU, so that a round does not copy its clients' examples again.

It knows arrays and devices, and nothing of clients. The copies are in the stored form (images: uint8).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

SHARE = 0.25
"""Of the free memory: arrays that need more do not stay."""

MOST = 4
"""Arrays that are kept: x and y of two tasks."""

_kept: dict[tuple[int, str], tuple[np.ndarray, torch.Tensor]] = {}  # with the array, so that its id is not reused


def copies(arrays: Sequence[np.ndarray], device: torch.device) -> list[torch.Tensor] | None:
    """The arrays on a GPU, copied at the first call; None on a processor, or if they are too large."""
    return None if device.type == "cpu" else kept(arrays, device, int(torch.cuda.mem_get_info(device)[0]))


def kept(arrays: Sequence[np.ndarray], device: torch.device, free: int) -> list[torch.Tensor] | None:
    """The arrays on this device, which has `free` bytes; None if they are too large."""
    keys = [(id(array), str(device)) for array in arrays]
    missing = [(key, array) for key, array in zip(keys, arrays, strict=True) if key not in _kept]
    if sum(array.nbytes for _, array in missing) > SHARE * free:
        return None
    for key, array in missing:
        _kept[key] = array, torch.tensor(array, device=device)
    for key in keys:
        _kept[key] = _kept.pop(key)  # the last ones are those that were used last
    tensors = [_kept[key][1] for key in keys]
    for old in list(_kept)[:-MOST]:
        del _kept[old]
    return tensors
