"""FedNNNN: norm-normalised aggregation (Nagura, Bian, Sato), and its relatives Norm-Norm and Momentum.

    delta = sum_k p_k (w_k - w)          N = ||delta||                  (eq. 4)
    E     = sum_k p_k ||w_k - w||                                       (eq. 5)
    d'    = gamma d + beta (E / N) delta,   d = 0 before round 1        (eq. 12)
    w'    = w + d'         the *normalised* model: sent next round      (eq. 13)
    w^    = w + delta      the *average* model: evaluated, saved, returned

Norm-Norm is gamma = 0. Momentum: d' = gamma d + delta, w' = w + d', one model (eq. 10-11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from array_api_compat import array_namespace
from typing_extensions import Unpack

from fedstride.arrays import Arrays, layer_of
from fedstride.errors import require

from .base import Metrics, RuleOptions, RuleStrategy, put, take
from .means import Movement, averaged_buffers, moved, movement
from .screening import Cohort

NEGLIGIBLE = 1e-8  # A1-4: N below this share of E counts as "extremely small"


class Step(NamedTuple):
    """One server step of FedNNNN."""

    average: Arrays  # w^, in the sent dtypes
    normalised: Arrays  # w', in the sent dtypes
    momentum: Arrays  # d', float64, parameters only
    movement: Movement
    skipped: bool


def step(
    sent: Arrays,
    models: Sequence[Arrays],
    shares: Sequence[float],
    momentum: Arrays | None,
    *,
    beta: float,
    gamma: float,
    per_layer: bool = False,
) -> Step:
    """w^, w' and d' of one round; `momentum` is d, None before the first.

    `per_layer` takes N and E of each layer instead of the whole model (A1-5). Where N is negligible
    beside E, w' = w and d' = d (A1-4), `per_layer` for that layer alone; `skipped` says that it
    happened to the whole model, layer by layer where `per_layer`.
    """
    move = movement(sent, models, shares)
    buffers = averaged_buffers(sent, models, shares)
    d = momentum or _zeros(move.update)
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
        normalised=moved(sent, taken, buffers),
        momentum=next_d,
        movement=move,
        skipped=all(_negligible(move.layer_N[k], move.layer_E[k]) for k in move.layer_N)
        if per_layer
        else _negligible(move.N, move.E),
    )


def momentum_step(
    sent: Arrays, models: Sequence[Arrays], shares: Sequence[float], momentum: Arrays | None, *, gamma: float
) -> tuple[Arrays, Arrays]:
    """(w', d') of Momentum: d' = gamma d + delta, w' = w + d' (eq. 10-11)."""
    update = movement(sent, models, shares).update
    d = momentum or _zeros(update)
    next_d = {name: gamma * d[name] + delta for name, delta in update.items()}
    return moved(sent, next_d, averaged_buffers(sent, models, shares)), next_d


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

    def __init__(
        self,
        *,
        beta: float = 0.7,
        gamma: float = 0.8,
        per_layer: bool = False,
        **options: Unpack[RuleOptions],
    ) -> None:
        super().__init__(**options)
        require(0.0 < beta < float("inf"), "beta", beta, "a finite number greater than 0")
        require(0.0 <= gamma < 1.0, "gamma", gamma, "in [0, 1)")
        self.beta = beta
        self.gamma = gamma
        self.per_layer = per_layer
        self.momentum: Arrays | None = None
        self._next_model: Arrays | None = None

    def rule(self, sent: Arrays, cohort: Cohort) -> tuple[Arrays, Metrics]:
        """See `step`."""
        done = step(
            sent,
            cohort.models,
            cohort.shares(self.weighting),
            self.momentum,
            beta=self.beta,
            gamma=self.gamma,
            per_layer=self.per_layer,
        )
        self.momentum = done.momentum
        self._next_model = done.normalised
        return done.average, {
            "fednnnn/N": done.movement.N,
            "fednnnn/E": done.movement.E,
            "fednnnn/skipped": int(done.skipped),
        }

    @property
    def next_model(self) -> Arrays | None:
        """w', in the sent dtypes; None before the first round."""
        return self._next_model

    @next_model.setter
    def next_model(self, model: Arrays) -> None:
        self._next_model = model

    def reset(self) -> None:
        """d = 0, and the next model sent is the one given."""
        self.momentum = None
        self._next_model = None

    def state_dict(self) -> dict[str, Any]:
        """d and w'."""
        return put("momentum", self.momentum) | put("next", self._next_model)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore d and w'."""
        self.momentum = take(state, "momentum") or None
        self._next_model = take(state, "next") or None


class NormNorm(FedNNNN):
    """Norm-Norm: FedNNNN with gamma = 0."""

    def __init__(self, *, beta: float = 1.0, per_layer: bool = False, **options: Unpack[RuleOptions]) -> None:
        super().__init__(beta=beta, gamma=0.0, per_layer=per_layer, **options)


class Momentum(RuleStrategy):
    """Momentum of the averaged update, evaluated on the model that it sends (eq. 10-11)."""

    sees_only_the_mean = True

    def __init__(self, *, gamma: float = 0.9, **options: Unpack[RuleOptions]) -> None:
        super().__init__(**options)
        require(0.0 <= gamma < 1.0, "gamma", gamma, "in [0, 1)")
        self.gamma = gamma
        self.momentum: Arrays | None = None

    def rule(self, sent: Arrays, cohort: Cohort) -> tuple[Arrays, Metrics]:
        """See `momentum_step`."""
        model, self.momentum = momentum_step(
            sent, cohort.models, cohort.shares(self.weighting), self.momentum, gamma=self.gamma
        )
        return model, {}

    def reset(self) -> None:
        """d = 0."""
        self.momentum = None

    def state_dict(self) -> dict[str, Any]:
        """d."""
        return put("momentum", self.momentum)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore d."""
        self.momentum = take(state, "momentum") or None
