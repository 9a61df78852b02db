"""FedLWS: layer-wise weight shrinking after any aggregation (Shi et al., ICLR 2025).

Per layer l, with w the model that was sent and w^ the wrapped strategy's result:

    g_kl  = w_kl - w_l,   g_l = (1/m) sum_k g_kl
    tau_l = (1/m) sum_k ||g_kl - g_l||                                  (eq. 4, 8)
    gamma_l = ||w_l|| / (beta tau_l ||w^_l - w_l|| + ||w_l||)           (eq. 7, 8)
    w'_l  = gamma_l w^_l                                                (eq. 9)

Buffers are never shrunk; the published code shrinks BatchNorm's statistics (A3-3).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedstride.arrays import Arrays, Layout, difference, float64, layer_of, like, norm, squared_norm
from fedstride.errors import require
from fedstride.settings import Setting, check

from .base import Metrics, RoundResult
from .cohort import Cohort
from .two_d_lrd import TwoDLRD
from .wrapper import Wrapper

TERMS = ("both", "optimization", "regularization")

Groups = dict[str, tuple[str, ...]]
"""Parameters that share one factor: names by label, in model order."""


class Factor(NamedTuple):
    """What one group is shrunk by, and from what."""

    gamma: float
    tau: float
    step: float  # ||w^_l - w_l||
    weight: float  # ||w_l||


def groups(model: Arrays, granularity: str = "layer", grouping: str = "module") -> Groups:
    """The groups of a model (A3-3, A3-4).

    "module": parameters that share the name up to the last dot. "reference": as the published code,
    a group ends with each parameter whose name contains "bias"; a rest without one joins the last.
    `granularity="model"`: one group of all parameters, labelled "model".
    """
    layout = Layout.of(model)
    if granularity == "model":
        return {"model": layout.parameters}
    if grouping == "module":
        return layout.layers
    cut: list[list[str]] = [[]]
    for name in layout.parameters:
        cut[-1].append(name)
        if "bias" in name:
            cut.append([])
    if not cut[-1] and len(cut) > 1:
        cut.pop()
    elif len(cut) > 1:
        cut[-2:] = [cut[-2] + cut[-1]]
    return _labelled(cut)


def _labelled(cut: Sequence[Sequence[str]]) -> Groups:
    """By the first parameter's layer; a second group of the same layer (an LSTM's) gets a number."""
    labelled: Groups = {}
    for names in cut:
        label = base = layer_of(names[0])
        number = 1
        while label in labelled:
            number += 1
            label = f"{base}#{number}"
        labelled[label] = tuple(names)
    return labelled


def spread(sent: Arrays, models: Sequence[Arrays], names: Sequence[str]) -> float:
    """tau: the unweighted mean distance of the clients' updates from their mean (eq. 4, A3-2)."""
    m = len(models)
    squares = [0.0] * m
    for name in names:
        start = float64(sent[name])
        updates = [float64(model[name]) - start for model in models]
        average = updates[0]
        for update in updates[1:]:
            average = average + update
        average = average / m
        for k, update in enumerate(updates):
            squares[k] += squared_norm(update - average)
    return math.fsum(math.sqrt(square) for square in squares) / m


def shrinking(
    sent: Arrays,
    models: Sequence[Arrays],
    result: Arrays,
    names: Sequence[str],
    *,
    beta: float,
    tau_min: float | None = None,
    tau_max: float | None = None,
) -> Factor:
    """gamma and tau of one group (eq. 7, 8).

    `tau_min` and `tau_max` clamp the product beta tau (A3-5). A group that starts at zero keeps
    gamma = 1, or it would stay there for ever (A3-6).
    """
    tau = spread(sent, models, names)
    product = beta * tau
    product = product if tau_min is None else max(product, tau_min)
    product = product if tau_max is None else min(product, tau_max)
    weight = norm({name: sent[name] for name in names})
    step = norm(difference(result, sent, names))
    gamma = 1.0 if weight == 0.0 else weight / (product * step + weight)
    return Factor(gamma, tau, step, weight)


def shrunk(sent: Arrays, result: Arrays, gamma: Mapping[str, float], *, terms: str = "both") -> Arrays:
    """The model with each parameter shrunk by gamma[name] (eq. 9; terms A3-7), in the sent dtypes.

    With s = w^ - w: "both" gamma (w + s); "optimization" w + gamma s; "regularization" gamma w + s.
    """
    model = dict(result)
    for name, factor in gamma.items():
        if factor == 1.0:  # w + (w^ - w) is not always w^
            continue
        w, w_new = float64(sent[name]), float64(result[name])
        if terms == "optimization":
            value = w + factor * (w_new - w)
        elif terms == "regularization":
            value = factor * w + (w_new - w)
        else:
            value = factor * w_new
        model[name] = like(value, sent[name])
    return model


