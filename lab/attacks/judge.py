"""What a round would give: the test loss of the model that its replies would lead to.

For an attacker that knows everything: the rule, its state, the other replies and the test set.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from flwr.app import Message

from fedstride.arrays.on_device import record_of
from server_app.evaluation.central import CentralEvaluation
from strategies.norm_analysis import NormAnalysis


class Judge:
    """Measures rounds that do not take place: the strategy itself does not change."""

    def __init__(self, strategy: NormAnalysis, evaluation: CentralEvaluation) -> None:
        self.strategy = strategy
        self._evaluation = evaluation

    def loss(self, server_round: int, replies: Sequence[Message]) -> float:
        """Test loss of the model that the next round would send. -infinity if this round would change nothing."""
        strategy = self._copied()
        with _quiet():
            record, _ = strategy.aggregate_train(server_round, list(replies))
        if record is None:
            return -math.inf
        following = strategy.next_model
        loss = self._evaluation(record if following is None else record_of(following), server_round)["test/loss"]
        assert isinstance(loss, float)
        return loss if math.isfinite(loss) else math.inf

    def _copied(self) -> NormAnalysis:
        """The strategy with a state of its own; what it only reads (examples at the server) is not copied."""
        held = [getattr(part, "proxy", None) for part in self.strategy.stack.parts]
        return copy.deepcopy(self.strategy, {id(proxy): proxy for proxy in held if proxy is not None})


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing is logged of a round that does not take place."""
    logger = logging.getLogger("flwr")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
