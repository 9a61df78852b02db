"""FedNova: normalised averaging (Wang et al., NeurIPS 2020), the server's side.

    tau_eff = sum_k p_k a_k                                   (NO2)
    w^ = w + tau_eff sum_k p_k Delta_k / a_k                  (NO3)

a_k > 0 is client k's effective number of local steps (NO1); it reports it:
`client_app/for_server_rules/fednova.py`. p_k is over the clients of the round (B-22). Buffers are averaged with
p_k.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from typing_extensions import Unpack

from fedstride.arrays.float64_sums import total
from fedstride.arrays.named import Arrays
from fedstride.messages import wire
from fedstride.settings import Setting, check

from .replies.cohort import Cohort
from .replies.declared_needs import Needs
from .replies.numbers import Number
from .shell.requests import Request
from .shell.rule_strategy import RuleOptions, RuleStrategy, Weighting
from .shell.stack import RoundResult
from .sums.means import add_step, averaged_buffers
from .sums.updates import updates_of

STEPS = "fednova/a"
"""The metric with which a client reports a_k."""

POSSIBLE = Number(least=1e-9, most=1e12)
"""a_k is about 1 or more, unless a schedule makes the rates of a whole round small."""


def aggregate(
    sent: Arrays,
    models: Sequence[Arrays],
    shares: Sequence[float],
    effective: Sequence[float],
    taus: Sequence[float] | None = None,
) -> tuple[Arrays, float]:
    """w^ in the sent dtypes, and tau_eff; `effective` are the a_k > 0. With `taus`, tau_eff = sum_k p_k tau_k."""
    counted = effective if taus is None else taus
    tau_eff = total(p * tau for p, tau in zip(shares, counted, strict=True))
    factors = [p * (tau_eff / a) for p, a in zip(shares, effective, strict=True)]
    step = updates_of(sent, models).summed(factors)
    return add_step(sent, step, averaged_buffers(sent, models, shares)), tau_eff


class FedNova(RuleStrategy):
    """FedNova as a Flower strategy; its clients need the client half `fednova` and report a_k.

    `tau_eff` "effective" is the paper's (NO2); "steps" takes the mean number of optimiser steps instead, as the
    authors' code does with a proximal term. A reply without a_k is rejected. a_k is believed, as the number of
    examples is: a client that reports a small one lengthens its own update. There is no server momentum.

    Metrics: `fednova/tau_eff`, and `fednova/a`, the mean of the clients' a_k.
    """

    half = "fednova"
    needs = Needs.SUMS
    takes_tensors = True

    def __init__(
        self,
        *,
        tau_eff: Annotated[
            Literal["effective", "steps"],
            Setting("common number of steps: mean of the effective ones, or of the optimiser's steps"),
        ] = "effective",
        weighting: Weighting = "examples",
        **options: Unpack[RuleOptions],
    ) -> None:
        super().__init__(weighting=weighting, **options)
        check(FedNova, locals())
        self.tau_eff = tau_eff

    def client_request(self, sent: Arrays) -> Request:
        """Requests a_k, and the number of steps if it is used."""
        steps = {wire.TRAIN_STEPS: Number(least=1.0, most=1e12)} if self.tau_eff == "steps" else {}
        return Request(numbers={STEPS: POSSIBLE, **steps})

    def rule(self, sent: Arrays, cohort: Cohort, state: None) -> RoundResult:
        """See `aggregate`."""
        taus = cohort.reported(wire.TRAIN_STEPS) if self.tau_eff == "steps" else None
        shares = cohort.shares(self.weighting)
        model, tau_eff = aggregate(sent, cohort.models, shares, cohort.reported(STEPS), taus)
        return RoundResult(model, state, {"fednova/tau_eff": tau_eff})
