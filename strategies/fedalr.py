"""Fedalr: a rate per client from a momentum estimate of the global gradient (Zhu, 2025).

    g_k = w - w_k                      client k's pseudo-gradient
    u_k = g_k / ||g_k||                normalised
    u   = (1/m) sum_k u_k
    G_t = u / t + G_{t-1} (t-1) / t    G_1 = u                           (eq. 7)
    c_k = <u_k, G_t>                   in [-1, 1]                        (eq. 6)
    eta_k = exp(c_k - 1)               in [e^-2, 1]
    w'  = w - s (1/m) sum_k eta_k v_k                                    (eq. 3, lambda = 1/m)

`scale` says what v_k and s are (A2-1, A2-2): "unit" v_k = u_k, s = server_lr (the paper's text);
"mean_norm" v_k = u_k, s = server_lr times the mean ||g_k||; "raw" v_k = g_k, s = server_lr.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from typing_extensions import Unpack

from fedstride.arrays.float64_sums import total
from fedstride.arrays.named import Arrays
from fedstride.settings import Setting, check

from .replies.cohort import Cohort
from .replies.declared_needs import Needs
from .shell.rule_strategy import RuleOptions, RuleStrategy
from .shell.stack import RoundResult
from .sums.blocks import blockwise, norm
from .sums.means import add_step, averaged_buffers
from .sums.updates import updates_of

Scale = Literal["unit", "mean_norm", "raw"]


class FedalrState(NamedTuple):
    """What Fedalr keeps from round to round."""

    gradient: Arrays | None = None  # G_t, float64, parameters only; None before the first round
    aggregated: int = 0  # t, rounds that were aggregated


class Aggregated(NamedTuple):
    """One round of Fedalr at the server."""

    model: Arrays  # w', in the sent dtypes
    state: FedalrState  # G_t and t
    rates: list[float]  # eta_k, in the order of the clients
    products: list[float]  # c_k
    cosines: list[float]  # of u_k and G_t; 0 where either is 0 (A2-6)
    gradient_norm: float  # ||G_t||, at most 1
    step_norm: float  # ||w' - w||, before rounding to the sent dtypes


def aggregate(
    sent: Arrays,
    models: Sequence[Arrays],
    state: FedalrState,
    *,
    scale: str = "unit",
    server_lr: float = 1.0,
) -> Aggregated:
    """w' and G_t of aggregated round t, from the clients' models w_k, G_{t-1} and t - 1.

    Clients weigh 1/m each, buffers too (A2-4). A client that did not move has u_k = 0, c_k = 0 and
    counts in m (A2-5).
    """
    m, t = len(models), state.aggregated + 1
    updates = updates_of(sent, models)  # w_k - w = -g_k
    squares = [updates.squares(name) for name in updates.names]
    norms = [math.sqrt(total(square[k] for square in squares)) for k in range(m)]
    to_unit = [1.0 / length if length > 0.0 else 0.0 for length in norms]  # u_k = to_unit[k] g_k

    G = _running_mean(updates.summed(to_unit), state.gradient, m, t)
    c = [-to_unit[k] * product for k, product in enumerate(updates.products(G))]
    eta = [math.exp(c_k - 1.0) for c_k in c]

    s = server_lr * (total(norms) / m if scale == "mean_norm" else 1.0)
    to_v = [1.0] * m if scale == "raw" else to_unit  # v_k = to_v[k] g_k
    summed = updates.summed([eta[k] * to_v[k] for k in range(m)])
    step = blockwise(lambda summed: s * (summed / m), summed)

    G_norm = norm(G)
    return Aggregated(
        model=add_step(sent, step, averaged_buffers(sent, models, [1.0 / m] * m)),
        state=FedalrState(G, t),
        rates=eta,
        products=c,
        cosines=[c[k] / G_norm if G_norm > 0.0 and norms[k] > 0.0 else 0.0 for k in range(m)],
        gradient_norm=G_norm,
        step_norm=norm(step),
    )


def _running_mean(summed: Arrays, previous: Arrays | None, m: int, t: int) -> Arrays:
    """G_t = u / t + G_{t-1} (t-1) / t (eq. 7), u = -summed / m; `previous` is None for 0."""
    if previous is None:
        return blockwise(lambda summed: -(summed / m) / t, summed)
    return blockwise(lambda summed, previous: -(summed / m) / t + previous * ((t - 1) / t), summed, previous)


class Fedalr(RuleStrategy):
    """Fedalr as a Flower strategy.

    `scale` is "unit", "mean_norm" or "raw"; `server_lr` > 0. Always weighs clients 1/m. t counts the
    rounds that were aggregated (A2-3).

    Metrics: `fedalr/eta_min|eta_max|eta_mean`, `fedalr/G`, `fedalr/step`, and lists in the order of
    client ids: `fedalr/client`, `fedalr/eta`, `fedalr/c`, `fedalr/cosine`.
    """

    State = FedalrState
    needs = Needs.EACH
    takes_tensors = True

    def __init__(
        self,
        *,
        scale: Annotated[
            Scale, Setting("how a step gets its length: unit (the paper), mean_norm or raw (A2-1, A2-2)")
        ] = "unit",
        server_lr: Annotated[
            float, Setting("server learning rate, a factor of the step s (A2-1, A2-2)", above=0)
        ] = 1.0,
        **options: Unpack[RuleOptions],
    ) -> None:
        super().__init__(weighting="uniform", **options)
        check(Fedalr, locals())
        self.scale = scale
        self.server_lr = server_lr

    def rule(self, sent: Arrays, cohort: Cohort, state: FedalrState) -> RoundResult:
        """See `aggregate`."""
        result = aggregate(sent, cohort.models, state, scale=self.scale, server_lr=self.server_lr)
        metrics = {
            "fedalr/eta_min": min(result.rates),
            "fedalr/eta_max": max(result.rates),
            "fedalr/eta_mean": math.fsum(result.rates) / len(result.rates),
            "fedalr/G": result.gradient_norm,
            "fedalr/step": result.step_norm,
            "fedalr/client": [reply.client_id for reply in cohort.replies],
            "fedalr/eta": result.rates,
            "fedalr/c": result.products,
            "fedalr/cosine": result.cosines,
        }
        return RoundResult(result.model, result.state, metrics)
