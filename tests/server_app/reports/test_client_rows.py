"""Rows of clients are limited in size, with a note, and values that do not count are noted."""

from __future__ import annotations

import json
import math
from typing import Any, cast

import federation as fed
import numpy as np
import pytest

from client_app.combined_methods import RESERVED_METRICS
from fedstride.messages.limits import MAX_LIST, MAX_METRICS, MAX_NAME
from server_app.exchange.roster import Roster
from server_app.records.row_values import LABELS, TEXTS, is_row
from server_app.reports.client_rows import MAX_UNUSUAL, client_rows
from server_app.reports.round_row import decision_figure, known_names
from strategies import FedAvg
from strategies.replies.screening import screen, screen_metrics

SENT = {"w": np.zeros(3)}
ENDLESS = [
    {f"m{i}": 0.1 for i in range(100_000)},
    {f"m{i}": [0.1] * 1000 for i in range(1000)},
    {"train/loss": 1.0, "x" * 5_000_000: 1.0},
    {"long": [1.0] * 2_000_000},
]
ENDLESS_IDS = ["many", "many lists", "a long name", "a long list"]


class Known:
    """A roster in which the client id of a node is its node id, and no client has a name."""

    few_held: tuple[int, ...] = ()

    def client_of(self, node: int) -> int:
        return node

    def label(self, client: int) -> int:
        return client


def rows_of(
    *reported: dict[str, Any], evaluated: list[dict[str, Any]] | None = None, most: dict[int, float] | None = None
) -> list[dict[str, Any]]:
    """The rows of clients that report these metrics; node and client ids are 1, 2, ..."""
    nodes = list(range(1, len(reported) + 1))
    asked = fed.configure(FedAvg(**fed.OPEN), 1, SENT, nodes=nodes)
    replies = {
        node: fed.reply(node, {"w": np.ones(3)}, metrics=metrics)
        for node, metrics in zip(nodes, reported, strict=True)
    }
    cohort = screen(replies.values(), SENT)
    evaluation = None
    if evaluated is not None:
        messages = [fed.reply(node, {}, metrics=each) for node, each in zip(nodes, evaluated, strict=True)]
        evaluation = screen_metrics(messages, "num-examples", most=most or {})
    rows = client_rows(1, asked, replies, cohort, cast(Roster, Known()), lambda client: "", evaluation)
    assert [row["client"] for row in rows] == nodes
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("metrics", ENDLESS, ids=ENDLESS_IDS)
def test_one_of_several_clients_writes_hardly_more_than_the_others(metrics: dict[str, Any]) -> None:
    honest = {"train/loss": 1.0, "train/accuracy": 0.5, "curve": [1.0, 2.0]}
    *others, row = rows_of(honest, honest, {**metrics, "curve": [1.0, 2.0]})
    assert row["status"] == "used" and row["curve"] == [1.0, 2.0]
    assert len(json.dumps(row)) < len(json.dumps(others[0])) + MAX_UNUSUAL * (MAX_NAME + 30) + 1000
    assert f"reported {len(metrics) + 2} metrics, of which" in row["note"]
    assert all(honest.items() <= other.items() and "note" not in other for other in others)


@pytest.mark.slow
@pytest.mark.parametrize("metrics", ENDLESS, ids=ENDLESS_IDS)
def test_a_single_client_that_reports_without_end_does_not_fill_the_disk(metrics: dict[str, Any]) -> None:
    (row,) = rows_of(metrics)
    assert row["status"] == "used"
    assert len(json.dumps(row)) < MAX_METRICS * (MAX_NAME + 10) + 30 * MAX_LIST
    assert f"reported {len(metrics) + 1} metrics, of which" in row["note"]


@pytest.mark.slow
@pytest.mark.parametrize("metrics", ENDLESS, ids=ENDLESS_IDS)
def test_the_rounds_row_is_limited_if_all_clients_report_without_end(metrics: dict[str, Any]) -> None:
    cohort = screen([fed.reply(node, {"w": np.ones(3)}, metrics=metrics) for node in (1, 2, 3)], SENT)
    row = known_names(cohort.metrics())
    assert len(row) <= MAX_METRICS
    assert len(json.dumps(row)) < MAX_METRICS * (MAX_NAME + 10) + 30 * MAX_LIST


