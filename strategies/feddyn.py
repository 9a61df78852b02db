"""FedDyn: dynamic regularisation (Acar et al., ICLR 2021), the server's side.

    u' = u + (1 / N) sum_k (w_k - w)                          (DY4)
    w^ = (1 / m) sum_k w_k + u'                               (DY5)

over the m clients of the round, N clients in all, u = 0 at the start. u is -h / alpha of the paper's
algorithm 1, as in the authors' code, so nothing is divided by alpha. Clients add a linear and a proximal
term to their loss: `client_app/for_server_rules/feddyn.py`. The model that is evaluated is w^, the one that is
sent.

With `recover`, clients also send u_k+, their memory after the round, and the server repeats their arithmetic from
U_k, what it believes a client to have (`client_states.py`): E_k = U_k + (w_k - w), rounded as there. Then

    u' = u + sum_k q_k (w_k - w) + sum_k q_k (u_k+ - E_k),    U_k <- u_k+                        (DY4')

with q_k = 1 / N. If all clients are honest and have their states, u_k+ = E_k bit for bit, and this is DY4. So u is
the mean of all U_k, whatever a client has sent before. Weighted by examples, q_k = n_k / n, with n_k of the
client's last reply and n of all clients that are kept. If one of these has changed, or a client is missing in the
round, u' is computed as sum_k q_k U_k.

If u_k+ and E_k of a client differ by more than `TRUSTED`, all memories restart from zero, u' = u_k = 0, and
clients learn it with the next message. To put u right alone does not help: while a client lied, all others have
adapted to a wrong u. The model would jump, and the sum of what they keep returns to 0 only slowly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from logging import WARNING
from typing import Annotated, Any, NamedTuple

import numpy as np
from typing_extensions import Unpack

from fedstride.arrays.float64_sums import float64
from fedstride.arrays.named import Arrays, Layout
from fedstride.errors import require
from fedstride.flower.logs import log
from fedstride.messages import wire
from fedstride.messages.varying_values import MOST_WHOLE, Varies
from fedstride.settings import Setting, check

from .replies.cohort import Cohort, shares_of
from .shell.client_states import TakenIn, by_client, taken_in, unexplained, weighted_sum
from .shell.requests import Request
from .shell.rule_strategy import Recover, Recovering, RuleOptions, Weighting
from .shell.stack import RoundResult
from .sums.blocks import blockwise, norm
from .sums.means import add_step, averaged_buffers, mean_update, zeros_like

TRUSTED = 0.01
"""How far a memory may be from what a client's models say, as a share of its length; bits explain far less."""


class FedDynState(NamedTuple):
    """What FedDyn keeps at the server."""

    memory: Arrays | None = None  # u, float64, parameters only; None for 0
    clients: Arrays | None = None  # all U_k, in the dtypes of the parameters; see `client_states.py`
    examples: Arrays | None = None  # weighted by examples: n_k of each of them by id, float64
    restarts: int = 0  # how often all memories restarted from zero


class Memories(NamedTuple):
    """What the clients of a round sent beside their models, in the order of the models."""

    ids: Sequence[int]
    states: Sequence[Arrays]  # u_k+
    examples: Sequence[float] | None  # n_k; None if all weigh the same


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
    next_u = _moved(state.memory, delta, participation)
    return _model(sent, models, shares, delta, next_u), FedDynState(next_u)


def recovering(
    sent: Arrays,
    models: Sequence[Arrays],
    shares: Sequence[float],
    memories: Memories,
    state: FedDynState,
    *,
    num_clients: int,
) -> tuple[Arrays, FedDynState]:
    """The same, with u' from DY4', or 0 if a memory is not what the client's models say."""
    taken = taken_in(state.clients, memories.ids, memories.states, num_clients)
    delta = mean_update(sent, models, shares)
    wrong = _unexplained(sent, models, memories, taken)
    if wrong is None:
        next_u = zeros_like(_moved(None, delta, 1.0))
        return _model(sent, models, shares, delta, next_u), FedDynState(next_u, restarts=state.restarts + 1)
    counts = None
    if memories.examples is None:
        next_u = _moved(state.memory, delta, len(models) / num_clients)
        gone = [blockwise(lambda part: -float64(part), dropped) for dropped in taken.dropped]
        next_u = _plus(next_u, [*wrong.values(), *gone], [1.0 / num_clients] * (len(wrong) + len(gone)))
    else:
        counts = _counts(state.examples, memories, taken)
        if _same_weights(state.examples, counts, memories.ids):
            next_u = _moved(state.memory, delta, 1.0)
            next_u = _plus(next_u, list(wrong.values()), [shares[k] for k in wrong])
        else:
            weights = shares_of([float(count) for count in counts.values()])
            next_u = weighted_sum(list(by_client(taken.kept).values()), weights)
    return _model(sent, models, shares, delta, next_u), FedDynState(next_u, taken.kept, counts, state.restarts)


def _moved(memory: Arrays | None, delta: Arrays, participation: float) -> Arrays:
    return blockwise(lambda delta, u: u + participation * delta, delta, memory or zeros_like(delta))


