"""The environment variables that processes of messages get."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

PASSED = re.compile(
    "PATH|HOME|USER|LANG|LC_.*|TZ|TMPDIR|OMP_NUM_THREADS|MKL_NUM_THREADS|OPENBLAS_NUM_THREADS|CUDA_VISIBLE_DEVICES|"
    "LD_LIBRARY_PATH|FLWR_HOME|FLWR_TELEMETRY_ENABLED|XDG_CACHE_HOME|MPLCONFIGDIR|NUMBA_.*|"
    "FEDSTRIDE_(DATA|PARTS|STATE|CACHE)"
)
"""The variables of the node's environment that processes of messages get. Others may be secrets of the node."""


def environment(variables: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """What processes of messages get of these variables: those in `PASSED`, and those with one of these names."""
    names = set(more)
    return {name: value for name, value in variables.items() if name in names or PASSED.fullmatch(name)}
