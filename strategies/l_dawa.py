"""L-DAWA: each client's layer counts by its cosine with the layer that was sent (Rehman et al., ICCV 2023).

    kappa_kl = min(1, <w_kl, w_l> / (||w_kl|| ||w_l||))                       (LD1)
    w^_l = (1/m) sum_k kappa_kl w_kl                                          (LD2)

A layer is here each named array of parameters. The weights do not sum to 1, so the model shrinks by itself (B-26).
Buffers are averaged with 1 / m.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from typing_extensions import Unpack

from fedstride.arrays.float64_sums import float64, total
from fedstride.arrays.named import Arrays, Layout, like
from fedstride.settings import Setting, check

from .replies.cohort import Cohort
from .replies.declared_needs import Needs
from .shell.rule_strategy import RuleOptions, RuleStrategy
from .shell.stack import RoundResult
from .sums.blocks import blockwise_by_name, inner_products, squared_norms
from .sums.means import averaged_buffers

NO_DIRECTION = 1e-12
"""An array with a smaller norm has no direction; kappa is then 1."""


def cosines(sent: Arrays, models: Sequence[Arrays]) -> dict[str, list[float]]:
    """kappa_kl of each client, by parameter."""
    names = Layout.of(sent).parameters
    with np.errstate(over="ignore"):
        of_sent = squared_norms(sent, names)
    kappas: dict[str, list[float]] = {name: [] for name in names}
    for model in models:
        with np.errstate(over="ignore", invalid="ignore"):  # seen below
            products, of_model = inner_products(model, sent, names), squared_norms(model, names)
        for name in names:
            square, other = of_model[name], of_sent[name]
            if min(square, other) < NO_DIRECTION**2:
                kappa = 1.0
            elif math.isinf(max(square, other)):
                kappa = _cosine_of_large(model[name], sent[name])
            else:  # roots first: the product of the squares may overflow
                kappa = products[name] / (math.sqrt(square) * math.sqrt(other))
            kappas[name].append(min(1.0, kappa))
    return kappas


def _cosine_of_large(a: Any, b: Any) -> float:
    """The cosine of two arrays, not 0, of which one is so large that its squares overflow in float64."""
    x, y = ({"": array / abs(array).max()} for array in (float64(a), float64(b)))
    squares = squared_norms(x, [""])[""], squared_norms(y, [""])[""]
    return inner_products(x, y, [""])[""] / (math.sqrt(squares[0]) * math.sqrt(squares[1]))


def aggregate(
    sent: Arrays, models: Sequence[Arrays], *, normalised: bool = False
) -> tuple[Arrays, dict[str, list[float]]]:
    """w^ in the sent dtypes, and kappa; `normalised` divides by sum_k kappa_kl instead of m.

    A layer whose kappa sum to less than 1e-12 stays as it was sent if `normalised` is set.
    """
    m = len(models)
    kappa = cosines(sent, models)
    factors: dict[str, list[float]] = {}
    kept: dict[str, float] = {}  # w^ = kept w + sum_k factor (w_k - w): w_k = w gives w, up to rounding
    for name, kappas in kappa.items():
        whole = total(kappas) if normalised else float(m)
        factors[name] = [k / whole for k in kappas] if whole > NO_DIRECTION else [0.0] * m
        kept[name] = 1.0 if normalised else 1.0 + total(k - 1.0 for k in kappas) / m

    def combined(name: str, w: Any, *clients: Any) -> Any:
        start = float64(w)
        result = kept[name] * start
        for factor, client in zip(factors[name], clients, strict=True):
            result = result + factor * (float64(client) - start)
        return like(result, w)

    moved = blockwise_by_name(combined, {name: sent[name] for name in kappa}, *models)
    buffers = averaged_buffers(sent, models, [1.0 / m] * m)
    return {name: moved[name] if name in moved else buffers[name] for name in sent}, kappa


class LDAWA(RuleStrategy):
    """L-DAWA as a Flower strategy. Always weighs clients 1/m before kappa; clients only train.

    `normalised` makes the weights of each layer sum to 1; the paper's code does not.

    Metrics: `l_dawa/kappa_min`, `l_dawa/kappa_mean`, over all clients and layers.
    """

    needs = Needs.EACH
    takes_tensors = True

    def __init__(
        self,
        *,
        normalised: Annotated[bool, Setting("whether the weights of a layer are divided by their sum")] = False,
        **options: Unpack[RuleOptions],
    ) -> None:
        super().__init__(weighting="uniform", **options)
        check(LDAWA, locals())
        self.normalised = normalised

    def rule(self, sent: Arrays, cohort: Cohort, state: Any) -> RoundResult:
        """See `aggregate`."""
        model, kappa = aggregate(sent, cohort.models, normalised=self.normalised)
        values = [value for kappas in kappa.values() for value in kappas]
        metrics = {"l_dawa/kappa_min": min(values), "l_dawa/kappa_mean": total(values) / len(values)}
        return RoundResult(model, state, metrics)
