"""Which dtypes of numpy and torch can be averaged, and bfloat16, which numpy itself does not have."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from ..errors import ConfigError

BFLOAT16 = "bfloat16"

TWO_BYTES = np.dtype("V2")
"""How a `.npy` file has an array of bfloat16."""

_AVERAGED = re.compile("bool|bfloat16|u?int(8|16|32|64)|float(16|32|64|96|128)")


@lru_cache(maxsize=256)
def is_bfloat16(dtype: Any) -> bool:
    """Whether this is numpy's or torch's dtype of this name."""
    return str(dtype).removeprefix("torch.") == BFLOAT16


def kind_fault(dtype: Any) -> str | None:
    """Why arrays of this dtype of numpy or torch cannot be averaged, and what to do; None if they can."""
    name = dtype.name if isinstance(dtype, np.dtype) else str(dtype).removeprefix("torch.")
    if _AVERAGED.fullmatch(name):
        return None
    advice = (
        "store it as two real arrays, its real and its imaginary part (torch.view_as_real)"
        if name.startswith("complex")
        else "use float16, bfloat16, float32 or float64 for weights, and integers or booleans for the rest"
    )
    return f"is {name}, which cannot be averaged; {advice}"


def bfloat16() -> np.dtype[Any]:
    """numpy's dtype of this name, of a package of its own. Raises ConfigError if that is not installed."""
    try:
        return np.dtype(import_module("ml_dtypes").bfloat16)  # type: ignore[no-any-return]
    except ImportError as error:
        raise ConfigError(
            "bfloat16 arrays need the package ml-dtypes; install it: pip install ml-dtypes"
        ) from error


def dtype_named(name: str) -> np.dtype[Any]:
    """numpy's dtype with this name."""
    return bfloat16() if name == BFLOAT16 else np.dtype(name)
