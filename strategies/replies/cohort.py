"""The valid replies of a round: each client's model and metrics, in the order of client ids.

`screening.py` decides which replies are valid.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from flwr.app import Message

from fedstride.arrays.named import Arrays
from fedstride.arrays.on_device import device_in, placed
from fedstride.figures.metrics import AGREED, ERROR, SCREENING, fact, over_clients
from fedstride.figures.pooled_scores import Pooled
from fedstride.messages import wire
from fedstride.messages.limits import MAX_LIST, MAX_METRICS, MAX_NAME

from ..sums.fast_updates import KnownUpdates, Models, known_updates
from .figures import Selection, Value, agreed, combine, fault_of, form_of, numbers, pooled, recorded_form, select
from .numbers import Number

LEFT_OUT = f"{SCREENING}left_out"
"""Metric of a round: how many values that clients report do not count. Not reported if there are none."""


@dataclass(frozen=True)
class Expected:
    """What a strategy expects from clients in addition to the model."""

    halves: tuple[str, ...] = ()  # names of client halves; a reply reports each one that was done
    returns: Mapping[str, Arrays] = field(default_factory=dict)  # by record name: same names, shapes, dtypes
    numbers: Mapping[str, Number] = field(default_factory=dict)  # that each client must report, by metric

    def where(self, sent: Arrays) -> Expected:
        """The same with the records where this model is: on the host, or on its device."""
        device = device_in(sent.values())
        return replace(self, returns={name: placed(arrays, device) for name, arrays in self.returns.items()})

    def __or__(self, other: Expected) -> Expected:
        halves, returns = (*self.halves, *other.halves), {**self.returns, **other.returns}
        return Expected(halves, returns, {**self.numbers, **other.numbers})


@dataclass(frozen=True)
class Reply:
    """One valid reply: the client's model and metrics."""

    node_id: int
    client_id: int  # the partition id if the client has one, else the node id
    num_examples: float  # n_k > 0
    model: Arrays  # read-only, in the order of the sent model, and without what is not finite in that one
    metrics: Mapping[str, Any]
    length: float  # ||w_k - w|| over all parameters
    message: Message
    extras: Mapping[str, Arrays] = field(default_factory=dict)  # further arrays by record name; read-only
    extra_lengths: Mapping[str, float] = field(default_factory=dict)  # their norms
    notes: tuple[str, ...] = ()  # what the screening changed


@dataclass(frozen=True)
class Rejected:
    """A reply that is not used, and the reason."""

    node_id: int
    reason: str


