"""What a strategy that is not ours gets of the clients' metrics: as they were reported, or completed.

Flower's own strategies and its default functions need the same valid metrics from each client. A user's strategy
and a user's functions get what the valid clients reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from inspect import signature
from typing import Any

from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from flwr.serverapp.strategy import Strategy

from fedstride.flower.strategy_internals import AVERAGES_METRICS, READS_METRICS, chain

from .flower_strategy import Shell

CHECK = "_check_and_log_replies"


def needs_completed(strategy: Strategy) -> bool:
    """Whether its messages must have completed metrics: it is Flower's own, or reads them as one of these."""
    inside = [inner for inner in chain(strategy) if not isinstance(inner, Shell)]
    if any(isinstance(inner, READS_METRICS) for inner in inside):
        return True
    if all(type(inner).__module__.startswith("flwr.") for inner in chain(strategy)):
        return True
    return not all(_can_skip_check(inner) for inner in inside if isinstance(inner, FlowerFedAvg))


def _can_skip_check(strategy: Any) -> bool:
    """Whether Flower's check that all report the same metrics can be left out: not in its first versions."""
    return hasattr(strategy, CHECK) and "validate" in signature(getattr(strategy, CHECK)).parameters


@contextmanager
def both_kinds(
    strategy: Strategy,
    function: str,
    given: Sequence[Message],
    other: Callable[[], Sequence[Message]],
    *,
    completed: bool,
) -> Iterator[None]:
    """While it aggregates the `given` messages, its metrics function gets those that it needs.

    `function`: the name of the attribute. `completed`: whether `given` have the completed metrics and `other`
    makes those with the reported ones, or the other way round. They have a copy of each model, so they are made
    only for a function that needs them.
    """

    def instead() -> dict[int, RecordDict]:
        return {id(one.content): two.content for one, two in zip(given, other(), strict=True)}

    with ExitStack() as after:
        for inner in (each for each in chain(strategy) if not isinstance(each, Shell)):
            own = vars(inner).get(function)
            if own is not None and (own is AVERAGES_METRICS) != completed:
                setattr(inner, function, partial(_called, own, instead))
                after.callback(setattr, inner, function, own)
            if not completed and hasattr(inner, CHECK):  # that all report the same metrics
                setattr(inner, CHECK, partial(getattr(inner, CHECK), validate=False))
                after.callback(delattr, inner, CHECK)
        yield


def _called(
    function: Callable[[list[RecordDict], str], MetricRecord],
    instead: Callable[[], dict[int, RecordDict]],
    contents: Sequence[RecordDict],
    key: str,
) -> MetricRecord:
    others = instead()
    return function([others.get(id(content), content) for content in contents], key)
