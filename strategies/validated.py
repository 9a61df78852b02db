"""Validated: a reply that makes the mean model worse, on examples that the server has, is left out.

With A a subset of the replies of a round, and p_k their shares:

    l_j(A) = loss of  w + sum_{k in A} p_k Delta_k / sum_{k in A} p_k  on the server's example j of n
    f_kj = l_j(A) - l_j(A without k):  how far the loss falls without k;  f_k is its mean over j, 0 where it is
           rounding alone: at most 1e-12 of the mean of l_j(A)
    v_k = sum_j (f_kj - f_k)^2 / (n (n - 1)):  the square of the standard error of f_k
    z_k = (S_k + f_k) / sqrt(V_k + v_k),   S_k, V_k: what is known of client k from rounds before, at first 0

    A_0 = all;   A_{i+1} = A_i without k,  k = argmax_k z_k in A_i
    as long as  z_k > sure  and  |A_0| - |A_{i+1}| <= most |A_0|

The parts inside see the last A. After the round, with f_k and v_k in A_0, for each k of A_0:

    S_k <- memory S_k + f_k,   V_k <- memory^2 V_k + v_k;   both 0 if S_k <= 0

So a client can move the mean model by what does not raise this loss by more than chance explains, in a round and
over rounds, whatever its update's direction and length. The examples are the same in all rounds, so z_k is a
yardstick and no normal deviate.

Not from a paper. Zeno (Xie et al., ICML 2019) has the server's examples and the loss, but scores each update alone
and keeps a fixed number; an honest client with few classes is bad alone and good in the mean. FLTrust (Cao et al.,
NDSS 2021) compares directions with an update of the server's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from logging import INFO
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
from flwr.serverapp.strategy import Strategy

from fedstride.arrays.finite import held_of, put_back
from fedstride.arrays.named import Arrays
from fedstride.errors import given, require
from fedstride.flower.logs import log
from fedstride.settings import Setting, check

from .replies.cohort import Cohort, shares_of
from .replies.declared_needs import Needs, declared, limited
from .shell.stack import Admission
from .shell.wrapper import Wrapper
from .sums.blocks import blockwise, difference
from .sums.means import add_step, averaged_buffers, mean_update


class ProxyExamples(Protocol):
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
    loss: float  # L with it, the mean of l_j
    loss_without: float
    z: float


class Fall(NamedTuple):
    """How far the loss falls without a client."""

    mean: float  # f_k; not finite if a loss is not
    variance: float  # v_k


NOTHING = Fall(0.0, 0.0)

ROUNDING = 1e-12
"""A fall of at most this share of the loss is none: two sums of the same replies differ by as much."""


@dataclass(frozen=True)
class Validation:
    """What a round's replies were found to be."""

    kept: list[int]  # places, in rising order
    left_out: list[LeftOut]  # in the order in which they were left out
    loss: float  # L of those kept
    falls: list[Fall]  # of all replies, in A_0


def validate(
    sent: Arrays,
    models: Sequence[Arrays],
    shares: Sequence[float],
    examples: ProxyExamples,
    before: Sequence[Fall],
    *,
    sure: float,
    most: float,
) -> Validation:
    """The replies that are kept.

    `shares`: p_k > 0; `before`: S_k and V_k. At equal z the first reply is left out. A model with a loss that is
    not finite has an infinite one: where a reply alone is the reason, its z is infinite.
    """
    trial = _Trial(sent, models, shares, examples)
    kept = list(range(len(models)))
    left_out: list[LeftOut] = []
    losses, without = trial.losses(kept), trial.losses_without_each(kept)
    falls = latest = [fall_of(losses, rest) for rest in without]
    room = min(int(most * len(models) + 1e-9), len(models) - 1)
    while len(left_out) < room:
        z = [deviation(fall, before[place]) for fall, place in zip(latest, kept, strict=True)]
        worst = z.index(max(z))
        if not z[worst] > sure:
            break
        left_out.append(LeftOut(kept.pop(worst), _mean(losses), _mean(without[worst]), z[worst]))
        losses = without[worst]
        if len(left_out) < room:
            without = trial.losses_without_each(kept)
            latest = [fall_of(losses, rest) for rest in without]
    return Validation(kept, left_out, _mean(losses), falls or [NOTHING])


def fall_of(losses: np.ndarray, without: np.ndarray) -> Fall:
    """f_k and v_k. f_k is infinite, without a variance, if one mean is, and 0 if both are or it is `ROUNDING`."""
    one, other = _mean(losses), _mean(without)
    if not (math.isfinite(one) and math.isfinite(other)):
        return Fall(0.0 if one == other else one - other, 0.0)
    fall = losses - without
    mean = float(fall.mean())
    return Fall(0.0 if abs(mean) <= ROUNDING * abs(one) else mean, float(fall.var(ddof=1)) / len(fall))


def deviation(fall: Fall, before: Fall) -> float:
    """z_k: infinite if something is above 0 without a variance; 0 if nothing is above 0."""
    known, variance = before.mean + fall.mean, before.variance + fall.variance
    if not known > 0.0:
        return 0.0
    return known / math.sqrt(variance) if variance > 0.0 else math.inf


