"""SCAFFOLD: control variates against the drift of clients (Karimireddy et al., ICML 2020), the server's side.

    w^ = w + (eta_s / m) sum_k Delta_k                        (SC3; algorithm 1, line 16)
    c' = c + (1 / N) sum_k delta_k                            (SC4; line 17)

with Delta_k = w_k - w and delta_k = c_k+ - c_k of the m clients of the round, N clients in all, and c = 0 at
the start. Clients correct each step by eta (c - c_k): `client_app/halves/scaffold.py`. All means are uniform,
also those of buffers. c has one array for each parameter, and none for buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from typing_extensions import Unpack

from fedstride import wire
from fedstride.arrays import Arrays, Layout, like
from fedstride.errors import require
from fedstride.settings import Setting, check

from .blocks import blockwise, norm
from .cohort import Cohort
from .means import add_step, averaged_buffers, mean_update, zeros_like
from .needs import Needs
from .requests import Request
from .rules import RuleOptions, RuleStrategy
from .stack import RoundResult
from .updates import updates_of


class ScaffoldState(NamedTuple):
    """What SCAFFOLD keeps at the server."""

    control: Arrays | None = None  # c, float64, parameters only; None for 0


def aggregate(
    sent: Arrays,
    models: Sequence[Arrays],
    deltas: Sequence[Arrays],
    state: ScaffoldState,
    *,
    num_clients: int,
    server_lr: float = 1.0,
) -> tuple[Arrays, ScaffoldState]:
    """w^ in the sent dtypes, and c'; `deltas` are the clients' delta_k, in the order of `models`."""
    shares = [1.0 / len(models)] * len(models)
    update = mean_update(sent, models, shares)
    step = blockwise(lambda update: server_lr * update, update)
    summed = updates_of(zeros_like(update), deltas).summed([1.0] * len(deltas))
    c = state.control or zeros_like(update)
    control = blockwise(lambda summed, c: c + summed / num_clients, summed, c)
    return add_step(sent, step, averaged_buffers(sent, models, shares)), ScaffoldState(control)


class Scaffold(RuleStrategy):
    """SCAFFOLD as a Flower strategy; its clients need the client half `scaffold`, and keep c_k between rounds.

    `num_clients` N >= 1: clients of the whole federation; `server_lr` eta_s > 0. Always weighs clients 1/m.
    Sends c in addition to the model and expects delta_k back, so the traffic doubles in both directions.

    Metric: `scaffold/control`, the norm of c.
    """

    State = ScaffoldState
    half = "scaffold"
    needs = Needs.MEAN
    takes_tensors = True

    def __init__(
        self,
        *,
        num_clients: int,
        server_lr: Annotated[float, Setting("eta_s, factor of the averaged update", above=0)] = 1.0,
        **options: Unpack[RuleOptions],
    ) -> None:
        super().__init__(weighting="uniform", **options)
        check(Scaffold, locals())
        require(num_clients >= 1, "num_clients", num_clients, "at least 1")
        self.num_clients = num_clients
        self.server_lr = server_lr

    def client_request(self, sent: Arrays) -> Request:
        """Sends c and requests delta_k; both have the names, shapes and dtypes of the parameters."""
        parameters = {name: sent[name] for name in Layout.of(sent).parameters}
        c = self.state.control or zeros_like(parameters)
        control = {name: like(c[name], array) for name, array in parameters.items()}
        return Request(arrays={"control": control}, returns={"delta": parameters})

    def rule(self, sent: Arrays, cohort: Cohort, state: ScaffoldState) -> RoundResult:
        """See `aggregate`."""
        deltas = cohort.extras(wire.of_half(self.half, "delta"))
        model, next_state = aggregate(
            sent, cohort.models, deltas, state, num_clients=self.num_clients, server_lr=self.server_lr
        )
        return RoundResult(model, next_state, {"scaffold/control": norm(next_state.control or {})})
