"""FedDyn: dynamic regularisation (Acar et al., ICLR 2021), the server's half.

    u' = u + (1 / N) sum_k (w_k - w)                          (DY4)
    w^ = (1 / m) sum_k w_k + u'                               (DY5)

over the m clients of the round, N clients in all, u = 0 at the start. u is -h / alpha of the paper's
algorithm 1, as in the authors' code, so nothing is divided by alpha. Clients add a linear and a proximal
term to their loss: `client_app/halves/feddyn.py`. The served model is the one that is evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from array_api_compat import array_namespace
from typing_extensions import Unpack

from fedstride.arrays import Arrays, norm
from fedstride.errors import require
from fedstride.settings import Setting, check

from .base import Request, RoundResult, RuleOptions, RuleStrategy, Weighting
from .cohort import Cohort
from .means import averaged_buffers, moved, movement


class FedDynState(NamedTuple):
    """What FedDyn keeps at the server."""

    memory: Arrays | None = None  # u, float64, parameters only; None for 0


def step(
    sent: Arrays,
    models: Sequence[Arrays],
    shares: Sequence[float],
    state: FedDynState,
    *,
    participation: float,
) -> tuple[Arrays, FedDynState]:
    """w^ in the sent dtypes, and u'; `participation` is m / N, or 1 where u is weighted as the models are."""
    update = movement(sent, models, shares).update
    memory: Arrays = {}
    for name, delta in update.items():
        u = array_namespace(delta).zeros_like(delta) if state.memory is None else state.memory[name]
        memory[name] = u + participation * delta
    taken = {name: delta + memory[name] for name, delta in update.items()}
    return moved(sent, taken, averaged_buffers(sent, models, shares)), FedDynState(memory)


class FedDyn(RuleStrategy):
    """FedDyn as a Flower strategy; its clients must do the half `feddyn`, and keep u_k from round to round.

    `num_clients` N >= 1: clients of the whole federation; `alpha` >= 0 is sent to the clients. `weighting`
    "uniform" is the paper's; "examples" replaces 1/m and 1/N by n_k / n (for clients of unequal size).

    Metric: `feddyn/memory`, the norm of u.
    """

    State = FedDynState
    half = "feddyn"
    sees_only_the_mean = True

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
        """alpha; nothing travels beside the model."""
        return Request({"alpha": float(self.alpha)})

    def rule(self, sent: Arrays, cohort: Cohort, state: FedDynState) -> RoundResult:
        """See `step`."""
        participation = len(cohort) / self.num_clients if self.weighting == "uniform" else 1.0
        shares = cohort.shares(self.weighting)
        model, following = step(sent, cohort.models, shares, state, participation=participation)
        return RoundResult(model, following, {"feddyn/memory": norm(following.memory or {})})