def remembered(fall: Fall, before: Fall, memory: float) -> Fall:
    """S_k and V_k after a round. An infinite fall is not added: it says nothing of its size."""
    if not math.isfinite(fall.mean):
        return before
    known = memory * before.mean + fall.mean
    return Fall(known, memory**2 * before.variance + fall.variance) if known > 0.0 else NOTHING


def _mean(losses: np.ndarray) -> float:
    """L, infinite if a loss is not finite."""
    mean = float(np.mean(losses))
    return mean if math.isfinite(mean) else math.inf


class _Trial:
    """The losses l as a function of a subset, given by places in rising order."""

    def __init__(
        self, sent: Arrays, models: Sequence[Arrays], shares: Sequence[float], examples: ProxyExamples
    ) -> None:
        self._sent, self._models, self._shares, self._examples = sent, models, shares, examples
        self._held = held_of(sent)

    def losses(self, places: Sequence[int]) -> np.ndarray:
        """l of this subset."""
        return self._losses(self._mean(places), places)

    def losses_without_each(self, places: Sequence[int]) -> list[np.ndarray]:
        """l of this subset without each of its members, in order; none of a subset of one."""
        if len(places) == 1:
            return []
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


MOST_CLIENTS = 10_000
"""Of so many clients the server remembers falls; the one that was not seen for the longest time gives way."""


class Evidence(NamedTuple):
    """S_k and V_k by client id, float64 (2,), in the order in which clients were last seen; those with 0 miss."""

    falls: Mapping[str, Any] | None = None


class Validated(Wrapper):
    """Leaves out replies that make the mean model worse on the server's examples, around any strategy.

    `proxy`: the server's examples with a network, see `ProxyExamples`. In a run it is made from `task.proxy`; the
    examples are then in no test set and in no client's training set, of any method that is run with this value.
    `sure` >= 0: the z above which a reply is left out. `memory` in [0, 1): how much of a round's evidence is left
    after the next; with 0 each round stands alone. `most` in (0, 0.5): the largest share of a round's replies that
    is left out. p_k as the strategy inside weighs clients. The loss is the task's, with the clients' mean buffers.

    Each loss is that of all examples, and a round of m replies takes m + 1 of them, and up to m more for each
    reply that is left out. Two numbers a client are kept, of at most 10,000 clients. The length of an update is
    bounded by the screening alone.

    Metrics: `validated/loss`, of the mean model of those kept; `validated/left_out`, how many are left out;
    `validated/examples`. Each is logged. `options` are `Wrapper`'s.
    """

    State = Evidence
    needs = Needs.EACH
    takes_tensors = False

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        proxy: ProxyExamples | None = None,
        sure: Annotated[
            float, Setting("how many standard errors a reply must cost to be left out", least=0, most=100)
        ] = 3.0,
        memory: Annotated[
            float, Setting("share of the evidence that is left after the next round", least=0, below=1)
        ] = 0.9,
        most: Annotated[
            float, Setting("largest share of a round's replies that is left out", above=0, below=0.5)
        ] = 0.4,
        **options: Any,
    ) -> None:
        super().__init__(strategy, **options)
        check(Validated, locals())
        self.proxy = proxy
        self.sure = sure
        self.memory = memory
        self.most = most
        self.server_round = 0

    def begin_round(self, server_round: int, asked: int) -> None:
        """The round is kept for the log. Raises ConfigError without examples."""
        self._present()
        self.server_round = server_round

    def admit(self, sent: Arrays, cohort: Cohort, state: Evidence) -> Admission:
        """The replies that are kept; see `validate`."""
        examples = self._present()
        seen = limited(cohort, declared(self), self.part_name)
        known = dict(state.falls or {})
        clients = [str(reply.client_id) for reply in cohort.replies]
        before = [Fall(*map(float, known[client])) if client in known else NOTHING for client in clients]
        shares = seen.shares(self.weighting)
        validation = validate(sent, seen.models, shares, examples, before, sure=self.sure, most=self.most)
        self._log(validation, cohort)
        for client, fall, earlier in zip(clients, validation.falls, before, strict=True):
            known.pop(client, None)  # at its end again, as the client that was seen last
            after = remembered(fall, earlier, self.memory)
            if after != NOTHING:
                known[client] = np.array(after, np.float64)
        evidence = Evidence(dict(list(known.items())[-MOST_CLIENTS:]) or None)
        metrics = {
            "validated/loss": validation.loss,
            "validated/left_out": len(validation.left_out),
            "validated/examples": len(examples),
        }
        kept = tuple(cohort.replies[place] for place in validation.kept)
        return Admission(replace(cohort, replies=kept), evidence, metrics)

    def _log(self, validation: Validation, cohort: Cohort) -> None:
        for left_out in validation.left_out:
            log(
                INFO,
                "round %d: client %d is left out: the server's examples have loss %.4g with it, %.4g without; "
                "over rounds %.1f standard errors",
                self.server_round,
                cohort.replies[left_out.place].client_id,
                left_out.loss,
                left_out.loss_without,
                left_out.z,
            )

    def _present(self) -> ProxyExamples:
        said = f"at least two examples of the server's with a network; see {__name__}.{ProxyExamples.__name__}"
        examples = given("proxy", self.proxy, said)
        require(len(examples) > 1, "proxy", f"{len(examples)} examples", said)
        return examples
