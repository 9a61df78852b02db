"""FedDyn: dynamic regularisation (Acar et al., ICLR 2021), the server's side.

    u' = u + (1 / N) sum_k (w_k - w)                          (DY4)
    w^ = (1 / m) sum_k w_k + u'                               (DY5)

over the m clients of the round, N clients in all, u = 0 at the start. u is -h / alpha of the paper's
algorithm 1, as in the authors' code, so nothing is divided by alpha. Clients add a linear and a proximal
term to their loss: `client_app/halves/feddyn.py`. The model that is evaluated is w^, the one that is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from typing_extensions import Unpack

from fedstride.arrays import Arrays
from fedstride.errors import require
from fedstride.settings import Setting, check

from .blocks import blockwise, norm
from .cohort import Cohort
from .means import add_step, averaged_buffers, mean_update, zeros_like
from .needs import Needs
from .requests import Request
from .rules import RuleOptions, RuleStrategy, Weighting
from .stack import RoundResult


class FedDynState(NamedTuple):
    """What FedDyn keeps at the server."""

    memory: Arrays | None = None  # u, float64, parameters only; None for 0


def aggregate(
    sent: Arrays,
    models: Sequence[Arrays],
    shares: Sequence[float],
    state: FedDynState,
    *,
    participation: float,
) -> tuple[Arrays, FedDynState]:
    """w^ in the sent dtypes, and u'; `participation` is m / N, or 1 if u is weighted as the models are."""
    delta = mean_update(sent, models, shares)
    next_u = blockwise(lambda delta, u: u + participation * delta, delta, state.memory or zeros_like(delta))
    step = blockwise(lambda delta, u: delta + u, delta, next_u)
    return add_step(sent, step, averaged_buffers(sent, models, shares)), FedDynState(next_u)


class FedDyn(RuleStrategy):
    """FedDyn as a Flower strategy; its clients need the client half `feddyn`, and keep u_k between rounds.

    `num_clients` N >= 1: clients of the whole federation; `alpha` >= 0 is sent to the clients. `weighting`
    "uniform" is the paper's; "examples" replaces 1/m and 1/N by n_k / n.

    Metric: `feddyn/memory`, the norm of u.
    """

    State = FedDynState
    half = "feddyn"
    needs = Needs.MEAN
    takes_tensors = True

    def __init__(
        self,
        *,
        num_clients: int,
        alpha: Annotated[float, Setting("weight of both terms in the clients' loss", least=0)] = 0.1,
        weighting: Weighting = "uniform",
        **options: Unpack[RuleOptions],
    ) -> None:
        super().__init__(weighting=weighting, **options)
        check(FedDyn, locals())
        require(num_clients >= 1, "num_clients", num_clients, "at least 1")
        self.num_clients = num_clients
        self.alpha = alpha

    def client_request(self, sent: Arrays) -> Request:
        """alpha; no arrays in addition to the model."""
        return Request({"alpha": float(self.alpha)})

    def rule(self, sent: Arrays, cohort: Cohort, state: FedDynState) -> RoundResult:
        """See `aggregate`."""
        participation = len(cohort) / self.num_clients if self.weighting == "uniform" else 1.0
        shares = cohort.shares(self.weighting)
        model, next_state = aggregate(sent, cohort.models, shares, state, participation=participation)
        return RoundResult(model, next_state, {"feddyn/memory": norm(next_state.memory or {})})
