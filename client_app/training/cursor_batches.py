"""A fixed number of mini-batches in each round, from a cursor over the client's shuffled data (A4-5)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import batches
from .method import Job, Method, Plan, Received, Result, Returned, State

CURSOR = "cursor"  # in the state: the number of the client's next mini-batch, from 0


def cursor_of(state: State, server_round: int, count: int) -> int:
    """The number of the round's first mini-batch.

    A client without a state starts where it would be if it had used `count` mini-batches in every earlier round
    (A4-5).
    """
    kept = state.get(CURSOR)
    return kept if isinstance(kept, int) and kept >= 0 else (server_round - 1) * count


def following(job: Job, state: State, count: int) -> tuple[Iterator[np.ndarray], State]:
    """The next `count` mini-batches of this client, and its state after them."""
    start = cursor_of(state, job.server_round, count)
    next_batches = batches.from_cursor(
        len(job.examples), job.client.batch_size, count, start, seed=job.seed, client=job.client_id
    )
    return next_batches, {CURSOR: start + count}


class LocalSteps(Method):
    """`client.local_steps`: tau mini-batches a round."""

    def __init__(self, count: int) -> None:
        self.count = count

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """The next mini-batches."""
        next_batches, self.after = following(job, state, self.count)
        return Plan(batches=next_batches)

    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        """Keep the cursor."""
        return Returned(), self.after