class FedLWS(Wrapper):
    """FedLWS around any Flower strategy; around FedAvg if none is given.

    `beta` >= 0 (paper: 0.1 for CNNs, 0.01 for ResNets); `granularity` "layer" or "model"; `grouping`
    "module" or "reference"; `tau_min`, `tau_max` clamp beta tau; `terms` "both", "optimization" or
    "regularization"; `fixed`: factors in (0, 1], one a group in layer order, used instead of gamma
    (A3-8). `options` are `Wrapper`'s.

    Where the strategy inside keeps two models (FedNNNN), the norms are those of the model that is sent
    on, and both models are shrunk by the same factors (A3-1).

    Metrics: `fedlws/gamma/<layer>`, `fedlws/tau/<layer>`, `fedlws/step/<layer>`,
    `fedlws/weight/<layer>`, their `fedlws/gamma_min|gamma_max|gamma_mean`, and for the whole model
    `fedlws/gamma_model` and `fedlws/r` = (1 - gamma) ||w|| / (gamma ||w^ - w||) (A3-10).
    """

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        beta: Annotated[float, Setting("strength; 0.1 for CNNs, 0.01 for ResNets", least=0)] = 0.1,
        granularity: Annotated[str, Setting("a factor per layer, or one", options=("layer", "model"))] = "layer",
        grouping: Annotated[
            str, Setting("what a layer is: by name, or as the published code", options=("module", "reference"))
        ] = "module",
        tau_min: Annotated[float | None, Setting("lower clamp of beta tau", least=0)] = None,
        tau_max: Annotated[float | None, Setting("upper clamp of beta tau", least=0)] = None,
        terms: Annotated[str, Setting("what is shrunk (A3-7)", options=TERMS)] = "both",
        fixed: Annotated[
            list[float] | None, Setting("factors in layer order, instead of gamma", above=0, most=1)
        ] = None,
        **options: Any,
    ) -> None:
        super().__init__(strategy, **options)
        require(
            not any(isinstance(inner, TwoDLRD) for inner in self.nested()),
            "strategy",
            "TwoDLRD",
            "another one: the detector must see what is sent, so write TwoDLRD(FedLWS(...))",
        )
        check(FedLWS, locals())
        low = tau_min or 0.0
        require(tau_max is None or low <= tau_max, "tau_max", tau_max, f"at least tau_min = {low:g}")
        factors = None if fixed is None else [float(factor) for factor in fixed]
        require(factors is None or len(factors) > 0, "fixed", fixed, "a list of factors in (0, 1], one a layer")
        self.beta = beta
        self.granularity = granularity
        self.grouping = grouping
        self.tau_min = tau_min
        self.tau_max = tau_max
        self.terms = terms
        self.fixed = factors

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The inner strategy's messages; refuses `fixed` factors of another number than the model's groups."""
        messages = super().configure_train(server_round, arrays, config, grid)
        if self.fixed is not None:
            labels = list(groups(self.sent, self.granularity, self.grouping))
            allowed = f"{len(labels)} factors: {', '.join(labels)}"
            require(len(self.fixed) == len(labels), "fixed", self.fixed, allowed)
        return messages

    def act(self, sent: Arrays, cohort: Cohort, result: Arrays, state: Any) -> RoundResult:
        """Shrink the inner strategy's result; see the module's head."""
        following = self.next_model
        basis = result if following is None else following
        parts = groups(sent, self.granularity, self.grouping)
        factors = {label: self._factor(sent, cohort, basis, names) for label, names in parts.items()}
        if self.fixed is not None:
            factors = {
                label: factor._replace(gamma=gamma)
                for (label, factor), gamma in zip(factors.items(), self.fixed, strict=True)
            }
        gamma = {name: factors[label].gamma for label, names in parts.items() for name in names}
        if following is not None:
            self.next_model = shrunk(sent, following, gamma, terms=self.terms)
        whole = self._factor(sent, cohort, basis, Layout.of(sent).parameters)
        return RoundResult(shrunk(sent, result, gamma, terms=self.terms), state, _diagnostics(factors, whole))

    def _factor(self, sent: Arrays, cohort: Cohort, basis: Arrays, names: Sequence[str]) -> Factor:
        return shrinking(
            sent, cohort.models, basis, names, beta=self.beta, tau_min=self.tau_min, tau_max=self.tau_max
        )


def _diagnostics(factors: Mapping[str, Factor], whole: Factor) -> Metrics:
    gammas = [factor.gamma for factor in factors.values()]
    metrics: Metrics = {
        "fedlws/gamma_min": min(gammas),
        "fedlws/gamma_max": max(gammas),
        "fedlws/gamma_mean": math.fsum(gammas) / len(gammas),
        "fedlws/gamma_model": whole.gamma,
        "fedlws/tau_model": whole.tau,
        "fedlws/r": _ratio(whole),
    }
    for label, factor in factors.items():
        metrics |= {
            f"fedlws/gamma/{label}": factor.gamma,
            f"fedlws/tau/{label}": factor.tau,
            f"fedlws/step/{label}": factor.step,
            f"fedlws/weight/{label}": factor.weight,
        }
    return metrics


def _ratio(factor: Factor) -> float:
    """r = (1 - gamma) ||w|| / (gamma ||w^ - w||), which equals beta tau; 0 where nothing moved."""
    moved = factor.gamma * factor.step
    return (1.0 - factor.gamma) * factor.weight / moved if moved > 0.0 else 0.0
