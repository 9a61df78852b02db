"""A wrapper: an act around another strategy, Flower's own or ours.

A wrapper is a subclass with `act()`, which sees the model that was sent, the valid replies and the inner
strategy's result. `FedLWS(FedNNNN())` is a list of two parts; `flower_strategy.py` calls them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Never

from flwr.serverapp.strategy import Strategy

from fedstride.errors import require
from fedstride.flower.strategy_internals import chain
from fedstride.messages import wire
from fedstride.settings import check

from ..fedavg import FedAvg
from ..replies.declared_needs import Needs
from ..replies.screening_settings import Screening
from .device import claims
from .flower_strategy import Shell, has_own_way
from .outside_strategy import Foreign
from .rule_strategy import check_options, settings_in
from .stack import Act, Stack


class Wrapper(Act, Shell):
    """Acts on the result of `strategy`.

    `strategy`: any Flower Strategy; our FedAvg if none is given. `screening` and `buffers` as in
    `RuleStrategy`; the inner strategy's if none are given.

    The result keeps the sent dtypes (Flower's FedAdam returns float64). See `averages_buffers` for what
    happens to buffers.
    """

    around: ClassVar[Mapping[str, Any]] = {}
    """Settings of the FedAvg that the wrapper wraps if no strategy is given."""

    averages_buffers: ClassVar[bool] = True
    """Whether FedAvg's averages replace the buffers in a result of Flower's FedAvgM or FedOpt strategies."""

    may_hold_privacy: bool = False
    """Whether it may wrap DifferentialPrivacy: True only if no model depends on the updates that it sees."""

    is_private: bool = False
    """Whether it is DifferentialPrivacy itself."""

    needs: ClassVar[Needs] = Needs.NOTHING
    """What `act` uses of the clients' updates; a derived class that does not state it needs each. See `Needs`."""

    takes_tensors = True

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        screening: Screening | None = None,
        buffers: Sequence[str] | None = None,
        **unknown: Never,
    ) -> None:
        check_options(type(self), unknown, settings_in(Wrapper) if unknown else ())
        self.strategy: Strategy = FedAvg(**self.around) if strategy is None else strategy
        require(
            isinstance(self.strategy, Strategy),
            "strategy",
            strategy,
            "a Flower Strategy (flwr.serverapp.strategy)",
        )
        self.screening: Screening = screening or getattr(self.strategy, "screening", None) or Screening()
        check(Screening, vars(self.screening))
        self.buffers = tuple(getattr(self.strategy, "buffers", ()) if buffers is None else buffers)
        for held in self.nested():
            declared = getattr(held, "buffers", self.buffers)
            require(
                set(declared) == set(self.buffers),
                "buffers",
                list(self.buffers),
                f"{list(declared)}, as in {type(held).__name__} inside; set them there only",
            )
        name = type(self).__name__
        require(
            claims(self, "may_hold_privacy")
            or not any(getattr(held, "is_private", False) for held in self.nested()),
            "strategy",
            "DifferentialPrivacy",
            f"one without DifferentialPrivacy: {name} would see unprotected updates; write "
            f"DifferentialPrivacy({name}(...))",
        )
        twice = [
            type(held).__name__ for held in self.nested() if self.half and getattr(held, "half", "") == self.half
        ]
        others = f"a strategy without {self.half!r} inside {name}: clients execute it once, for the outer one only"
        require(not twice, "strategy", twice, others)
        if isinstance(self.strategy, Shell) and not has_own_way(self.strategy):
            inside = self.strategy.stack
        else:
            inside = Stack([], Foreign(self.strategy, averages_buffers=self.averages_buffers))
        self._enclose(Stack([self, *inside.acts], inside.core))

    def nested(self) -> Iterator[Strategy]:
        """The strategies inside, the outermost first."""
        return chain(self.strategy)

    @property
    def weighting(self) -> str:
        """How the innermost strategy weighs clients; Flower's own weigh by examples."""
        return getattr(self.strategy, "weighting", "examples")

    @property
    def weighted_by_key(self) -> str:  # type: ignore[override]
        """The metric that counts examples."""
        return getattr(self.strategy, "weighted_by_key", wire.NUM_EXAMPLES)

    @property
    def configrecord_key(self) -> str:  # type: ignore[override]
        """The name of the config record of a message."""
        return getattr(self.strategy, "configrecord_key", wire.CONFIG)

    def summary(self) -> None:
        """Log the inner strategy's settings."""
        self.strategy.summary()
