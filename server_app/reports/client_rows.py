"""Rows of plain values for each client of a round, as they are written to the run's records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from logging import WARNING

from flwr.app import Message

from fedstride.errors import counted
from fedstride.figures.intervals_by_counts import deviation_from_bins, kinds
from fedstride.figures.metrics import DEVIATION, ERROR, SMALLEST
from fedstride.files import chained_lines
from fedstride.flower.logs import log
from fedstride.messages import wire
from fedstride.messages.limits import MAX_NAME
from strategies.replies.cohort import Cohort, Reply
from strategies.replies.figures import NUMBER, form_of, in_words, pooled, real

from ..evaluation import differences, membership
from ..exchange.roster import TOO_FEW, Roster
from ..records.row_values import LABELS, TEXTS, Row
from .round_row import OF_EVALUATION, bytes_in

CLIENT_NAMES = ("norm", wire.MEASURED, *TEXTS, *LABELS, *chained_lines.KEYS)
"""What the server writes itself into a client's row. Values from clients with these names are ignored."""

AREA = f"{wire.LOCAL}/auroc"

NO_BYTES = {"bytes/down": 0, "bytes/up": 0}
"""The bytes of a client that was not asked."""

MAX_UNUSUAL = 20
"""A client's row has the metrics that most clients of the round report, and at most this number of others, which
must be plain numbers. So a client cannot fill the disk: its row is hardly longer than those of the others."""

NO_REPLY = "no reply"
JOINED = "joined"
"""The status of a client that is connected since the round before. If it was asked, it has a second row."""

LEFT = "left"
GONE = "it is no longer connected; it is asked again when it is back"

LARGEST_INT = 2**63
"""Larger whole numbers are written as floats, because some readers of JSON do not read them."""


def rows_of_clients(
    server_round: int,
    messages: Sequence[Message],
    replies: Mapping[int, Message],
    cohort: Cohort,
    roster: Roster,
    no_reply: Callable[[int], str],
    evaluation: Cohort | None = None,
) -> list[Row]:
    """All rows of a round: of clients that have joined, that were asked, that are absent. Logs who did not reply.

    `no_reply`: the reason why there is no reply, by client id. `evaluation`: the replies to the round's federated
    evaluation; their figures are added, and notes.
    """
    asked = client_rows(server_round, messages, replies, cohort, roster, no_reply, evaluation)
    _log_silent(asked)
    return [*_joined_rows(server_round, roster), *asked, *_absent_rows(server_round, roster)]


def client_rows(
    server_round: int,
    messages: Sequence[Message],
    replies: Mapping[int, Message],
    cohort: Cohort,
    roster: Roster,
    no_reply: Callable[[int], str],
    evaluation: Cohort | None = None,
) -> list[Row]:
    """One row for each message of the round: the client's metrics, or the reason why its reply was not used."""
    accepted = {reply.node_id: reply for reply in cohort.replies}
    figures: dict[int, Row] = {} if evaluation is None else {**_not_measured(roster), **_figures(evaluation)}

    def used(node: int, row: Row) -> tuple[Row, list[str]]:
        client, reply = roster.client_of(node), accepted[node]
        reserved = (*row, *CLIENT_NAMES, wire.CLIENT_ID)
        said = {key: value for key, value in reply.metrics.items() if not key.startswith(membership.START)}
        reported = {key: value for key, value in said.items() if key not in reserved}
        metrics, limit_notes = _limited(reported, cohort.usual_forms)
        notes = [*_notes(reply, cohort), *limit_notes, *_evaluation_notes(client, evaluation, roster)]
        return {"norm": reply.length, **metrics, **figures.get(client, {})}, notes

    return _rows(server_round, messages, replies, cohort, roster, no_reply, used)


def rows_of_measuring(
    messages: Sequence[Message],
    replies: Mapping[int, Message],
    evaluation: Cohort,
    roster: Roster,
    no_reply: Callable[[int], str],
) -> list[Row]:
    """One row for each client in an evaluation without training: its figures, or why there are none."""
    examples = {reply.node_id: reply.num_examples for reply in evaluation.replies}
    figures = _figures(evaluation)

    def used(node: int, row: Row) -> tuple[Row, list[str]]:
        client = roster.client_of(node)
        notes = _evaluation_notes(client, evaluation, roster)
        return {wire.NUM_EXAMPLES: examples[node], **figures.get(client, {})}, notes

    rows = _rows(0, messages, replies, evaluation, roster, no_reply, used)
    _log_silent(rows)
    return [*rows, *(_without_figures(client, row, roster) for client, row in _not_measured(roster).items())]


