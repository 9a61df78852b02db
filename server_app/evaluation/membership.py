"""The membership test at a node: asked of the smallest site in the last evaluation, recorded, and put into words.

The row of that site in `clients.jsonl` has `membership/auroc` with `/low` and `/high` and the numbers of rows that
were compared, or the reason why nothing was (`membership/not-allowed`, `membership/few-rows`). What the test is:
`fedstride/tasks/evaluation/membership.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict

from fedstride.figures.differences import HIGH, LOW
from fedstride.figures.intervals import NONE, Interval
from fedstride.messages import wire
from fedstride.messages.records import config_records, metric_records
from fedstride.messages.varying_values import Varies

from ..exchange.roster import Roster
from ..records.row_values import number, numbers

START = f"{wire.MEMBERSHIP}/"

VARIES = {wire.MEMBERSHIP: Varies("int", 1, 1, optional=True)}
"""What a message of evaluation may have: it asks for the test."""

REASONS = {
    wire.NOT_ALLOWED: "the policy of the site does not allow it (`membership = true` does)",
    wire.FEW_ROWS: "too few rows, of training or held out",
}
"""Why a site made no test, by the word in its reply."""

MOST_ROWS = 10**12


def ask(messages: Sequence[Message], roster: Roster, config_key: str) -> int | None:
    """Ask the site with the fewest examples of those that get these messages; its node, None if there is none."""
    known = [(_examples(roster, message), message) for message in messages]
    if not known:
        return None
    _, chosen = min(known, key=lambda pair: (pair[0], roster.client_of(pair[1].metadata.dst_node_id)))
    config = ConfigRecord({**config_records(chosen.content)[config_key], wire.MEMBERSHIP: 1})
    # A new content, since Flower's strategies share one among all messages.
    chosen.content = RecordDict({**chosen.content, config_key: config})
    return chosen.metadata.dst_node_id


def keep_of(asked: int | None, replies: Mapping[int, Message]) -> None:
    """Remove what other nodes than the one that was asked say of such a test."""
    for node, reply in replies.items():
        for record in metric_records(reply.content).values() if node != asked and reply.has_content() else ():
            for key in [key for key in record if key.startswith(START)]:
                del record[key]


def row_of(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What the row of a site says of the test; empty if its reply says nothing that can be."""
    for word in REASONS:
        if metrics.get(word) == 1:
            return {word: 1}
    area, rows = (numbers(metrics, key) for key in (wire.MEMBERSHIP_AREA, wire.MEMBERSHIP_ROWS))
    inside = all(0.0 <= value <= 1.0 for value in area) and len(area) in (1, 3)  # NaN is not
    whole = len(rows) == 2 and all(1 <= count <= MOST_ROWS and float(count).is_integer() for count in rows)
    if not (inside and whole and area[1:2] <= area[2:]):
        return {}
    ends = {f"{wire.MEMBERSHIP_AREA}/{end}": value for end, value in zip((LOW, HIGH), area[1:], strict=False)}
    return {wire.MEMBERSHIP_AREA: area[0], **ends, wire.MEMBERSHIP_ROWS: [int(count) for count in rows]}


def in_words(row: Mapping[str, Any], site: str) -> str:
    """What such a row says, for the card; empty if it says nothing. `site`: its name as Markdown."""
    for word, reason in REASONS.items():
        if number(row, word) is not None:
            return f"Not tested at the smallest site that was measured, {site}: {reason}."
    area, rows = number(row, wire.MEMBERSHIP_AREA), numbers(row, wire.MEMBERSHIP_ROWS)
    if area is None or len(rows) != 2 or not all(map(math.isfinite, rows)):
        return ""
    low, high = (number(row, f"{wire.MEMBERSHIP_AREA}/{end}") for end in (LOW, HIGH))
    interval = NONE if low is None or high is None else Interval(low, high)
    trained, others = map(int, rows)
    return sentence(area, interval, trained, others, f"the smallest site that was measured, {site}", HELD_OUT)


HELD_OUT = "that it held out"


def sentence(area: float, interval: Interval, trained: int, others: int, site: str, where: str) -> str:
    """The finding in words. `where`: from where the rows are that were not used."""
    said = f"{interval.low:.3f} to {interval.high:.3f}" if interval.known else "without an interval"
    return (
        f"Loss-threshold attack at {site}: AUROC {area:.3f} ({said}) of {trained} training rows against {others} "
        f"rows {where}. 0.5 is a guess; at 1 each training row could be told from others by its loss. Stronger "
        "attacks exist."
    )


def _examples(roster: Roster, message: Message) -> float:
    facts = roster.facts.get(roster.client_of(message.metadata.dst_node_id), {})
    count = facts.get(wire.NUM_EXAMPLES)
    return count if isinstance(count, int) else math.inf
