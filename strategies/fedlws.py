"""FedLWS: layer-wise weight shrinking after any aggregation (Shi et al., ICLR 2025).

Per layer l, with w the model that was sent and w^ the wrapped strategy's result:

    g_kl  = w_kl - w_l,   g_l = (1/m) sum_k g_kl
    tau_l = (1/m) sum_k ||g_kl - g_l||                                  (eq. 4, 8)
    gamma_l = ||w_l|| / (beta tau_l ||w^_l - w_l|| + ||w_l||)           (eq. 7, 8)
    w'_l  = gamma_l w^_l                                                (eq. 9)

We differ from the published code, which also shrinks BatchNorm's statistics: buffers are never shrunk (A3-3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, NamedTuple

from flwr.serverapp.strategy import Strategy

from fedstride.arrays.float64_sums import float64, total
from fedstride.arrays.named import Arrays, Layout, layer_of, like
from fedstride.errors import require
from fedstride.settings import Setting, check

from .fedlaw import FedLAW
from .replies.cohort import Cohort
from .replies.declared_needs import Needs
from .shell.stack import Metrics, RoundResult
from .shell.wrapper import Wrapper
from .sums.blocks import blockwise_by_name, squared_norms
from .sums.updates import updates_of
from .two_d_lrd import TwoDLRD

Grouping = Literal["module", "reference"]
Terms = Literal["both", "optimization", "regularization"]

Groups = dict[str, tuple[str, ...]]
"""Parameters that share one factor: names by label, in model order."""


class Factor(NamedTuple):
    """The factor of one group, and what it was computed from."""

    gamma: float
    tau: float
    step_norm: float  # ||w^_l - w_l||
    w_norm: float  # ||w_l||

    @property
    def r(self) -> float:
        """(1 - gamma) ||w|| / (gamma ||w^ - w||): beta tau for the gamma of eq. 7 (A3-10); 0 if nothing moved."""
        denominator = self.gamma * self.step_norm
        return (1.0 - self.gamma) * self.w_norm / denominator if denominator > 0.0 else 0.0


# ---------------------------------------------------------------- groups


def groups(model: Arrays, granularity: str = "layer", grouping: str | Sequence[str] = "module") -> Groups:
    """The groups of a model (A3-3, A3-4).

    `granularity="model"`: one group of all parameters, labelled "model". Else by `grouping`:

    - "module": parameters that share the name up to the last dot;
    - "reference": as the published code, a group ends with each parameter whose name contains "bias";
    - a list of names or patterns (`*.mlp.fc2.bias`): a group ends with each parameter that fits one.

    Parameters after the last such parameter join the last group.
    """
    layout = Layout.of(model)
    if granularity == "model":
        return {"model": layout.parameters}
    if grouping == "module":
        return layout.layers
    ends = ["*bias*"] if grouping == "reference" else grouping
    cut: list[list[str]] = [[]]
    for name in layout.parameters:
        cut[-1].append(name)
        if any(fnmatchcase(name, end) for end in ends):
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


# ---------------------------------------------------------------- the rule


class Lengths(NamedTuple):
    """What the factors are computed from, by parameter: a factor is that of a group of parameters."""

    distances: Mapping[str, list[float]]  # ||g_kl - g_l||^2 of each client
    steps: Mapping[str, float]  # ||w^_l - w_l||^2
    weights: Mapping[str, float]  # ||w_l||^2


def lengths(sent: Arrays, models: Sequence[Arrays], result: Arrays, names: Sequence[str]) -> Lengths:
    """The squared norms of these parameters; `result` is w^."""
    updates = updates_of(sent, models)
    step = updates.among([result])
    return Lengths(
        {name: updates.distances(name) for name in names},
        {name: step.squares(name)[0] for name in names},
        squared_norms(sent, names),
    )


def shrinking_factor(
    of: Lengths,
    names: Sequence[str],
    *,
    beta: float,
    tau_min: float | None = None,
    tau_max: float | None = None,
) -> Factor:
    """gamma and tau of the group with these parameters (eq. 7, 8).

    tau is unweighted (A3-2). `tau_min` and `tau_max` clamp beta tau (A3-5). gamma = 1 for a group of zeros, which
    would otherwise stay zero (A3-6), and for a group without changed parameters.
    """
    squares = [total(of_client) for of_client in zip(*(of.distances[name] for name in names), strict=True)]
    tau = math.fsum(math.sqrt(square) for square in squares) / len(squares) if squares else 0.0
    beta_tau = beta * tau
    beta_tau = beta_tau if tau_min is None else max(beta_tau, tau_min)
    beta_tau = beta_tau if tau_max is None else min(beta_tau, tau_max)
    w_norm = math.sqrt(total(of.weights[name] for name in names))
    step_norm = math.sqrt(total(of.steps[name] for name in names))
    gamma = 1.0 if w_norm == 0.0 else w_norm / (beta_tau * step_norm + w_norm)
    return Factor(gamma, tau, step_norm, w_norm)


def shrunk(sent: Arrays, result: Arrays, gamma: Mapping[str, float], *, terms: str = "both") -> Arrays:
    """The model with each parameter shrunk by gamma[name] (eq. 9; terms A3-7), in the sent dtypes.

    With s = w^ - w: "both" gamma (w + s); "optimization" w + gamma s; "regularization" gamma w + s.
    """

    def of_array(name: str, sent: Any, result: Any) -> Any:
        w, w_hat, factor = float64(sent), float64(result), gamma[name]
        if terms == "optimization":
            return like(w + factor * (w_hat - w), sent)
        if terms == "regularization":
            return like(factor * w + (w_hat - w), sent)
        return like(factor * w_hat, sent)

    shrinking = {name: sent[name] for name in gamma if gamma[name] != 1.0}  # w + (w^ - w) is not always w^
    return {**result, **blockwise_by_name(of_array, shrinking, result)}


# ---------------------------------------------------------------- the strategy


class FedLWS(Wrapper):
    """FedLWS around any Flower strategy; around FedAvg if none is given.

    `beta` >= 0 (paper: 0.1 for CNNs, 0.01 for ResNets); `granularity` "layer" or "model"; `grouping`
    "module", "reference" or a list of patterns, see `groups`; `tau_min`, `tau_max` clamp beta tau; `terms`
    "both", "optimization" or "regularization"; `fixed`: factors in (0, 1], one for each group in layer order,
    used instead of gamma (A3-8). `options` are `Wrapper`'s.

    An array that no client changed keeps the factor 1 and does not enter its group's norms (A3-11). If the
    strategy inside keeps two models (FedNNNN), the norms are those of the model that is sent next, and both
    models are shrunk by the same factors (A3-1).

    Metrics of each group: `fedlws/gamma/<layer>` (the factor that was applied), `fedlws/tau/<layer>`,
    `fedlws/step/<layer>` (||w^ - w||), `fedlws/weight/<layer>` (||w||). Of all groups:
    `fedlws/gamma_min|gamma_max|gamma_mean`. Of the whole model: `fedlws/tau_model` and, unless `fixed` is set,
    the factor of eq. 7 for all parameters as one group, `fedlws/gamma_model`. With `tau_min`, `tau_max` or
    `fixed` also `fedlws/r/<layer>` = (1 - gamma) ||w|| / (gamma ||w^ - w||); without them it equals
    beta tau (A3-10).
    """

    needs = Needs.EACH
    takes_tensors = True

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        beta: Annotated[
            float, Setting("strength of the shrinking; the paper has 0.1 for CNNs, 0.01 for ResNets", least=0)
        ] = 0.1,
        granularity: Annotated[
            Literal["layer", "model"],
            Setting("layer: one factor for each layer; model: one for the whole model"),
        ] = "layer",
        grouping: Annotated[
            Grouping | list[str],
            Setting(
                "what a layer is: module (by name), reference (the "
                "published code), or patterns of arrays that end one",
            ),
        ] = "module",
        tau_min: Annotated[float | None, Setting("lower clamp of beta tau", least=0)] = None,
        tau_max: Annotated[float | None, Setting("upper clamp of beta tau", least=0)] = None,
        terms: Annotated[
            Terms,
            Setting(
                "what gamma multiplies: both, the step (optimization) or the old weights (regularization); A3-7",
            ),
        ] = "both",
        fixed: Annotated[
            list[float] | None,
            Setting("one factor for each layer, in layer order, instead of gamma", above=0, most=1),
        ] = None,
        **options: Any,
    ) -> None:
        super().__init__(strategy, **options)
        require(
            not any(isinstance(inner, TwoDLRD) for inner in self.nested()),
            "strategy",
            "TwoDLRD",
            "one without TwoDLRD, whose detector must see the model that is sent; write TwoDLRD(FedLWS(...)), or "
            "BASE+fedlws+two_d_lrd on the command line",
        )
        require(
            not any(isinstance(inner, FedLAW) for inner in self.nested()),
            "strategy",
            "FedLAW",
            "one that does not shrink the model itself: FedLAW learns its own factor",
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

    def check_model(self, model: Arrays) -> None:
        """Raises ConfigError for patterns that fit no parameter, or a wrong number of `fixed` factors."""
        for pattern in self.grouping if not isinstance(self.grouping, str) else ():
            names = Layout.of(model).parameters
            fits = any(fnmatchcase(name, pattern) for name in names)
            require(fits, "grouping", pattern, f"a name or pattern of the model's parameters: {', '.join(names)}")
        if self.fixed is not None:
            labels = list(groups(model, self.granularity, self.grouping))
            allowed = f"{len(labels)} factors: {', '.join(labels)}"
            require(len(self.fixed) == len(labels), "fixed", self.fixed, allowed)

    def act(self, sent: Arrays, cohort: Cohort, result: Arrays, state: Any) -> RoundResult:
        """Shrink the inner strategy's result; the equations are at the head of the module."""
        next_model = self.next_model
        basis = result if next_model is None else next_model
        updates = updates_of(sent, cohort.models)
        changed = [name for name in Layout.of(sent).parameters if updates.is_changed(name)]
        trained = {
            label: [name for name in names if name in set(changed)]  # A3-11
            for label, names in groups(sent, self.granularity, self.grouping).items()
        }
        measured = lengths(sent, cohort.models, basis, changed)
        factors = {label: self._factor(measured, names) for label, names in trained.items()}
        if self.fixed is not None:
            factors = {
                label: factor._replace(gamma=gamma if trained[label] else 1.0)
                for (label, factor), gamma in zip(factors.items(), self.fixed, strict=True)
            }
        gamma = {name: factors[label].gamma for label, names in trained.items() for name in names}
        if next_model is not None:
            self.next_model = shrunk(sent, next_model, gamma, terms=self.terms)
        whole = self._factor(measured, changed)
        return RoundResult(shrunk(sent, result, gamma, terms=self.terms), state, self._diagnostics(factors, whole))

    def _factor(self, measured: Lengths, names: Sequence[str]) -> Factor:
        return shrinking_factor(measured, names, beta=self.beta, tau_min=self.tau_min, tau_max=self.tau_max)

    def _diagnostics(self, factors: Mapping[str, Factor], whole: Factor) -> Metrics:
        gammas = [factor.gamma for factor in factors.values()]
        metrics: Metrics = {
            "fedlws/gamma_min": min(gammas),
            "fedlws/gamma_max": max(gammas),
            "fedlws/gamma_mean": math.fsum(gammas) / len(gammas),
            "fedlws/tau_model": whole.tau,
        }
        if self.fixed is None:
            metrics["fedlws/gamma_model"] = whole.gamma
        for label, factor in factors.items():
            metrics |= {
                f"fedlws/gamma/{label}": factor.gamma,
                f"fedlws/tau/{label}": factor.tau,
                f"fedlws/step/{label}": factor.step_norm,
                f"fedlws/weight/{label}": factor.w_norm,
            }
            if (self.fixed, self.tau_min, self.tau_max) != (None, None, None):
                metrics[f"fedlws/r/{label}"] = factor.r
        return metrics
