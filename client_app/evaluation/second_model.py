"""Measures a second model on the rows of the first one, and how far their figures are apart there.

The message has it as a record of arrays, `wire.AGAINST`, complete, also with arrays that a run does not train. The
statistics of its own task, with which its examples are prepared, are plain values of the message.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from flwr.app import Message

from fedstride.arrays.on_device import values
from fedstride.figures.differences import Difference
from fedstride.figures.intervals import Interval
from fedstride.messages import wire
from fedstride.messages.records import array_records, config_records
from fedstride.tasks.evaluation.comparison import at_site
from fedstride.tasks.evaluation.measuring import evaluate
from fedstride.tasks.evaluation.per_row import PerRow, per_row
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.models.torch_seeds import seeded
from fedstride.tasks.spec import STATISTICS

from .. import combined_methods
from ..data import small_counts
from ..from_message import Work, load_into

Figures = dict[str, float | list[float]]

KEYS = {wire.of_second(name): name for name in STATISTICS}
"""The keys of a message with the statistics of the second model's task."""


def is_asked(message: Message) -> bool:
    """Whether the message has a second model."""
    return wire.AGAINST in array_records(message.content)


def figures(job: Work, message: Message, examples: Examples, seed: int, first: Collection[str]) -> Figures:
    """The figures `against/...` of the second model, and the differences `difference/...` to the first one.

    The network of the job has the first model, and then the second one. `seed`: of what a model draws. `first`:
    the names of the figures of the first model that may leave.
    """
    mine = _rows(job, examples, seed)
    received = array_records(message.content)[wire.AGAINST]
    load_into(job, combined_methods.arrays_in(wire.AGAINST, received, values), "second")
    theirs = _prepared(config_records(message.content)[wire.CONFIG], job, examples)
    reported = small_counts.figures(evaluate(job.model, theirs, seed), theirs, job.min_rows)
    apart = differences(mine, _rows(job, theirs, seed), job.client_id)
    said = {name: one.packed() for name, one in apart.items() if name in reported and name in first}
    return {
        **{f"{wire.AGAINST}/{name}": value for name, value in reported.items()},
        **{f"{wire.DIFFERENCE}/{name}": numbers for name, numbers in said.items()},
    }


def differences(first: PerRow, second: PerRow, seed: int) -> dict[str, Difference]:
    """The figures of the first model less those of the second, each that is one number and known of both.

    `seed`: of the bootstrap; a comparison at a desk has the number of the site. Without ends where there are too
    few rows for an interval.
    """
    if not first.names:
        return {}
    pair = ("first", "second")
    comparison = at_site("", dict(zip(pair, ([first], [second]), strict=True)), [pair], seed)
    apart: dict[str, Difference] = {}
    for name, one in comparison.differences[pair].items():
        if one.value != one.value:  # NaN: the rows have no such figure
            continue
        # Equal ends say: there is no interval, but the site has enough rows, so the server counts it.
        ends = one.interval if one.interval.known else Interval(one.value, one.value)
        known = one.variance >= 0.0  # not NaN
        apart[name] = Difference(one.value, ends, one.variance**0.5) if known else Difference(one.value)
    return apart


def _rows(job: Work, examples: Examples, seed: int) -> PerRow:
    with seeded(seed, job.device):
        return per_row(job.model, examples)


def _prepared(config: Mapping[str, Any], job: Work, examples: Examples) -> Examples:
    """The same examples as the second model's task prepares them."""
    said = {name: config[key] for key, name in KEYS.items() if key in config}
    spec = examples.spec.with_statistics(said) if said else examples.spec
    return Examples(examples.x, examples.y, spec, device=job.device, members=examples.members, goal=examples.goal)
