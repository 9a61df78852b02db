"""The row of a round: which metrics it has, and the clients' names in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flwr.app import Message

from fedstride.arrays.on_device import records_bytes
from fedstride.figures.metrics import AGREED, fact, finished, over_clients
from fedstride.files import chained_lines
from fedstride.messages import wire
from fedstride.messages.records import array_records
from strategies.replies.cohort import Cohort

from ..records.row_values import LABELS, TEXTS, Row

OF_EVALUATION = tuple(f"{prefix}/" for prefix in (wire.LOCAL, wire.AGAINST, wire.DIFFERENCE))
"""The beginnings of the names of figures that clients measure."""

ROUND_NAMES = ("round", "clients", *TEXTS, *LABELS, *chained_lines.KEYS)
ROUND_PREFIXES = ("test/", "seconds/", "ccvr/", AGREED)
"""What the server writes itself into the row of a round. Values from clients with these names are ignored."""

SINGLE_NUMBER_PREFIXES = ("train/", *OF_EVALUATION)
"""Metrics that are always single numbers; lists with these names are ignored."""


def known_names(metrics: Mapping[str, Any]) -> Row:
    """The metrics of a round without those that are not recorded.

    Not recorded are ids and counts, which Flower's own strategies average too, and names that the server writes.
    """
    return {
        k: v
        for k, v in ((name, finished(name, value)) for name, value in metrics.items())
        if over_clients(k) != "none"
        and k not in ROUND_NAMES
        and not k.startswith(ROUND_PREFIXES)
        and not (k.startswith(SINGLE_NUMBER_PREFIXES) and isinstance(v, list) and fact(k).pool is None)
    }


def decision_figure(metric: str, cohorts: Iterable[Cohort], quorum: int) -> Row:
    """The field of a round's row with the median of a metric that clients report; empty if they do not report it.

    `cohorts`: the valid replies of the round; the first with such a figure is used. The value is NaN if fewer than
    `quorum` clients report a value that counts. `stopping.py` reads this field.
    """
    figure = next((agreed for cohort in cohorts if (agreed := cohort.agreed(metric)) is not None), None)
    if figure is None:
        return {}
    value, clients = figure
    return {AGREED + metric: value if clients >= quorum else math.nan}


def with_names(row: Row, label: Callable[[int], int | str]) -> Row:
    """The row of a round with the clients' names in lists of clients, such as `fedalr/client`."""
    return {
        key: [label(client) for client in value] if key.endswith("/client") and isinstance(value, list) else value
        for key, value in row.items()
    }


def bytes_in(message: Message) -> int:
    """Bytes of the arrays in a message, headers included. Plain values are not counted."""
    if not message.has_content():
        return 0
    return sum(records_bytes(record) for record in array_records(message.content).values())