@dataclass(frozen=True)
class Cohort:
    """The valid replies of a round, in the order of client ids, and the rejected ones."""

    replies: tuple[Reply, ...]
    rejected: tuple[Rejected, ...] = ()
    halves: tuple[str, ...] = ()  # the client halves that these clients were asked to do
    learnt: Mapping[str, float] = field(default_factory=dict)  # reference lengths for the next round; screening.py
    count_key: str = wire.NUM_EXAMPLES  # the metric that counts a client's examples
    read: KnownUpdates | None = None  # what the screening read of the updates

    def __len__(self) -> int:
        return len(self.replies)

    @cached_property
    def models(self) -> Models:
        """w_k, in order."""
        return Models.of([reply.model for reply in self.replies], self.read)

    def shares(self, weighting: str) -> list[float]:
        """p_k, in order: n_k / n for "examples", 1 / m for "uniform". They sum to 1."""
        return shares_of(self.weights(weighting))

    def weights(self, weighting: str) -> list[float]:
        """n_k for "examples", 1 for "uniform", in order."""
        return weights_of([reply.num_examples for reply in self.replies], weighting)

    def metrics(self, weighting: str = "examples") -> dict[str, Value]:
        """The figures that more than half of the clients report, combined as `figures.py` says."""
        weights = self.weights(weighting)
        return {
            name: combine(name, selection.used, weights)
            for name, selection in self.selections.items()
            if self._counts(selection)
        }

    @cached_property
    def usual_forms(self) -> dict[str, int]:
        """The metrics that more than half of the clients report, and their usual form (`recorded_form`), in order.

        They are limited in number, in the length of their names, and in how many numbers they have in total.
        Clients cannot report what only the server writes.
        """
        reported = Counter(name for reply in self.replies for name in reply.metrics)
        usual: dict[str, int] = {}
        numbers = 0
        for name, count in reported.items():
            if 2 * count <= len(self) or len(name) > MAX_NAME or name.startswith((SCREENING, AGREED)):
                continue
            forms = Counter(recorded_form(reply.metrics.get(name), fact(name)) for reply in self.replies)
            form = max((f for f in forms if f is not None), key=lambda f: (forms[f], -f), default=None)
            if form is None or numbers + abs(form) > MAX_LIST or len(usual) == MAX_METRICS:
                continue
            usual[name] = form
            numbers += abs(form)  # a plain number is one
        return usual

    @cached_property
    def pooled(self) -> dict[str, Pooled]:
        """The figures of the round that are computed from the clients' bins or states, by number of examples."""
        weights = self.weights("examples")
        figures = {
            name: pooled(name, selection.used, weights)
            for name, selection in self.selections.items()
            if self._counts(selection)
        }
        return {name: figure for name, figure in figures.items() if figure is not None}

    @property
    def pooled_metrics(self) -> dict[str, Value]:
        """The figures of `pooled`, and how far each can be from that of the scores, as `local/auroc/error`."""
        errors = {f"{name}/{ERROR}": error for name, (_, error) in self.pooled.items() if error is not None}
        return {name: figure for name, (figure, _) in self.pooled.items()} | errors

    @property
    def uncounted(self) -> set[str]:
        """The usual metrics that have no figure, because too few of their values count."""
        return {name for name, selection in self.selections.items() if not self._counts(selection)}

    @cached_property
    def selections(self) -> dict[str, Selection]:
        """For each usual metric that is combined over clients: which values count."""
        return {
            name: select(name, [reply.metrics.get(name) for reply in self.replies])
            for name in self.usual_forms
            if over_clients(name) != "none"
        }

    def _counts(self, selection: Selection) -> bool:
        """Whether the values that count are enough for a figure of the round."""
        return 2 * len(selection.used) > len(self)

    @cached_property
    def left_out(self) -> dict[int, dict[str, str]]:
        """By client id: the reasons why reported values do not count, by metric; only clients with such values."""
        reasons: dict[int, dict[str, str]] = {}
        for name, selection in self.selections.items():
            for place, reason in selection.left_out.items():
                reasons.setdefault(self.replies[place].client_id, {})[name] = reason
        return reasons

    @property
    def reports_agree(self) -> bool:
        """Whether all clients report the same metrics, and all their values count."""
        return not self.left_out and len({frozenset(reply.metrics) for reply in self.replies}) <= 1

    def agreed(self, metric: str) -> tuple[float, int] | None:
        """The value that more than half of the clients that report it reached, and the number of these clients.

        None if the round has no figure of this metric from clients, or the figure is a list.
        """
        selection = self.selections.get(metric)
        if selection is None or not self._counts(selection):
            return None
        values = numbers(metric, selection.used)
        value = agreed(values.values(), fact(metric).better)
        return None if value is None else (value, len(values))

    def numbers(self, metric: str) -> dict[int, float]:
        """The figure of each client whose value of this metric counts, by client id."""
        selection = self.selections.get(metric, Selection())
        return {self.replies[place].client_id: n for place, n in numbers(metric, selection.used).items()}

    @cached_property
    def not_done(self) -> dict[str, list[int]]:
        """By client half: ids of the clients that did not report it as done; only halves with such clients."""
        missing = {
            half: [reply.client_id for reply in self.replies if reply.metrics.get(wire.done(half)) != 1]
            for half in self.halves
        }
        return {half: clients for half, clients in missing.items() if clients}

    def counts(self) -> dict[str, Any]:
        """Metrics of the round: how many replies are not used, how many clients did not do all client halves.

        And, if there are such replies, how many the screening changed.
        """
        counts: dict[str, Any] = {f"{SCREENING}rejected": len(self.rejected)}
        changed = sum(bool(reply.notes) for reply in self.replies)
        if changed:
            counts[f"{SCREENING}changed"] = changed
        if self.halves:
            counts[f"{SCREENING}not_done"] = len(
                {client for clients in self.not_done.values() for client in clients}
            )
        if self.left_out:
            counts[LEFT_OUT] = self.left_out_count
        return counts

    @property
    def left_out_count(self) -> int:
        """How many values that clients report do not count."""
        return sum(map(len, self.left_out.values()))

    def reported(self, metric: str) -> list[Any]:
        """The value of this metric that each client reported, in order; for one that the rule requested."""
        return [reply.metrics[metric] for reply in self.replies]

    def extras(self, record: str) -> Models:
        """The further arrays of each client in the record of this name, in order."""
        arrays = [reply.extras[record] for reply in self.replies]
        return Models.of(arrays, known_updates(arrays[0], arrays))

    def _valid(self, name: str) -> Mapping[int, Value]:
        """By place: the values that count; of bins, the figures of single clients."""
        used = self.selections[name].used
        return used if fact(name).pool is None else numbers(name, used)

    def reported_metrics(self) -> list[dict[str, Any]]:
        """For each client what it reports, and the number of examples that counts.

        In place of bins of scores is the figure of the client alone; without one, nothing.
        """
        found = [dict(reply.metrics) for reply in self.replies]
        for name in self.selections:
            if fact(name).pool is not None:
                figures = self._valid(name)
                for place, metrics in enumerate(found):
                    metrics.pop(name, None)
                    metrics |= {name: figures[place]} if place in figures else {}
        return [
            {**metrics, self.count_key: r.num_examples} for metrics, r in zip(found, self.replies, strict=True)
        ]

    def completed_metrics(self) -> list[dict[str, Any]]:
        """For each client the same metrics, all valid, for a strategy that reads each client's.

        What a client does not report, or what does not count, is the mean of the values that count. Ids, counts
        and flags cannot be replaced, so these are only the ones that all clients report. In place of bins of
        scores is the figure of the client alone; without one, that of all clients.
        """
        completed: list[dict[str, Any]] = [{self.count_key: reply.num_examples} for reply in self.replies]
        weights = self.weights("examples")
        for name, form in self.usual_forms.items():
            values: list[Any] = [reply.metrics.get(name) for reply in self.replies]
            if name == self.count_key:
                continue
            if name not in self.selections:
                if any(form_of(value) != form or fault_of(value, fact(name)) for value in values):
                    continue
            elif used := self._valid(name):
                other = combine(name, self.selections[name].used, weights)
                values = [used.get(place, other) for place in range(len(self))]
            else:
                continue
            for metrics, value in zip(completed, values, strict=True):
                metrics[name] = value
        return completed


def weights_of(counts: Sequence[float], weighting: str) -> list[float]:
    """n_k for "examples", 1 for "uniform"."""
    return [1.0] * len(counts) if weighting == "uniform" else list(counts)


def shares_of(weights: Sequence[float]) -> list[float]:
    """The weights divided by their sum."""
    total = math.fsum(weights)
    return [weight / total for weight in weights]
