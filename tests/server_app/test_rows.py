"""The size of a client's row in the records is limited, and a note says so."""

from __future__ import annotations

import json
from typing import Any, cast

import federation as fed
import numpy as np
import pytest

from server_app.roll_call import Roster
from server_app.rows import MAX_CLIENT_CHARACTERS, client_rows
from strategies import FedAvg
from strategies.screening import screen

SENT = {"w": np.zeros(3)}


class Known:
    """A roster in which the client id of a node is its node id."""

    def client_of(self, node: int) -> int:
        return node


def row_of(metrics: dict[str, Any]) -> dict[str, Any]:
    asked = fed.configure(FedAvg(**fed.OPEN), 1, SENT, nodes=[7])
    reply = fed.reply(7, {"w": np.ones(3)}, metrics=metrics)
    cohort = screen([reply], SENT)
    (row,) = client_rows(1, asked, {7: reply}, cohort, cast(Roster, Known()), lambda client: "")
    return row


@pytest.mark.parametrize(
    "metrics",
    [
        {f"m{i}": 0.1 for i in range(100_000)},
        {f"m{i}": [0.1] * 1000 for i in range(1000)},
        {"train/loss": 1.0, "x" * 5_000_000: 1.0},
        {"long": [1.0] * 2_000_000},
    ],
    ids=["many", "many lists", "a long name", "a long list"],
)
def test_a_client_that_reports_without_end_does_not_fill_the_disk(metrics: dict[str, Any]) -> None:
    row = row_of(metrics)
    assert row["status"] == "used"
    assert len(json.dumps(row)) < 2 * MAX_CLIENT_CHARACTERS
    assert f"reported {len(metrics) + 1} metrics, of which" in row["note"]


def test_all_metrics_of_our_clients_are_recorded() -> None:
    metrics = {f"fednlr/rate_{what}/layer{i}": 0.1 for what in ("min", "max", "mean") for i in range(1000)}
    row = row_of(metrics)
    assert metrics.items() <= row.items() and "note" not in row
