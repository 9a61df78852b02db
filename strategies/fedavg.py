"""FedAvg: the mean of the clients' models (McMahan et al., AISTATS 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import Unpack

from fedstride.arrays.named import Arrays

from .replies.cohort import Cohort
from .replies.declared_needs import Needs
from .shell.rule_strategy import RuleOptions, RuleStrategy, Weighting
from .shell.stack import RoundResult
from .sums.means import add_step, averaged_buffers, mean_update


def aggregate(sent: Arrays, models: Sequence[Arrays], shares: Sequence[float]) -> Arrays:
    """w' = w + sum_k p_k (w_k - w), in float64, returned in the sent dtypes."""
    return add_step(sent, mean_update(sent, models, shares), averaged_buffers(sent, models, shares))


class FedAvg(RuleStrategy):
    """FedAvg with screening, a fixed order of sums and kept dtypes; otherwise Flower's."""

    needs = Needs.MEAN
    takes_tensors = True

    def __init__(self, *, weighting: Weighting = "examples", **options: Unpack[RuleOptions]) -> None:
        super().__init__(weighting=weighting, **options)

    def rule(self, sent: Arrays, cohort: Cohort, state: Any) -> RoundResult:
        """See `aggregate`."""
        return RoundResult(aggregate(sent, cohort.models, cohort.shares(self.weighting)), state, {})
