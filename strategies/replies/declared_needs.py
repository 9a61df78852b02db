"""What a rule needs of the clients' updates: declared once, in its class, and all that it gets.

Whoever must know how much of single clients a strategy uses (privacy; the screening, which makes a sum while it
reads) asks for this declaration and for nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import cached_property
from typing import Any, cast

from typing_extensions import override

from fedstride.arrays.named import Arrays
from fedstride.errors import RunError

from ..sums.fast_updates import Models
from ..sums.updates import Updates
from .cohort import Cohort, Reply


class Needs(IntEnum):
    """How much of the updates w_k - w of a round's clients a rule uses; each level includes those before it."""

    NOTHING = 0
    MEAN = 1
    """sum_k p_k (w_k - w), with p_k by examples or all equal, and the same mean of buffers."""

    SUMS = 2
    """Sums of what each client's own update and report give: also sum_k a_k (w_k - w) with other factors a_k, one
    such list of factors a round, and scalars of each update: its length, whether it changes an array."""

    EACH = 3
    """Each client's update."""


def declared(strategy: object) -> Needs:
    """What the strategy's own class declares. It need not hold for a derived class, which so needs each update.

    A class whose needs depend on its settings declares a property.
    """
    needs = vars(type(strategy)).get("needs", Needs.EACH)
    return cast(Needs, needs.__get__(strategy) if isinstance(needs, property) else needs)


def limited(cohort: Cohort, needs: Needs, who: str) -> Cohort:
    """The cohort for a rule called `who`, which has these needs.

    Its replies, models and sums raise RunError, in one line, if they are asked for more.
    """
    if needs is Needs.EACH:
        return cohort
    limits = _Limits(needs, who, cohort.shares("examples"))
    values = {field.name: getattr(cohort, field.name) for field in fields(Cohort)}
    replies = tuple(cast(Reply, _LimitedReply(reply, limits)) for reply in cohort.replies)
    return _LimitedCohort(**values | {"replies": replies, "read": None}, whole=cohort, limits=limits)


class _Limits:
    """What one rule may ask of the updates of one round."""

    def __init__(self, needs: Needs, who: str, shares: Sequence[float]) -> None:
        self.needs = needs
        self.who = who
        self.shares = list(shares)  # p_k by examples
        self.others: list[float] | None = None  # the other factors that were used

    def require(self, needs: Needs, what: str) -> None:
        """Raises RunError if this was not declared."""
        if needs > self.needs:
            raise RunError(
                f"{self.who} asks for {what}, but its class declares needs = Needs.{self.needs.name}; declare "
                f"Needs.{needs.name} there if it uses this"
            )

    def require_sum(self, factors: Sequence[float]) -> None:
        """Raises RunError if the sum with these factors was not declared."""
        if list(factors) == self.shares or len(set(factors)) <= 1:
            self.require(Needs.MEAN, "the mean of the updates")
            return
        self.require(Needs.SUMS, "a sum of the updates that is not their mean")
        if self.others not in (None, list(factors)):
            self.require(Needs.EACH, "several sums of the updates with factors of its own")
        self.others = list(factors)


_WITHHELD = {
    "model": (Needs.EACH, "the model of a single client"),
    "message": (Needs.EACH, "the message of a single client"),
    "extras": (Needs.EACH, "the arrays of a single client"),
    "length": (Needs.SUMS, "the length of a single update"),
    "extra_lengths": (Needs.SUMS, "the lengths of a single client's arrays"),
}


class _LimitedReply:
    """A reply without what was not declared."""

    def __init__(self, reply: Reply, limits: _Limits) -> None:
        self._reply = reply
        self._limits = limits

    def __getattr__(self, name: str) -> Any:
        if name in _WITHHELD:
            self._limits.require(*_WITHHELD[name])
        return getattr(self._reply, name)


class _LimitedModels(Sequence[Arrays]):
    """The models of a round, as far as their updates were declared."""

    def __init__(self, models: Models, limits: _Limits) -> None:
        self._models = models
        self._limits = limits

    def __len__(self) -> int:
        return len(self._models)

    def __getitem__(self, place: Any) -> Any:
        self._limits.require(*_WITHHELD["model"])
        return self._models[place]

    def updates_from(self, sent: Arrays) -> Updates:
        """See `Models`."""
        return _LimitedUpdates(self._models.updates_from(sent), self, self._limits)


class _LimitedUpdates(Updates):
    """Updates that give what was declared."""

    def __init__(self, updates: Updates, models: _LimitedModels, limits: _Limits) -> None:
        super().__init__(updates.sent, models)
        self._updates = updates
        self._limits = limits

    @override
    def squares(self, name: str) -> list[float]:
        self._limits.require(*_WITHHELD["length"])
        return self._updates.squares(name)

    @override
    def summed(self, factors: Sequence[float]) -> Arrays:
        self._limits.require_sum(factors)
        return self._updates.summed(factors)

    @override
    def averaged(self, name: str, shares: Sequence[float]) -> Any:
        self._limits.require_sum(shares)
        return self._updates.averaged(name, shares)

    @override
    def products(self, vector: Arrays) -> list[float]:
        self._limits.require(Needs.EACH, "products with single updates")
        return self._updates.products(vector)

    @override
    def distances(self, name: str) -> list[float]:
        self._limits.require(Needs.EACH, "distances of single updates")
        return self._updates.distances(name)

    @override
    def among(self, models: Sequence[Arrays]) -> Updates:
        return self._updates.among(models)

    @override
    def is_changed(self, name: str) -> bool:
        """Of a buffer, it goes with the mean: a buffer that nobody changed stays as it is."""
        needed = Needs.SUMS if name in self.names else Needs.MEAN
        self._limits.require(needed, f"whether a client changed {name!r}")
        return self._updates.is_changed(name)


@dataclass(frozen=True)
class _LimitedCohort(Cohort):
    """The valid replies of a round without what was not declared."""

    whole: Cohort | None = None
    limits: _Limits | None = None

    @cached_property
    @override
    def models(self) -> Any:
        assert self.whole is not None and self.limits is not None
        return _LimitedModels(self.whole.models, self.limits)

    @override
    def extras(self, record: str) -> Any:
        assert self.whole is not None and self.limits is not None
        limits = _Limits(self.limits.needs, self.limits.who, self.limits.shares)
        return _LimitedModels(self.whole.extras(record), limits)