def test_all_metrics_of_our_clients_are_recorded() -> None:
    metrics = {f"fednlr/{what}/layer{i}": 0.1 for what in ("rate_min", "T", "mu") for i in range(MAX_METRICS // 3)}
    for row in rows_of(metrics, metrics):
        assert metrics.items() <= row.items() and "note" not in row


def test_a_metric_that_only_one_client_reports_is_in_its_row() -> None:
    first, second, third = rows_of({"a": 1.0}, {"a": 1.0}, {"a": 1.0, "state/lost": 1, "b": 2.0, "list": [1.0]})
    assert "b" not in first and "b" not in second
    assert third["b"] == 2.0 and third["state/lost"] == 1
    assert "list" not in third and "reported 5 metrics, of which 4 are recorded" in third["note"]


def test_what_does_not_count_is_noted_for_the_client() -> None:
    good = {"train/loss": 1.0, "curve": [1.0]}
    bad = {"train/loss": math.nan, "curve": 3.0}
    *others, row = rows_of(good, good, bad, evaluated=[{"local/accuracy": each} for each in (0.5, 0.6, 1.5)])
    assert all("note" not in other for other in others)
    assert row["note"] == (
        "left out of the round's figures: train/loss (nan is not finite), "
        "curve (a number, most clients report a list of 1); "
        "left out of the evaluation's figures: local/accuracy (1.5 is not in [0, 1])"
    )


def test_a_lowered_number_of_examples_in_an_evaluation_is_noted() -> None:
    figures = [{"local/accuracy": 0.5, "num-examples": count} for count in (10, 10**12)]
    first, second = rows_of({}, {}, evaluated=figures, most={1: 10, 2: 20})
    assert "note" not in first and first["local/num-examples"] == 10
    assert second["note"].startswith("in the evaluation, 1e+12 examples count as 20 (more than it can have")
    assert second["local/num-examples"] == 20


def test_a_note_is_one_short_printable_line() -> None:
    bad = {f"\x1b[31m\n{i}{'x' * 150}": math.inf for i in range(500)}
    row = rows_of(dict.fromkeys(bad, 1.0), dict.fromkeys(bad, 1.0), bad)[2]
    assert len(row["note"]) < 400 and row["note"].isprintable()
    assert row["note"].endswith(" and 497 more")


def test_numbers_of_any_size_can_be_written() -> None:
    (row,) = rows_of({"a": 10**5000, "b": -(10**30), "c": 2**62})
    assert (row["a"], row["b"], row["c"]) == (math.inf, -1e30, 2**62)
    json.dumps(row)


# ---------------------------------------------------------------- the value that decides


def cohort_of(*values: Any) -> Any:
    metrics = [{} if value is None else {"train/loss": value} for value in values]
    return screen([fed.reply(n, {"w": np.ones(3)}, 10**n, each) for n, each in enumerate(metrics, 1)], SENT)


def test_the_median_decides_and_it_needs_a_quorum() -> None:
    cohort = cohort_of(1.0, 2.0, 3.0, 4.0, -1e308)
    assert decision_figure("train/loss", [cohort], 4) == {"median/train/loss": 3.0}  # three of four reached it
    assert math.isnan(decision_figure("train/loss", [cohort], 5)["median/train/loss"])
    assert decision_figure("train/loss", [cohort_of(1.0, None, None)], 1) == {}
    assert decision_figure("train/loss", [cohort_of([1.0], [2.0])], 1) == {}
    assert decision_figure("test/accuracy", [cohort], 1) == {}
    assert decision_figure("train/loss", [], 1) == {}
    first = decision_figure("train/loss", [cohort_of(7.0, 8.0, 9.0), cohort], 2)
    assert first == {"median/train/loss": 8.0}


@pytest.mark.parametrize("name", [*sorted(TEXTS), *LABELS])
def test_metrics_with_names_of_other_values_leave_the_records_readable(name: str) -> None:
    for row in rows_of({name: 1.5}, {name: 1.5}) + rows_of({name: 1.5}):
        assert is_row(row) and row.get(name) != 1.5
    assert known_names({name: 1.5, "mine/factor": 0.5}) == {"mine/factor": 0.5}
    assert name in RESERVED_METRICS


def test_clients_cannot_report_the_value_that_decides() -> None:
    lie = {"median/train/loss": 0.0, "train/loss": 5.0}
    cohort = screen([fed.reply(node, {"w": np.ones(3)}, metrics=lie) for node in (1, 2, 3)], SENT)
    assert known_names(cohort.metrics()) == {"train/loss": 5.0}
    assert known_names({"median/train/loss": 0.0}) == {}
