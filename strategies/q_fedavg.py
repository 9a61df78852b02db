"""q-FedAvg: a fair allocation, in which clients with a high loss count more (Li et al., ICLR 2020).

    G_k = -L Delta_k,   L = 1 / eta,   F_k = the client's loss at w + 1e-10      (QF1)
    h_k = q F_k^(q-1) ||G_k||^2 + L F_k^q                                        (QF2)
    w^ = w - sum_k F_k^q G_k / sum_k h_k                                         (QF3)

F_k is the mean loss of w over all training examples of client k before its training (B-27), which it reports:
`client_app/for_server_rules/q_fedavg.py`. eta is the clients' rate of the round. Sizes are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from typing_extensions import Unpack

from fedstride.arrays.float64_sums import total
from fedstride.arrays.named import Arrays
from fedstride.errors import require
from fedstride.settings import Setting, check

from .replies.cohort import Cohort
from .replies.declared_needs import Needs
from .replies.numbers import Number
from .shell.requests import Request
from .shell.rule_strategy import RuleOptions, RuleStrategy
from .shell.stack import RoundResult
from .sums.means import add_step, averaged_buffers
from .sums.updates import updates_of

LOSS = "q_fedavg/loss"
"""The metric with which a client reports its loss at the received model."""

FLOOR = 1e-10
"""Added to a loss, so that its powers exist."""


def aggregate(
    sent: Arrays, models: Sequence[Arrays], losses: Sequence[float], *, q: float, rate: float
) -> tuple[Arrays, float]:
    """w^ in the sent dtypes, and sum_k h_k; `losses` >= 0 without the floor, `rate` is eta."""
    updates = updates_of(sent, models)
    squares = [
        total(of_client) for of_client in zip(*(updates.squares(name) for name in updates.names), strict=True)
    ]
    powers = [(loss + FLOOR) ** q for loss in losses]
    # h_k / L: with q = 0 the factors are 1 / m exactly.
    curvatures = [
        q * (loss + FLOOR) ** (q - 1.0) * (square / rate) + power
        for loss, square, power in zip(losses, squares, powers, strict=True)
    ]
    whole = total(curvatures)
    step = updates.summed([power / whole for power in powers])
    m = len(models)
    return add_step(sent, step, averaged_buffers(sent, models, [1.0 / m] * m)), whole / rate


class QFedAvg(RuleStrategy):
    """q-FedAvg as a Flower strategy; its clients need the client half `q_fedavg` and report their loss.

    `q` in [0, 20]: 0 is the uniform mean; `client_lr` > 0 is eta of round 1 and `client_lr_decay` > 0 its factor
    in each further round. A reply without a loss in [0, 1e12] is rejected; the loss itself is believed.

    Flower's QFedAvg (1.39 to 1.42) has the same rule for parameters; tests compare the two. This one is written
    again because Flower's has one eta for all rounds, computes in the arrays' dtype, treats buffers as parameters,
    and raises an error for integer ones. Always weighs clients by their loss alone, and buffers 1/m.

    Metrics: `q_fedavg/h`, sum_k h_k, and `q_fedavg/loss`, the mean of the clients' losses.
    """

    half = "q_fedavg"
    needs = Needs.SUMS
    takes_tensors = True

    def __init__(
        self,
        *,
        client_lr: float,
        client_lr_decay: float = 1.0,
        q: Annotated[
            float, Setting("how much more a client with a high loss counts; 0: equal weights", least=0, most=20)
        ] = 1.0,
        **options: Unpack[RuleOptions],
    ) -> None:
        super().__init__(weighting="uniform", **options)
        check(QFedAvg, locals())
        for key, value in (("client_lr", client_lr), ("client_lr_decay", client_lr_decay)):
            require(0.0 < value < float("inf"), key, value, "a finite number greater than 0")
        self.client_lr = client_lr
        self.client_lr_decay = client_lr_decay
        self.q = q
        self.rate = client_lr

    def begin_round(self, server_round: int, asked: int) -> None:
        """eta of this round is kept for the aggregation."""
        self.rate = self.client_lr * self.client_lr_decay ** (server_round - 1)

    def client_request(self, sent: Arrays) -> Request:
        """Requests the loss."""
        return Request(numbers={LOSS: Number(least=0.0, most=1e12)})

    def rule(self, sent: Arrays, cohort: Cohort, state: None) -> RoundResult:
        """See `aggregate`."""
        model, h = aggregate(sent, cohort.models, cohort.reported(LOSS), q=self.q, rate=self.rate)
        return RoundResult(model, state, {"q_fedavg/h": h})
