"""SCAFFOLD: control variates against the drift of clients (Karimireddy et al., ICML 2020), the server's side.

    w^ = w + (eta_s / m) sum_k Delta_k                        (SC3; algorithm 1, line 16)
    c' = c + (1 / N) sum_k delta_k                            (SC4; line 17)

with Delta_k = w_k - w and delta_k = c_k+ - c_k of the m clients of the round, N clients in all, and c = 0 at
the start. Clients correct each step by eta (c - c_k), in `client_app/for_server_rules/scaffold.py`. All means are
uniform, also those of buffers. c has one array for each parameter, and none for buffers.

With `recover`, clients send c_k+, and delta_k = c_k+ - C_k, with C_k that the server believes the client to have
(`client_states.py`). For a client that is honest and has its state this is the same value, bit for bit. So c is
the mean of all C_k, whatever a client has sent before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from typing_extensions import Unpack

from fedstride.arrays.named import Arrays, Layout, like
from fedstride.errors import require
from fedstride.messages import wire
from fedstride.settings import Setting, check

from .replies.cohort import Cohort
from .shell.client_states import moved, taken_in, weighted_sum
from .shell.requests import Request
from .shell.rule_strategy import Recover, Recovering, RuleOptions
from .shell.stack import RoundResult
from .sums.blocks import blockwise, norm
from .sums.fast_updates import Models, known_updates
from .sums.means import add_step, averaged_buffers, mean_update, zeros_like
from .sums.updates import updates_of


class ScaffoldState(NamedTuple):
    """What SCAFFOLD keeps at the server."""

    control: Arrays | None = None  # c, float64, parameters only; None for 0
    clients: Arrays | None = None  # all C_k, in the dtypes of the parameters; see `client_states.py`


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


def recovering(
    sent: Arrays,
    models: Sequence[Arrays],
    ids: Sequence[int],
    controls: Sequence[Arrays],
    state: ScaffoldState,
    *,
    num_clients: int,
    server_lr: float = 1.0,
) -> tuple[Arrays, ScaffoldState]:
    """The same from the clients' c_k+, `controls`, of the clients with these ids, in the order of `models`."""
    taken = taken_in(state.clients, ids, controls, num_clients)
    moves = [moved(c_k, before) for c_k, before in zip(controls, taken.before, strict=True)]
    deltas = Models.of(moves, known_updates(moves[0], moves))
    model, after = aggregate(sent, models, deltas, state, num_clients=num_clients, server_lr=server_lr)
    if taken.dropped:
        gone = weighted_sum(taken.dropped, [1.0 / num_clients] * len(taken.dropped))
        after = after._replace(control=blockwise(lambda c, part: c - part, after.control or {}, gone))
    return model, after._replace(clients=taken.kept)


class Scaffold(Recovering):
    """SCAFFOLD as a Flower strategy; its clients need the client half `scaffold`, and keep c_k between rounds.

    `num_clients` N >= 1: clients of the whole federation; `server_lr` eta_s > 0. Always weighs clients 1/m.
    Sends c in addition to the model and expects c_k+ back, so the traffic doubles in both directions. With
    `recover`, the server and each checkpoint have N models more; at most N clients are kept. Without it, delta_k
    comes back, and what one client says wrongly stays in c.

    Metric: `scaffold/control`, the norm of c.
    """

    State = ScaffoldState
    half = "scaffold"
    needs = Recovering.needs
    takes_tensors = True

    def __init__(
        self,
        *,
        num_clients: int,
        server_lr: Annotated[float, Setting("eta_s, factor of the averaged update", above=0)] = 1.0,
        recover: Recover = True,
        **options: Unpack[RuleOptions],
    ) -> None:
        super().__init__(weighting="uniform", **options)
        check(Scaffold, locals())
        require(num_clients >= 1, "num_clients", num_clients, "at least 1")
        self.num_clients = num_clients
        self.server_lr = server_lr
        self.recover = recover

    def client_request(self, sent: Arrays) -> Request:
        """Sends c and requests c_k+ or delta_k; all have the names, shapes and dtypes of the parameters."""
        parameters = {name: sent[name] for name in Layout.of(sent).parameters}
        c = self.state.control or zeros_like(parameters)
        arrays = {"control": {name: like(c[name], array) for name, array in parameters.items()}}
        if self.recover:
            return Request({"recover": True}, arrays, returns={"client_control": parameters})
        return Request(arrays=arrays, returns={"delta": parameters})

    def rule(self, sent: Arrays, cohort: Cohort, state: ScaffoldState) -> RoundResult:
        """See `aggregate` and `recovering`."""
        N, server_lr = self.num_clients, self.server_lr
        if self.recover:
            ids = [reply.client_id for reply in cohort.replies]
            controls = cohort.extras(wire.of_half(self.half, "client_control"))
            model, after = recovering(
                sent, cohort.models, ids, controls, state, num_clients=N, server_lr=server_lr
            )
        else:
            deltas = cohort.extras(wire.of_half(self.half, "delta"))
            model, after = aggregate(sent, cohort.models, deltas, state, num_clients=N, server_lr=server_lr)
        return RoundResult(model, after, {"scaffold/control": norm(after.control or {})})
