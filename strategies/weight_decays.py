"""Weight decay at the server, around any strategy: AdaDecay and AWD, both in our adaptation (B-32, B-33).

With w the model that was sent, w^ the inner strategy's result, G = w - w^, and one server step a round:

AdaDecay (Nakamura, Hong, IEEE Access 2019), over each array l:
    r_j = (|G_j| - mean_l) / std_l;  0 where |G| is constant up to rounding          (AY1)
    theta_j = 2 / (1 + exp(-alpha r_j)) = 1 + tanh(alpha r_j / 2)                    (AY2)
    w' = w^ - lambda theta * w                                                       (AY3)

AWD (Ghiasi et al., NeurIPS 2023), over all arrays together that a client changed:
    lambda = strength ||G|| / ||w||;  0 if ||w|| < 1e-12                             (AW1)
    smoothed <- 0.1 smoothed + 0.9 lambda                                            (AW2)
    w' = w^ - smoothed w                                                             (AW3)

Both papers decay at each local step. FedLWS compares with both at the aggregation and does not say how. Buffers,
and arrays that no client changed, are not decayed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from flwr.serverapp.strategy import Strategy

from fedstride.arrays.float64_sums import float64, inner, squared_norm, total
from fedstride.arrays.named import Arrays, Layout, epsilon, like, namespace
from fedstride.errors import require
from fedstride.settings import Setting, check

from .fedlaw import FedLAW
from .fedlws import FedLWS
from .replies.cohort import Cohort
from .replies.declared_needs import Needs
from .shell.stack import Metrics, RoundResult
from .shell.wrapper import Wrapper
from .sums.blocks import blockwise, difference, norm, squared_norms
from .sums.updates import updates_of
from .two_d_lrd import TwoDLRD

CONSTANT = 1e-12  # of float64: a standard deviation below this share of the mean is rounding
NOTHING = 1e-12

# ---------------------------------------------------------------- the rules


def relative(G: Any, w: Any) -> Any:
    """r of one array (AY1), float64: |G| standardised with the population's deviation.

    All are 0 if the deviation can be rounding alone: at most 1e-12 of the mean for float64 models, 4 eps max|w|
    for others.
    """
    xp = namespace(G)
    size = xp.abs(float64(G))
    count = max(1, math.prod(size.shape))
    mean = inner(size, xp.ones_like(size)) / count
    centred = size - mean
    std = math.sqrt(squared_norm(centred) / count)
    eps = epsilon(w)
    bound = CONSTANT * mean if eps < CONSTANT else 4.0 * eps * float(xp.max(xp.abs(float64(w))))
    return xp.zeros_like(size) if std <= bound else centred / std


def theta(G: Any, w: Any, alpha: float) -> Any:
    """theta of one array (AY2), float64, in [0, 2]."""
    r = relative(G, w)
    return 1.0 + namespace(r).tanh(0.5 * alpha * r)


def adadecay(sent: Arrays, result: Arrays, names: Sequence[str], *, strength: float, alpha: float) -> Arrays:
    """lambda theta * w of these parameters (AY3), float64; `result` is w^, `strength` is lambda."""
    G = difference(sent, result, names)
    return {name: strength * theta(G[name], sent[name], alpha) * float64(sent[name]) for name in names}


def awd_strength(sent: Arrays, result: Arrays, names: Sequence[str], *, strength: float) -> float:
    """lambda (AW1) over these parameters."""
    length = math.sqrt(total(squared_norms(sent, names).values()))
    return strength * norm(difference(sent, result, names)) / length if length >= NOTHING else 0.0


def decayed(model: Arrays, decay: Arrays) -> Arrays:
    """The model minus the decay of the parameters that have one, in the model's dtypes."""
    changing = {name: model[name] for name in decay}
    return {**model, **blockwise(lambda w, d: like(float64(w) - d, w), changing, decay)}


# ---------------------------------------------------------------- the strategies


