"""What Ctrl-C says before a run of a user's process has begun, for example while packages are imported."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def beginning() -> Iterator[None]:
    """Inside, nothing is begun yet, and KeyboardInterrupt says so."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt("stopped before any run had begun: make the same call again") from error