def _not_measured(roster: Roster) -> dict[int, Row]:
    """By client id, of those that hold out too few rows to be asked: how many rows are behind their figures."""
    return {client: {wire.MEASURED: 0} for client in roster.few_held}


def _without_figures(client: int, row: Row, roster: Roster) -> Row:
    return {"round": 0, "client": roster.label(client), **NO_BYTES, **row, "status": "left out", "reason": TOO_FEW}


def _rows(
    server_round: int,
    messages: Sequence[Message],
    replies: Mapping[int, Message],
    cohort: Cohort,
    roster: Roster,
    no_reply: Callable[[int], str],
    used: Callable[[int, Row], tuple[Row, list[str]]],
) -> list[Row]:
    """A row for each message, in the order of client ids. `used`: what is added if a reply was used, and notes."""
    accepted = {reply.node_id for reply in cohort.replies}
    reasons = {item.node_id: item.reason for item in cohort.rejected}
    rows: list[tuple[int, Row]] = []
    for message in messages:
        node = message.metadata.dst_node_id
        client = roster.client_of(node)
        row: Row = {"round": server_round, "client": roster.label(client)}
        row["bytes/down"] = bytes_in(message)
        row["bytes/up"] = bytes_in(replies[node]) if node in replies else 0
        if node in accepted:
            more, notes = used(node, row)
            row |= {"status": "used", **more, **({"note": "; ".join(notes)} if notes else {})}
        elif node in replies:
            row |= {"status": "rejected", "reason": reasons.get(node, "the reply has the id of another node")}
        else:
            row |= {"status": NO_REPLY, "reason": no_reply(client)}
        rows.append((client, row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def empty_rounds_reason(row: Row, clients: Sequence[Row], empty: int, quorum: int) -> str:
    """Why the last `empty` rounds changed nothing, in one line; `row` and `clients`: of the last of them."""
    number = row["round"]
    rounds = f"{empty} rounds in a row" if empty > 1 else f"round {number}"
    if row.get("screening/not_finite"):
        return (
            f"{rounds} changed nothing; in round {number} the strategy computed a model with "
            "NaN or infinity: use a smaller client.lr or server learning rate"
        )
    if row.get("clients", 0) >= quorum:
        return (
            f"{rounds} changed nothing; in round {number} the strategy returned no model, though "
            f"{counted(row['clients'], 'client')} replied: its aggregate_train must return one"
        )
    reasons = sorted(
        {str(client["reason"]) for client in clients if "reason" in client and client["status"] != LEFT}
    )
    return (
        f"{rounds} had fewer than {quorum} valid replies (screening.quorum); "
        f"in round {number}: {'; '.join(reasons[:3]) or 'no client was connected'}"
    )


def _log_silent(rows: Iterable[Row]) -> None:
    """Log the clients that did not reply; the strategy logs replies that are not used."""
    for row in rows:
        if row["status"] == NO_REPLY:
            log(WARNING, "round %d: client %s: %s", row["round"], row["client"], row["reason"])


def _joined_rows(server_round: int, roster: Roster) -> list[Row]:
    return [
        {"round": server_round, "client": roster.label(client), **NO_BYTES, "status": JOINED}
        for client in roster.joined
    ]


def _absent_rows(server_round: int, roster: Roster) -> list[Row]:
    """A row for each client that has left or is left out of the round, and each node that was refused before it.

    A refused node is not a client, so its row has its node id.
    """
    absent = [(LEFT, client, GONE) for client in roster.gone]
    absent += [("left out", client, reason) for client, reason in sorted(roster.left_out.items())]
    rows: list[Row] = [
        {"round": server_round, "client": roster.label(client), **NO_BYTES, "status": status, "reason": reason}
        for status, client, reason in absent
    ]
    rows += [
        {"round": server_round, "client": None, "node": node, **NO_BYTES, "status": "refused", "reason": reason}
        for node, reason in sorted(roster.refused().items())
    ]
    return rows


def _figures(evaluation: Cohort) -> dict[int, Row]:
    """By client id: its figures in a federated evaluation."""
    rows: dict[int, Row] = {}
    for name in evaluation.selections:
        if name.startswith(OF_EVALUATION):
            for client, value in evaluation.numbers(name).items():
                rows.setdefault(client, {})[name] = value
            for client, more in (*_of_bins(evaluation, name).items(), *_of_kinds(evaluation, name)):
                rows.setdefault(client, {}).update(more)
    for client, ends in differences.of_clients(evaluation):
        rows.setdefault(client, {}).update(ends)
    for reply in evaluation.replies:
        if told := membership.row_of(reply.metrics):
            rows.setdefault(reply.client_id, {}).update(told)
    counts = {reply.client_id: reply.num_examples for reply in evaluation.replies}
    return {client: {wire.MEASURED: counts[client], **row} for client, row in rows.items()}


def _of_bins(evaluation: Cohort, name: str) -> dict[int, Row]:
    """By client id, of a figure from bins: its bound, and its standard deviation."""
    rows: dict[int, Row] = {}
    for place, value in evaluation.selections[name].used.items():
        alone = pooled(name, {0: value}, [1.0])
        if alone is None or alone.error is None or isinstance(alone.value, list) or not math.isfinite(alone.value):
            continue
        row = rows.setdefault(evaluation.replies[place].client_id, {f"{name}/{ERROR}": alone.error})
        bins = value if isinstance(value, list) else []
        if name == AREA and (deviation := deviation_from_bins(alone.value, [bins])) is not None:
            row[f"{name}/{DEVIATION}"] = deviation
    return rows


def _of_kinds(evaluation: Cohort, name: str) -> Iterator[tuple[int, Row]]:
    """For each client: of a figure by class or label, how many rows the one with fewest has."""
    for place, counts in counts_by_kind(evaluation, name).items():
        yield evaluation.replies[place].client_id, {f"{name}/{SMALLEST}": min(counts)}


def counts_by_kind(evaluation: Cohort, name: str) -> dict[int, list[int]]:
    """How many rows each client has of each kind, by its place; empty if the figure is not by class or label."""
    prefix, _, figure = name.partition("/")
    if prefix != wire.LOCAL:
        return {}
    counts = {
        place: kinds(figure, value, evaluation.replies[place].num_examples)
        for place, value in evaluation.selections[name].used.items()
        if isinstance(value, list)
    }
    return {place: each for place, each in counts.items() if each}


def _notes(reply: Reply, cohort: Cohort) -> list[str]:
    """Notes for the client's row: what the screening changed, what it did not do or keep, what does not count."""
    notes = [
        *reply.notes,
        *(
            f"did not execute the client half of {half}"
            for half, clients in cohort.not_done.items()
            if reply.client_id in clients
        ),
    ]
    if reply.metrics.get(wire.STATE_LOST) == 1:
        notes.append("its state was missing, and it used an empty one")
    if reply.metrics.get(wire.STATE_HELD) == 1:
        notes.append("it could not write its state to disk, and keeps it in memory")
    if reply.metrics.get(wire.FROZEN_HELD) == 1:
        notes.append("it could not write the frozen arrays to its cache, and gets them each time")
    if reply.client_id in cohort.left_out:
        notes.append(f"left out of the round's figures: {in_words(cohort.left_out[reply.client_id])}")
    return notes


def _evaluation_notes(client: int, evaluation: Cohort | None, roster: Roster) -> list[str]:
    if evaluation is not None and client in roster.few_held:
        return [TOO_FEW]
    if evaluation is None:
        return []
    changed = [note for reply in evaluation.replies if reply.client_id == client for note in reply.notes]
    notes = [f"in the evaluation, {note}" for note in changed]
    if client in evaluation.left_out:
        notes.append(f"left out of the evaluation's figures: {in_words(evaluation.left_out[client])}")
    return notes


def _limited(metrics: Row, usual: Mapping[str, int]) -> tuple[Row, list[str]]:
    """The metrics of a client that its row has, and a note if there are others. `usual`: form by name."""
    kept: Row = {}
    unusual = 0
    for name, value in metrics.items():
        form = form_of(value)
        if form != usual.get(name):
            unusual += 1
            if form != NUMBER or len(name) > MAX_NAME or unusual > MAX_UNUSUAL:
                continue
        kept[name] = value if form != NUMBER or abs(value) < LARGEST_INT else real(value)
    if len(kept) == len(metrics):
        return kept, []
    return kept, [f"reported {len(metrics)} metrics, of which {len(kept)} are recorded"]
