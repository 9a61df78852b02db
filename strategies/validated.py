"""Validated: a reply with which the mean model is worse, on examples that the server has, is left out.

With A a subset of the replies of a round, and p_k their shares:

    l_j(A) = loss of  w + sum_{k in A} p_k Delta_k / sum_{k in A} p_k  on the server's example j of n
    L(A) = mean_j l_j(A)
    A_0 = all;   A_{i+1} = A_i without k,  k = argmin_k L(A_i without k)
    as long as  mean_j d_j > sure s / sqrt(n)  and  |A_0| - |A_{i+1}| <= most |A_0|,
        d_j = l_j(A_i) - l_j(A_{i+1}),   s^2 = sum_j (d_j - mean d)^2 / (n - 1)

The parts inside see the last A. So a client can move the mean model by what does not raise this loss by more than
examples so few can tell from chance, whatever its update's direction and length.

Not from a paper. Zeno (Xie et al., ICML 2019) has the server's examples and the loss, but scores each update alone
and keeps a fixed number; an honest client with few classes is bad alone and good in the mean. FLTrust (Cao et al.,
NDSS 2021) compares directions with an update of the server's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from logging import INFO
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
from flwr.serverapp.strategy import Strategy

from fedstride.arrays import Arrays
from fedstride.errors import given, require
from fedstride.finite import held_of, put_back
from fedstride.flower.logs import log
from fedstride.settings import Setting, check

from .blocks import blockwise, difference
from .cohort import Cohort, shares_of
from .means import add_step, averaged_buffers, mean_update
from .needs import Needs, declared, limited
from .stack import Admission
from .wrappers import Wrapper


class Examples(Protocol):
    """The server's examples, with a network."""

    def __len__(self) -> int:
        """The number of examples n, at least 2."""

    def losses(self, model: Arrays) -> np.ndarray:
        """Loss of the network with these arrays on each example, in eval mode: float64 (examples,).

        Equal arrays must give equal bits.
        """


class LeftOut(NamedTuple):
    """A reply that is left out."""

    place: int  # in the order of the cohort
    loss: float  # L with it
    loss_without: float


@dataclass(frozen=True)
class Validation:
    """What a round's replies were found to be."""

    kept: list[int]  # places, in rising order
    left_out: list[LeftOut]  # in the order in which they were left out
    loss: float  # L of those kept


def validate(
    sent: Arrays,
    models: Sequence[Arrays],
    shares: Sequence[float],
    examples: Examples,
    *,
    sure: float,
    most: float,
) -> Validation:
    """The replies that are kept.

    `shares`: p_k > 0. At equal losses the first reply is left out. A model with a loss that is not finite has an
    infinite one, and is worse than each that has not.
    """
    trial = _Trial(sent, models, shares, examples)
    kept = list(range(len(models)))
    left_out: list[LeftOut] = []
    losses = trial.losses(kept)
    while len(left_out) + 1 <= most * len(models) + 1e-9 and len(kept) > 1:
        without = trial.losses_without_each(kept)
        least = min(range(len(kept)), key=lambda place: _mean(without[place]))
        if not _is_lower(without[least], losses, sure):
            break
        left_out.append(LeftOut(kept.pop(least), _mean(losses), _mean(without[least])))
        losses = without[least]
    return Validation(kept, left_out, _mean(losses))


def _mean(losses: np.ndarray) -> float:
    """L, infinite if a loss is not finite."""
    mean = float(np.mean(losses))
    return mean if math.isfinite(mean) else math.inf


def _is_lower(after: np.ndarray, before: np.ndarray, sure: float) -> bool:
    """Whether the mean of `after` is lower by more than `sure` standard errors of the difference."""
    if not (math.isfinite(_mean(after)) and math.isfinite(_mean(before))):
        return _mean(after) < _mean(before)
    fall = before - after
    return float(fall.mean()) > sure * float(fall.std(ddof=1)) / math.sqrt(len(fall))


