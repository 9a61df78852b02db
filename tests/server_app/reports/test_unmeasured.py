"""The figure by which a run is judged if the one that decides was not measured, and what is said of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from server_app.app import LogLines
from server_app.config.compose import compose
from server_app.config.schema import Config
from server_app.reports.sites import Sites
from server_app.reports.unmeasured import measured_metric, why_not_measured

OWN = ("task=own_table", "task.columns=['x']", "task.classes=['no','yes']", "partition=own", "clients=2")
ROWS = [{"round": 0}, {"round": 1, "local/accuracy": 0.6, "local/loss": 0.5, "clients": 2}]


def wanted(*more: str) -> Config:
    return compose([*OWN, "task.metrics=[auroc,accuracy]", "best=local/auroc", *more])


def said(config: Config, *clients: dict[str, Any]) -> str:
    sites = Sites(config)
    sites.add({"round": 1, "status": "used", **row} for row in clients)
    return why_not_measured(config, ROWS, sites.all)


A = {"client": "a", "local/num-examples": 39, "local/accuracy": 0.6}


def test_the_first_measured_figure_takes_its_place() -> None:
    assert measured_metric(wanted(), ROWS) == "local/accuracy"
    assert measured_metric(wanted(), [*ROWS, {"round": 2, "local/auroc": 0.7}]) == "local/auroc"
    assert measured_metric(wanted(), [{"local/loss": 0.4}]) == "local/loss"
    assert measured_metric(wanted(), [{"test/accuracy": 0.4}]) == "local/auroc"
    assert measured_metric(wanted("best=train/loss"), ROWS) == "train/loss"


def test_at_nodes_the_key_of_the_policy_is_named() -> None:
    text = said(wanted(), A)
    assert "`min_rows` (in a node's policy) held-out rows of each class (rows measured: a 39)" in text
    assert "each site holds out fewer rows than `min_rows`" in said(
        wanted(), {"client": "b", "local/num-examples": 0}
    )
    assert said(wanted("best=local/accuracy"), A) == ""
    assert "of each class" not in said(wanted("best=local/calibration", "task.metrics=[calibration,auroc]"), A)


@pytest.mark.parametrize("more", ["partition.files=['a.csv','b.csv']", "partition=iid"])
def test_where_no_node_has_a_policy_none_is_named(more: str) -> None:
    text = said(wanted(more), {**A, "client": 0})
    assert text == "Local auroc was not measured in any round: likely no site holds out rows of two classes."


def test_the_line_of_a_round_has_the_figure_that_there_is(caplog: pytest.LogCaptureFixture) -> None:
    done: Any = SimpleNamespace(row=ROWS[1])
    with caplog.at_level("INFO", logger="flwr"):
        LogLines(wanted()).round_done(done)
    assert "local accuracy" in caplog.text