def _model(
    sent: Arrays, models: Sequence[Arrays], shares: Sequence[float], delta: Arrays, next_u: Arrays
) -> Arrays:
    step = blockwise(lambda delta, u: delta + u, delta, next_u)
    return add_step(sent, step, averaged_buffers(sent, models, shares))


def _plus(u: Arrays, parts: Sequence[Arrays], factors: Sequence[float]) -> Arrays:
    for part, factor in zip(parts, factors, strict=True):
        u = blockwise(lambda u, part, factor=factor: u + factor * part, u, part)
    return u


def _unexplained(
    sent: Arrays, models: Sequence[Arrays], memories: Memories, taken: TakenIn
) -> dict[int, Arrays] | None:
    """u_k+ - E_k by place in the round, where it is not zero; None if one is longer than `TRUSTED` allows."""
    differences = {}
    for k, (u_k, before, w_k) in enumerate(zip(memories.states, taken.before, models, strict=True)):
        difference = unexplained(u_k, before, w_k, sent)
        if difference is None:
            continue
        if norm(difference) > TRUSTED * max(norm(u_k), norm(before)):
            return None
        differences[k] = difference
    return differences


def _counts(before: Arrays | None, memories: Memories, taken: TakenIn) -> Arrays:
    """n_k of each client that is kept, in the order in which they are kept."""
    known = {int(client): count for client, count in (before or {}).items()}
    known |= {k: np.array(n, np.float64) for k, n in zip(memories.ids, memories.examples or (), strict=True)}
    return {str(client): known[client] for client in by_client(taken.kept)}


def _same_weights(before: Arrays | None, after: Arrays, ids: Sequence[int]) -> bool:
    """Whether each client that is kept replied once, and has the weight that it had, or is new like all others."""
    if sorted(ids) != sorted(map(int, after)):
        return False
    return before is None or {k: float(n) for k, n in before.items()} == {k: float(n) for k, n in after.items()}


class FedDyn(Recovering):
    """FedDyn as a Flower strategy; its clients need the client half `feddyn`, and keep u_k between rounds.

    `num_clients` N >= 1: clients of the whole federation; `alpha` >= 0 is sent to the clients. `weighting`
    "uniform" is the paper's; "examples" replaces 1/m and 1/N by n_k / n. With `recover`, clients send u_k+ in
    addition to the model, so what they send doubles, and the server and each checkpoint have N models more; at
    most N clients are kept. Without it, clients send only the model, and what one client does wrongly stays in u.

    Metrics: `feddyn/memory`, the norm of u; with `recover`, `feddyn/restarts`, how often all memories
    restarted from zero.
    """

    State = FedDynState
    half = "feddyn"
    needs = Recovering.needs
    takes_tensors = True
    models_alone_with = "recover=false"

    def __init__(
        self,
        *,
        num_clients: int,
        alpha: Annotated[float, Setting("weight of both terms in the clients' loss", least=0)] = 0.1,
        weighting: Weighting = "uniform",
        recover: Recover = True,
        **options: Unpack[RuleOptions],
    ) -> None:
        super().__init__(weighting=weighting, **options)
        check(FedDyn, locals())
        require(num_clients >= 1, "num_clients", num_clients, "at least 1")
        self.num_clients = num_clients
        self.alpha = alpha
        self.recover = recover

    @property
    def varies(self) -> Mapping[str, Varies]:
        """How often all memories restarted from zero."""
        key = wire.of_half(self.half, "restarts")
        return {key: Varies("int", 0, MOST_WHOLE, rises=True)} if self.recover else {}

    def client_request(self, sent: Arrays) -> Request:
        """alpha; with `recover` the names of the parameters, and u_k+ of their shapes and dtypes is requested."""
        values: dict[str, Any] = {"alpha": float(self.alpha)}
        if not self.recover:
            return Request(values)
        parameters = {name: sent[name] for name in Layout.of(sent).parameters}
        values |= {"names": list(parameters), "restarts": self.state.restarts}
        return Request(values, returns={"client_memory": parameters})

    def rule(self, sent: Arrays, cohort: Cohort, state: FedDynState) -> RoundResult:
        """See `aggregate` and `recovering`."""
        shares, uniform = cohort.shares(self.weighting), self.weighting == "uniform"
        if not self.recover:
            participation = len(cohort) / self.num_clients if uniform else 1.0
            model, after = aggregate(sent, cohort.models, shares, state, participation=participation)
            return RoundResult(model, after, {"feddyn/memory": norm(after.memory or {})})
        memories = Memories(
            [reply.client_id for reply in cohort.replies],
            cohort.extras(wire.of_half(self.half, "client_memory")),
            None if uniform else cohort.weights(self.weighting),
        )
        model, after = recovering(sent, cohort.models, shares, memories, state, num_clients=self.num_clients)
        if after.restarts > state.restarts:
            log(
                WARNING,
                "FedDyn: what a client keeps is not what its models say, since it was not honest or has lost its "
                "state; so all clients restart their memories from zero",
            )
        metrics = {"feddyn/memory": norm(after.memory or {}), "feddyn/restarts": after.restarts}
        return RoundResult(model, after, metrics)