class _Trial:
    """The losses l as a function of a subset, given by places in rising order."""

    def __init__(
        self, sent: Arrays, models: Sequence[Arrays], shares: Sequence[float], examples: Examples
    ) -> None:
        self._sent, self._models, self._shares, self._examples = sent, models, shares, examples
        self._held = held_of(sent)

    def losses(self, places: Sequence[int]) -> np.ndarray:
        """l of this subset."""
        return self._losses(self._mean(places), places)

    def losses_without_each(self, places: Sequence[int]) -> list[np.ndarray]:
        """l of this subset without each of its members, in order."""
        mean = self._mean(places)
        p = dict(zip(places, self._among(places)[1], strict=True))
        return [
            self._losses(self._mean_without(mean, k, p[k]), [place for place in places if place != k])
            for k in places
        ]

    def _mean_without(self, mean: Arrays, k: int, p: float) -> Arrays:
        """The mean update without that of client number k, which has the share p < 1 in it."""
        update = difference(self._models[k], self._sent, list(mean))
        return blockwise(lambda mean, update: (mean - p * update) / (1.0 - p), mean, update)

    def _mean(self, places: Sequence[int]) -> Arrays:
        return mean_update(self._sent, *self._among(places))

    def _losses(self, update: Arrays, places: Sequence[int]) -> np.ndarray:
        mixed = add_step(self._sent, update, averaged_buffers(self._sent, *self._among(places)))
        return self._examples.losses(put_back(mixed, self._held))

    def _among(self, places: Sequence[int]) -> tuple[list[Arrays], list[float]]:
        """The models of a subset, and their shares in it."""
        return [self._models[place] for place in places], shares_of([self._shares[place] for place in places])


class Validated(Wrapper):
    """Leaves out replies that make the mean model worse on the server's examples, around any strategy.

    `proxy`: the server's examples with a network, see `Examples`. In a run it is made from `task.proxy`; the
    examples are then in no test set and in no client's training set, of any method that is run with this value.
    `sure` >= 0: by how many standard errors the loss must fall for a reply to be left out; with 0 each fall is
    enough. `most` in (0, 0.5): the largest share of a round's replies that is left out. p_k as the strategy inside
    weighs clients. The loss is the task's, with the clients' mean buffers.

    Each loss is that of all examples, and a round of m replies takes m + 1 of them, and up to m more for each
    reply that is left out. The length of an update is bounded by the screening alone.

    Metrics: `validated/loss`, of the mean model of those kept; `validated/left_out`, how many are left out;
    `validated/examples`. Each is logged. `options` are `Wrapper`'s.
    """

    needs = Needs.EACH
    takes_tensors = False

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        proxy: Examples | None = None,
        sure: Annotated[
            float,
            Setting("by how many standard errors the loss must fall to leave out a reply", least=0, most=100),
        ] = 1.0,
        most: Annotated[
            float, Setting("largest share of a round's replies that is left out", above=0, below=0.5)
        ] = 0.4,
        **options: Any,
    ) -> None:
        super().__init__(strategy, **options)
        check(Validated, locals())
        self.proxy = proxy
        self.sure = sure
        self.most = most
        self.server_round = 0

    def begin_round(self, server_round: int, asked: int) -> None:
        """The round is kept for the log. Raises ConfigError without examples."""
        self._present()
        self.server_round = server_round

    def admit(self, sent: Arrays, cohort: Cohort, state: Any) -> Admission:
        """The replies that are kept; see `validate`."""
        examples = self._present()
        seen = limited(cohort, declared(self), self.part_name)
        found = validate(
            sent,
            seen.models,
            seen.shares(self.weighting),
            examples,
            sure=self.sure,
            most=self.most,
        )
        for each in found.left_out:
            log(
                INFO,
                "round %d: client %d is left out: the server's examples have loss %.4g with it, %.4g without",
                self.server_round,
                cohort.replies[each.place].client_id,
                each.loss,
                each.loss_without,
            )
        metrics = {
            "validated/loss": found.loss,
            "validated/left_out": len(found.left_out),
            "validated/examples": len(examples),
        }
        kept = tuple(cohort.replies[place] for place in found.kept)
        return Admission(replace(cohort, replies=kept), state, metrics)

    def _present(self) -> Examples:
        said = "at least two examples of the server's with a network; see strategies.validated.Examples"
        examples = given("proxy", self.proxy, said)
        require(len(examples) > 1, "proxy", f"{len(examples)} examples", said)
        return examples
