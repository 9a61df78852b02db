"""The parts of a strategy: a core that computes a model from a round's replies, and acts around it.

`flower_strategy.py` calls them. What is here does nothing by itself, so that a rule or a wrapper writes only
what it does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from fedstride.arrays.named import Arrays
from fedstride.arrays.on_device import Device
from fedstride.messages.varying_values import Varies

from ..replies.cohort import Cohort, Expected
from ..replies.declared_needs import Needs, declared
from .requests import Request, expected_of
from .rule_state import Stateless, first_state, moved, pack, unpack

Metrics = dict[str, Any]
"""Diagnostics of a round: plain numbers or lists of them, by `<rule>/<symbol>[/<layer>]`."""


class RoundResult(NamedTuple):
    """What a rule or a wrapper computes from a round's replies."""

    model: Arrays  # the model to return
    state: Any  # the state after the round
    metrics: Metrics


class Admission(NamedTuple):
    """The valid replies as the parts further inside see them."""

    cohort: Cohort
    state: Any  # the act's, also if the round fails after this
    metrics: Metrics


class Computed(NamedTuple):
    """What a core made of a round's replies."""

    model: Arrays | None  # None: the round changes nothing
    figures: Mapping[str, Any] | None = None  # of the clients' metrics; None: those of the cohort
    metrics: Mapping[str, Any] = {}  # the core's own


class RoundMessages(NamedTuple):
    """The messages of a round."""

    model: ArrayRecord  # the one in the messages
    messages: list[Message]


class StackPart:
    """What a rule and a wrapper have in common."""

    State: ClassVar[type] = Stateless
    """The state, a NamedTuple whose defaults are the state before round 1: arrays by name, or numbers."""

    half: ClassVar[str] = ""
    """The name of the client half; empty if clients only train."""

    needs: ClassVar[Needs] = Needs.EACH
    """What is used of the clients' updates; each class must state it itself. See `Needs`."""

    models_alone_with: ClassVar[str] = ""
    """The setting with which its clients return only their model, as `recover=false`; empty if it has none."""

    clients_keep_state: ClassVar[bool] = False
    """Whether its clients keep a state that follows from the update that they sent, and that the server knows."""

    takes_tensors: bool = False
    """Whether arrays and state may be torch tensors instead of numpy arrays; each class must state it itself."""

    state: Any
    requested: Request = Request()  # in this round

    @property
    def part_name(self) -> str:
        """Its name in errors and in the log."""
        return type(self).__name__

    def initial_state(self) -> Any:
        """The state before round 1."""
        return first_state(self.State, self.part_name)

    def client_request(self, sent: Arrays) -> Request:
        """What clients need for the client half this round, and what they must return.

        Also called with an empty model before the first round, to learn the names of what is returned.
        """
        return Request()

    @property
    def varies(self) -> Mapping[str, Varies]:
        """What may change from round to round of the values that are sent to clients, by its key in a message.

        A signed run fixes all others as they are in the first round.
        """
        return {}

    def check_model(self, model: Arrays) -> None:
        """Raises ConfigError for settings that do not fit the model; called before a run, and in each round."""

    def begin_round(self, server_round: int, asked: int) -> None:
        """The messages of a round were made, for so many clients."""

    # -------------------------------------------------------- what the shell needs

    def reset_state(self) -> None:
        """A new run begins."""
        self.state = self.initial_state()

    def own_needs(self) -> Needs:
        """What it needs of the clients' updates."""
        return declared(self)

    def move_state(self, device: Device) -> None:
        """Bring the state to where the replies are."""
        self.state = moved(self.state, device)

    def own_expected(self) -> Expected:
        """What this round's replies must contain in addition to the model, for this part."""
        return expected_of(self.half, self.requested)

    def state_dict(self) -> dict[str, Any]:
        """The state after the last round, as a flat dict of numpy arrays, numbers and strings."""
        return pack(self.state, self.part_name)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, exactly."""
        self.state = unpack(self.State, state)


class Act(StackPart):
    """A part around others."""

    lets_evaluate: bool = True
    """Whether clients may be asked to evaluate."""

    counts_as_zero: bool = False
    """Whether an update that is not finite counts as zero, and none is rejected by comparing it with others."""

    def extend(self, config: ConfigRecord) -> ConfigRecord:
        """The config that is sent to clients; an act without a client half adds its keys here."""
        return config

    def admit(self, sent: Arrays, cohort: Cohort, state: Any) -> Admission:
        """The valid replies as the parts inside will see them."""
        return Admission(cohort, state, {})

    def act(self, sent: Arrays, cohort: Cohort, result: Arrays, state: Any) -> RoundResult:
        """The model to return and the next state, from the result of the parts inside."""
        return RoundResult(result, state, {})


class Core(StackPart):
    """The innermost part."""

    @property
    def next_model(self) -> Arrays | None:
        """The model that the next round sends, if it is another one than `aggregate_cohort` returns; else None."""
        return None

    @next_model.setter
    def next_model(self, model: Arrays) -> None:
        raise AttributeError(f"{self.part_name} sends the model that it returns")

    @abstractmethod
    def ask_clients(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> RoundMessages:
        """The messages that ask clients to train."""

    @abstractmethod
    def aggregate_cohort(self, server_round: int, sent: Arrays, cohort: Cohort) -> Computed:
        """The model from the valid replies; the core then has its next state."""

    @abstractmethod
    def ask_for_evaluation(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages that ask clients to evaluate."""

    @abstractmethod
    def aggregate_evaluation(self, server_round: int, cohort: Cohort) -> MetricRecord | None:
        """The aggregated metrics of the valid replies to an evaluation."""

    @property
    def not_kept(self) -> str | None:
        """Why its state is not in a checkpoint, and what to do, in one line; None if it is."""
        return None

    @property
    def averages_evaluations(self) -> bool:
        """Whether `aggregate_evaluation` is a mean by Flower's own function, and not by one of the user's."""
        return False

    @property
    def summed_by(self) -> str | None:
        """The weighting with which the core sums the updates; None if it is not known, or if it needs no sum."""
        return None


class Stack(NamedTuple):
    """All parts of a strategy."""

    acts: list[Act]  # the outermost first
    core: Core

    @property
    def parts(self) -> list[StackPart]:
        """The acts and the core, the outermost first."""
        return [*self.acts, self.core]

    @property
    def needs(self) -> Needs:
        """What all parts together need of the clients' updates."""
        return max(part.own_needs() for part in self.parts)

    @property
    def summed_by(self) -> str | None:
        """The core's, if the core sees the updates as they came."""
        changed = any(type(act).admit is not Act.admit for act in self.acts)
        return None if changed else self.core.summed_by
