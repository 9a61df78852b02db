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
from typing import Annotated, Any, NamedTuple

from typing_extensions import Unpack

from fedstride.arrays import Arrays, Layout, float64, inner, squared_norm, total
from fedstride.settings import Setting, check

from .base import RoundResult, RuleOptions, RuleStrategy
from .cohort import Cohort
from .means import averaged_buffers, moved

SCALES = ("unit", "mean_norm", "raw")


class FedalrState(NamedTuple):
    """What Fedalr keeps from round to round."""

    gradient: Arrays | None = None  # G_t, float64, parameters only; None before the first round
    aggregated: int = 0  # t, rounds that were aggregated


class Step(NamedTuple):
    """One server step of Fedalr."""

    model: Arrays  # w', in the sent dtypes
    state: FedalrState  # G_t and t
    rates: list[float]  # eta_k, in the order of the clients
    products: list[float]  # c_k
    cosines: list[float]  # of u_k and G_t; 0 where either is 0 (A2-6)
    gradient_norm: float  # ||G_t||, at most 1
    length: float  # ||w' - w||, before rounding to the sent dtypes


def step(
    sent: Arrays,
    models: Sequence[Arrays],
    state: FedalrState,
    *,
    scale: str = "unit",
    server_lr: float = 1.0,
) -> Step:
    """w' and G_t of aggregated round t, from G_{t-1} and t - 1.

    Clients weigh 1/m each, buffers too (A2-4). A client that did not move has u_k = 0, c_k = 0 and
    counts in m (A2-5).
    """
    m, t, gradient = len(models), state.aggregated + 1, state.gradient
    names = Layout.of(sent).parameters
    norms = [_distance(sent, model, names) for model in models]
    to_unit = [1.0 / norm if norm > 0.0 else 0.0 for norm in norms]

    G: Arrays = {}
    products = [0.0] * m
    for name in names:
        units = [(float64(sent[name]) - float64(w_k[name])) * u for w_k, u in zip(models, to_unit, strict=True)]
        G[name] = _average(units) / t
        if gradient is not None:
            G[name] = G[name] + gradient[name] * ((t - 1) / t)
        for k, unit in enumerate(units):
            products[k] += inner(unit, G[name])

    rates = [math.exp(c - 1.0) for c in products]
    s = server_lr * (total(norms) / m if scale == "mean_norm" else 1.0)
    to_v = [1.0] * m if scale == "raw" else to_unit
    taken: Arrays = {}
    for name in names:
        terms = [
            (float64(sent[name]) - float64(w_k[name])) * (eta * v)
            for w_k, eta, v in zip(models, rates, to_v, strict=True)
        ]
        taken[name] = -s * _average(terms)

    G_norm = total(squared_norm(array) for array in G.values()) ** 0.5
    return Step(
        model=moved(sent, taken, averaged_buffers(sent, models, [1.0 / m] * m)),
        state=FedalrState(G, t),
        rates=rates,
        products=products,
        cosines=[c / G_norm if G_norm > 0.0 and u > 0.0 else 0.0 for c, u in zip(products, to_unit, strict=True)],
        gradient_norm=G_norm,
        length=total(squared_norm(array) for array in taken.values()) ** 0.5,
    )


def _distance(sent: Arrays, model: Arrays, names: Sequence[str]) -> float:
    return math.sqrt(total(squared_norm(float64(sent[name]) - float64(model[name])) for name in names))


def _average(arrays: Sequence[Any]) -> Any:
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    return total / len(arrays)


class Fedalr(RuleStrategy):
    """Fedalr as a Flower strategy.

    `scale` is "unit", "mean_norm" or "raw"; `server_lr` > 0. Always weighs clients 1/m. t counts the
    rounds that were aggregated (A2-3).

    Metrics: `fedalr/eta_min|eta_max|eta_mean`, `fedalr/G`, `fedalr/step`, and lists in the order of
    client ids: `fedalr/client`, `fedalr/eta`, `fedalr/c`, `fedalr/cosine`.
    """

    State = FedalrState

    def __init__(
        self,
        *,
        scale: Annotated[
            str, Setting("length of the step: unit (the paper), mean_norm or raw; see the module", options=SCALES)
        ] = "unit",
        server_lr: Annotated[float, Setting("s, factor of the step", above=0)] = 1.0,
        **options: Unpack[RuleOptions],
    ) -> None:
        super().__init__(weighting="uniform", **options)
        check(Fedalr, locals())
        self.scale = scale
        self.server_lr = server_lr

    def rule(self, sent: Arrays, cohort: Cohort, state: FedalrState) -> RoundResult:
        """See `step`."""
        done = step(sent, cohort.models, state, scale=self.scale, server_lr=self.server_lr)
        metrics = {
            "fedalr/eta_min": min(done.rates),
            "fedalr/eta_max": max(done.rates),
            "fedalr/eta_mean": math.fsum(done.rates) / len(done.rates),
            "fedalr/G": done.gradient_norm,
            "fedalr/step": done.length,
            "fedalr/client": [reply.client_id for reply in cohort.replies],
            "fedalr/eta": done.rates,
            "fedalr/c": done.products,
            "fedalr/cosine": done.cosines,
        }
        return RoundResult(done.model, done.state, metrics)
