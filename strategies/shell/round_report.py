"""What a strategy reports of a round: lines in the log, and the record of its metrics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from logging import WARNING
from typing import Any

from flwr.app import MetricRecord

from fedstride.errors import RunError
from fedstride.figures.metrics import over_clients
from fedstride.flower.logs import log
from fedstride.messages import wire

from ..replies.cohort import LEFT_OUT, Cohort
from ..replies.figures import in_words


def report(server_round: int, cohort: Cohort, warned: set[str], names: Mapping[int, str]) -> None:
    """Log each rejected reply with its reason, clients that did not do a client half, and figures left out.

    The latter two are logged once for each half and client: `warned` collects those that were logged.
    `names`: of clients and nodes, by id.
    """
    report_figures(server_round, cohort, warned, names)
    for item in cohort.rejected:
        who = names.get(item.node_id, f"node {item.node_id}")
        log(WARNING, "round %d: the reply of %s is rejected: %s", server_round, who, item.reason)
    for half, clients in cohort.not_done.items():
        if half not in warned:
            warned.add(half)
            log(
                WARNING,
                "round %d: clients %s did not execute the client half "
                "of %s (the metric %s is missing), so the method "
                "has no effect on them; docs/own-parts.md shows what a client must do",
                server_round,
                ", ".join(str(names.get(client, client)) for client in clients[:10])
                + (" ..." if len(clients) > 10 else ""),
                half,
                wire.done(half),
            )


def report_figures(server_round: int, cohort: Cohort, warned: set[str], names: Mapping[int, str]) -> None:
    """Log the reported values that do not count, once for each client; `warned` has those that were logged."""
    for client, reasons in cohort.left_out.items():
        key = f"figures of client {client}"
        if key not in warned:
            warned.add(key)
            log(
                WARNING,
                "round %d: client %s reports figures that do not count: %s; later ones are not logged, but "
                "counted in %s and noted in clients.jsonl",
                server_round,
                names.get(client, client),
                in_words(reasons),
                LEFT_OUT,
            )


def report_counts(server_round: int, cohort: Cohort, warned: set[str], names: Mapping[int, str]) -> None:
    """Log the numbers of examples in an evaluation that were lowered, once for each client."""
    for reply in cohort.replies:
        client, key = reply.client_id, f"examples of client {reply.client_id}"
        if reply.notes and key not in warned:
            warned.add(key)
            text = "round %d: in the evaluation of client %s, %s; later ones are not logged"
            log(WARNING, text, server_round, names.get(client, client), "; ".join(reply.notes))


def without(metrics: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The metrics without these."""
    return {name: value for name, value in metrics.items() if name not in names}


def figures(cohort: Cohort, of_core: Mapping[str, Any] | None, *, alone: bool) -> dict[str, Any]:
    """A round's figures of the clients' metrics: those of the cohort, and what a core found itself.

    A core found None if it leaves them to the cohort. `alone`: there is no act around it.
    """
    reported = cohort.metrics()
    if of_core is None:
        return reported
    if alone:
        return dict(of_core)
    extremes = {name: value for name, value in reported.items() if over_clients(name) in ("min", "max")}
    return reported | without(of_core, cohort.uncounted) | extremes | cohort.pooled_metrics


def checked(who: str, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics of a round. Raises RunError for a value that is not a number or a list of numbers."""
    try:
        return dict(MetricRecord(dict(metrics)))
    except TypeError:
        wrong = next(name for name, value in metrics.items() if not _fits(name, value))
        text = repr(metrics[wrong])
        raise RunError(
            f"{who} returns the metric {wrong!r} = {text[:100]} "
            f"({type(metrics[wrong]).__name__}); a metric must be an int, a float, or a list of ints or of floats"
        ) from None


def _fits(name: str, value: Any) -> bool:
    try:
        MetricRecord({name: value})
    except TypeError:
        return False
    return True
