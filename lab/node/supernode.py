"""A SuperNode with warm executors; Flower's own where its private names are not those that are known."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedstride.errors import RunError

from . import seams
from .executors import Executors
from .waiting import message_limit


def run(arguments: Sequence[str]) -> None:
    """Run a SuperNode with the arguments of `flower-supernode` until it ends with SystemExit.

    Raises ConfigError if FEDSTRIDE_MESSAGE_SECONDS is not a positive number, and RunError if not even Flower's
    own SuperNode can be started.
    """
    limit = message_limit()
    if (problem := seams.problem()) is not None:
        _warn(
            f"warm executors cannot be used: {problem}. flower-supernode runs instead, with the same results: "
            f"install flwr {seams.KNOWN}x for rounds without its waits"
        )
        try:
            seams.run_stock(arguments)
        except OSError as error:
            raise RunError(
                f"flower-supernode cannot be started: {error}; pip install 'fedstride[deployment]'"
            ) from error
    state = seams.State()
    executors = Executors(state, limit, _warn)
    try:
        seams.run_supernode(arguments, state, executors.start, executors.wait)
    finally:
        executors.close()


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)
