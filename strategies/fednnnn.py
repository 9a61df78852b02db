"""FedNNNN: norm-normalised aggregation (Nagura, Bian, Sato), and its relatives Norm-Norm and Momentum.

    delta = sum_k p_k (w_k - w)          N = ||delta||                  (eq. 4)
    E     = sum_k p_k ||w_k - w||                                       (eq. 5)
    d'    = gamma d + beta (E / N) delta,   d = 0 before round 1        (eq. 12)
    w'    = w + d'         the *normalised* model: sent next round      (eq. 13)
    w^    = w + delta      the *average* model: evaluated, saved, returned

Norm-Norm is gamma = 0. Momentum: d' = gamma d + delta, w' = w + d', one model (eq. 10-11).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

from typing_extensions import Unpack

from fedstride.arrays.named import Arrays, Layout
from fedstride.settings import Setting, check

from .replies.cohort import Cohort
from .replies.declared_needs import Needs
from .shell.rule_strategy import RuleOptions, RuleStrategy, Weighting
from .shell.stack import RoundResult
from .sums.blocks import blockwise
from .sums.means import Movement, Norms, add_step, averaged_buffers, mean_update, movement, zeros_like

NEGLIGIBLE = 1e-8  # A1-4: N below this share of E counts as "extremely small"
CANCELLED = 0.5  # A1-4: with N below this share of E, the clients' updates cancel, which leaves their rounding


Beta = Annotated[float, Setting("factor of the normalised step", above=0)]
Gamma = Annotated[float, Setting("momentum", least=0, below=1)]
PerLayer = Annotated[bool, Setting("N and E layer by layer instead of over the whole model")]


class FedNNNNState(NamedTuple):
    """What FedNNNN keeps from round to round."""

    momentum: Arrays | None = None  # d, float64, parameters only; None for 0
    next: Arrays | None = None  # w', in the sent dtypes; None before the first round


class Aggregated(NamedTuple):
    """One round of FedNNNN at the server."""

    average: Arrays  # w^, in the sent dtypes
    state: FedNNNNState  # w' and d'
    movement: Movement
    skipped: bool  # w' = w, for the whole model (A1-4)


def normalised_momentum(d: Arrays, delta: Arrays, N: float, E: float, *, beta: float, gamma: float) -> Arrays:
    """d' = gamma d + beta (E / N) delta (eq. 12); N > 0."""
    factor = beta * E / N
    return blockwise(lambda delta, d: gamma * d + factor * delta, delta, d)


def aggregate(
    sent: Arrays,
    models: Sequence[Arrays],
    shares: Sequence[float],
    state: FedNNNNState,
    *,
    beta: float,
    gamma: float,
    per_layer: bool = False,
) -> Aggregated:
    """w^, w' and d' of one round, from the clients' models w_k and d; `state.next` is not used.

    `per_layer` takes N and E of each layer instead of the whole model (A1-5). Where N is negligible,
    w' = w and d' = d (A1-4), with `per_layer` for that layer alone.
    """
    move = movement(sent, models, shares)
    d = state.momentum or zeros_like(move.update)
    next_d, step, skipped = dict(d), zeros_like(move.update), True
    for names, norms in _normalised_together(sent, move, per_layer):
        if _negligible(norms):
            continue
        delta = {name: move.update[name] for name in names}
        of_names = normalised_momentum(d, delta, norms.N, norms.E, beta=beta, gamma=gamma)
        next_d |= of_names
        step |= of_names
        skipped = False
    buffers = averaged_buffers(sent, models, shares)
    return Aggregated(
        average=add_step(sent, move.update, buffers),
        state=FedNNNNState(momentum=next_d, next=add_step(sent, step, buffers)),
        movement=move,
        skipped=skipped,
    )


def _normalised_together(sent: Arrays, move: Movement, per_layer: bool) -> Iterator[tuple[tuple[str, ...], Norms]]:
    """The parameters that share N and E, with them: all, or those of each layer."""
    layout = Layout.of(sent)
    if not per_layer:
        yield layout.parameters, move.whole
        return
    for layer, names in layout.layers.items():
        yield names, move.layers[layer]


def _negligible(norms: Norms) -> bool:
    """A1-4: nobody moved, or the updates cancel and their mean may be the clients' rounding alone.

    If they do not cancel, a small N is a small update: identical clients must give FedAvg's step.
    """
    N, E, resolution = norms
    return NEGLIGIBLE * E >= N or (CANCELLED * E >= N and resolution >= N)


class Velocity(NamedTuple):
    """What Momentum keeps from round to round."""

    momentum: Arrays | None = None  # d, float64, parameters only; None for 0


def aggregate_momentum(
    sent: Arrays, models: Sequence[Arrays], shares: Sequence[float], state: Velocity, *, gamma: float
) -> tuple[Arrays, Velocity]:
    """(w', d') of Momentum: d' = gamma d + delta, w' = w + d' (eq. 10-11)."""
    delta = mean_update(sent, models, shares)
    next_d = blockwise(lambda delta, d: gamma * d + delta, delta, state.momentum or zeros_like(delta))
    return add_step(sent, next_d, averaged_buffers(sent, models, shares)), Velocity(next_d)


class FedNNNN(RuleStrategy):
    """FedNNNN as a Flower strategy.

    `beta` > 0 scales the normalised step, `gamma` in [0, 1) is the momentum, `weighting` gives p_k
    (the paper's experiments use "uniform"), `per_layer` normalises layer by layer.

    Two models a round (A1-1): `aggregate_train` returns the average w^, which is the one to evaluate,
    save and use; the normalised w' is `next_model`, which the next `configure_train` sends in place
    of the model it is given. Metrics: `fednnnn/N`, `fednnnn/E`, `fednnnn/skipped`.
    """

    State = FedNNNNState
    needs = Needs.SUMS
    takes_tensors = True

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
        """See `aggregate`."""
        result = aggregate(
            sent,
            cohort.models,
            cohort.shares(self.weighting),
            state,
            beta=self.beta,
            gamma=self.gamma,
            per_layer=self.per_layer,
        )
        metrics = {
            "fednnnn/N": result.movement.whole.N,
            "fednnnn/E": result.movement.whole.E,
            "fednnnn/skipped": int(result.skipped),
        }
        return RoundResult(result.average, result.state, metrics)


class NormNorm(FedNNNN):
    """Norm-Norm: FedNNNN with gamma = 0."""

    needs = Needs.SUMS
    takes_tensors = True

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
    needs = Needs.MEAN
    takes_tensors = True

    def __init__(
        self, *, gamma: Gamma = 0.9, weighting: Weighting = "examples", **options: Unpack[RuleOptions]
    ) -> None:
        super().__init__(weighting=weighting, **options)
        check(Momentum, locals())
        self.gamma = gamma

    def rule(self, sent: Arrays, cohort: Cohort, state: Velocity) -> RoundResult:
        """See `aggregate_momentum`."""
        shares = cohort.shares(self.weighting)
        return RoundResult(*aggregate_momentum(sent, cohort.models, shares, state, gamma=self.gamma), {})