class _Decay(Wrapper):
    """What both have in common: which arrays decay, and that both models of a strategy with two (FedNNNN) do."""

    def __init__(self, strategy: Strategy | None = None, **options: Any) -> None:
        super().__init__(strategy, **options)
        name = type(self).__name__
        refused = (_Decay, FedLAW, FedLWS, TwoDLRD)
        inside = next((held for held in self.nested() if isinstance(held, refused)), None)
        require(
            inside is None,
            "strategy",
            type(inside).__name__,
            "one that does not shrink the model itself: FedLAW learns its own factor"
            if isinstance(inside, FedLAW)
            else f"one without another decay, FedLWS or TwoDLRD inside: {name} acts on the aggregation; put it "
            "inside these, or choose one decay",
        )

    def act(self, sent: Arrays, cohort: Cohort, result: Arrays, state: Any) -> RoundResult:
        """Subtract the decay; the equations are at the head of the module."""
        next_model = self.next_model
        updates = updates_of(sent, cohort.models)
        names = [name for name in Layout.of(sent).parameters if updates.is_changed(name)]
        decay, state, metrics = self.decay(sent, result if next_model is None else next_model, names, state)
        if next_model is not None:
            self.next_model = decayed(next_model, decay)
        return RoundResult(decayed(result, decay), state, metrics)

    def decay(self, sent: Arrays, result: Arrays, names: Sequence[str], state: Any) -> tuple[Arrays, Any, Metrics]:
        """What is subtracted from these parameters, the next state, and metrics."""
        raise NotImplementedError


class AdaDecay(_Decay):
    """AdaDecay at the server, around any strategy; our adaptation (B-32).

    `strength` lambda >= 0; `alpha` >= 0: with 0 all weights decay equally. It cannot hold FedLWS, 2D-LRD,
    FedLAW or another decay. Metric: `adadecay/decay`, the norm of what is subtracted. `options` are `Wrapper`'s.
    """

    needs = Needs.SUMS
    takes_tensors = True

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        strength: Annotated[float, Setting("lambda, share of the weights that decays in a round", least=0)] = 5e-4,
        alpha: Annotated[float, Setting("how much more weights with a large update decay", least=0)] = 4.0,
        **options: Any,
    ) -> None:
        super().__init__(strategy, **options)
        check(AdaDecay, locals())
        self.strength = strength
        self.alpha = alpha

    def decay(self, sent: Arrays, result: Arrays, names: Sequence[str], state: Any) -> tuple[Arrays, Any, Metrics]:
        """See `adadecay`."""
        decay = adadecay(sent, result, names, strength=self.strength, alpha=self.alpha)
        return decay, state, {"adadecay/decay": norm(decay)}


class AWDState(NamedTuple):
    """What AWD keeps from round to round."""

    smoothed: float = 0.0


class AWD(_Decay):
    """AWD at the server, around any strategy; our adaptation (B-33).

    `strength` >= 0: ratio of the decay to the update, lambda_awd of the paper. It cannot hold FedLWS, 2D-LRD,
    FedLAW or another decay. Metrics: `awd/lambda`, the smoothed factor; `awd/decay`, the norm of what is
    subtracted. `options` are `Wrapper`'s.
    """

    State = AWDState
    needs = Needs.SUMS
    takes_tensors = True

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        strength: Annotated[float, Setting("length of the decay relative to the update", least=0)] = 0.022,
        **options: Any,
    ) -> None:
        super().__init__(strategy, **options)
        check(AWD, locals())
        self.strength = strength

    def decay(
        self, sent: Arrays, result: Arrays, names: Sequence[str], state: AWDState
    ) -> tuple[Arrays, Any, Metrics]:
        """See `awd_strength`."""
        smoothed = 0.1 * state.smoothed + 0.9 * awd_strength(sent, result, names, strength=self.strength)
        decay = blockwise(lambda w: smoothed * float64(w), {name: sent[name] for name in names})
        return decay, AWDState(smoothed), {"awd/lambda": smoothed, "awd/decay": norm(decay)}
