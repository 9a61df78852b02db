"""FedNNNN: norm-normalised aggregation (Nagura, Bian, Sato), and its relatives Norm-Norm and Momentum.

    delta = sum_k p_k (w_k - w)          N = ||delta||                  (eq. 4)
    E     = sum_k p_k ||w_k - w||                                       (eq. 5)
    d'    = gamma d + beta (E / N) delta,   d = 0 before round 1        (eq. 12)
    w'    = w + d'         the *normalised* model: sent next round      (eq. 13)
    w^    = w + delta      the *average* model: evaluated, saved, returned

Norm-Norm is gamma = 0. Momentum: d' = gamma d + delta, w' = w + d', one model (eq. 10-11).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from array_api_compat import array_namespace
from typing_extensions import Unpack

from fedstride.arrays import Arrays, layer_of
from fedstride.settings import Setting, check

from .base import RoundResult, RuleOptions, RuleStrategy, Weighting
from .cohort import Cohort
from .means import Movement, averaged_buffers, moved, movement

NEGLIGIBLE = 1e-8  # A1-4: N below this share of E counts as "extremely small"


Beta = Annotated[float, Setting("factor of the normalised step", above=0)]
Gamma = Annotated[float, Setting("momentum", least=0, below=1)]
PerLayer = Annotated[bool, Setting("N and E layer by layer instead of over the whole model")]


class FedNNNNState(NamedTuple):
    """What FedNNNN keeps from round to round."""

    momentum: Arrays | None = None  # d, float64, parameters only; None for 0
    next: Arrays | None = None  # w', in the sent dtypes; None before the first round


class Step(NamedTuple):
    """One server step of FedNNNN."""

    average: Arrays  # w^, in the sent dtypes
    state: FedNNNNState  # w' and d'
    movement: Movement
    skipped: bool


def step(
    sent: Arrays,
    models: Sequence[Arrays],
    shares: Sequence[float],
    state: FedNNNNState,
    *,
    beta: float,
    gamma: float,
    per_layer: bool = False,
) -> Step:
    """w^, w' and d' of one round; of the state before it only d counts.

    `per_layer` takes N and E of each layer instead of the whole model (A1-5). Where N is negligible
    beside E, w' = w and d' = d (A1-4), `per_layer` for that layer alone; `skipped` says that it
    happened to the whole model, layer by layer where `per_layer`.
    """
    move = movement(sent, models, shares)
    buffers = averaged_buffers(sent, models, shares)
    d = state.momentum or _zeros(move.update)
    next_d, taken = {}, {}
    for name, delta in move.update.items():
        layer = layer_of(name)
        N, E = (move.layer_N[layer], move.layer_E[layer]) if per_layer else (move.N, move.E)
        if _negligible(N, E):
            next_d[name], taken[name] = d[name], array_namespace(delta).zeros_like(delta)
        else:
            next_d[name] = taken[name] = gamma * d[name] + (beta * E / N) * delta
    return Step(
        average=moved(sent, move.update, buffers),
        state=FedNNNNState(momentum=next_d, next=moved(sent, taken, buffers)),
        movement=move,
        skipped=all(_negligible(move.layer_N[k], move.layer_E[k]) for k in move.layer_N)
        if per_layer
        else _negligible(move.N, move.E),
    )


class Velocity(NamedTuple):
    """What Momentum keeps from round to round."""

    momentum: Arrays | None = None  # d, float64, parameters only; None for 0


def momentum_step(
    sent: Arrays, models: Sequence[Arrays], shares: Sequence[float], state: Velocity, *, gamma: float
) -> tuple[Arrays, Velocity]:
    """(w', d') of Momentum: d' = gamma d + delta, w' = w + d' (eq. 10-11)."""
    update = movement(sent, models, shares).update
    d = state.momentum or _zeros(update)
    next_d = {name: gamma * d[name] + delta for name, delta in update.items()}
    return moved(sent, next_d, averaged_buffers(sent, models, shares)), Velocity(next_d)


def _negligible(N: float, E: float) -> bool:
    return E == 0.0 or N <= NEGLIGIBLE * E


def _zeros(arrays: Arrays) -> Arrays:
    return {name: array_namespace(array).zeros_like(array) for name, array in arrays.items()}


class FedNNNN(RuleStrategy):
    """FedNNNN as a Flower strategy.

    `beta` > 0 scales the normalised step, `gamma` in [0, 1) is the momentum, `weighting` gives p_k
    (the paper's experiments use "uniform"), `per_layer` normalises layer by layer.

    Two models a round (A1-1): `aggregate_train` returns the average w^, which is the one to evaluate,
    save and use; the normalised w' is `next_model`, which the next `configure_train` sends whatever
    model it is given. Metrics: `fednnnn/N`, `fednnnn/E`, `fednnnn/skipped`.
    """

    State = FedNNNNState

    def __init__(
        self,
        *,
        beta: Beta = 0.7,
        gamma: Gamma = 0.8,
        weighting: Weighting = "examples",
        per_layer: PerLayer = False,
        **options: Unpack[RuleOptions],
    ) -> None:
        super().__init__(weighting=weighting, **options)
        check(FedNNNN, locals())
        self.beta = beta
        self.gamma = gamma
        self.per_layer = per_layer

    def rule(self, sent: Arrays, cohort: Cohort, state: FedNNNNState) -> RoundResult:
        """See `step`."""
        done = step(
            sent,
            cohort.models,
            cohort.shares(self.weighting),
            state,
            beta=self.beta,
            gamma=self.gamma,
            per_layer=self.per_layer,
        )
        metrics = {
            "fednnnn/N": done.movement.N,
            "fednnnn/E": done.movement.E,
            "fednnnn/skipped": int(done.skipped),
        }
        return RoundResult(done.average, done.state, metrics)


class NormNorm(FedNNNN):
    """Norm-Norm: FedNNNN with gamma = 0."""

    def __init__(
        self,
        *,
        beta: Beta = 1.0,
        weighting: Weighting = "examples",
        per_layer: PerLayer = False,
        **options: Unpack[RuleOptions],
    ) -> None:
        super().__init__(beta=beta, gamma=0.0, weighting=weighting, per_layer=per_layer, **options)


class Momentum(RuleStrategy):
    """Momentum of the averaged update, evaluated on the model that it sends (eq. 10-11)."""

    State = Velocity
    sees_only_the_mean = True

    def __init__(
        self, *, gamma: Gamma = 0.9, weighting: Weighting = "examples", **options: Unpack[RuleOptions]
    ) -> None:
        super().__init__(weighting=weighting, **options)
        check(Momentum, locals())
        self.gamma = gamma

    def rule(self, sent: Arrays, cohort: Cohort, state: Velocity) -> RoundResult:
        """See `momentum_step`."""
        shares = cohort.shares(self.weighting)
        return RoundResult(*momentum_step(sent, cohort.models, shares, state, gamma=self.gamma), {})
