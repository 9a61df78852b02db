"""How a deployed run ended, by what Flower 1.39 says and the last lines of its log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedstride.messages import wire
from lab.flower.run_status import BY_FLOWER, VANISHED, standing
from lab.flower.superlink_requests import Listed

LOG = [
    f"\x1b[92mINFO \x1b[0m:      {wire.FOLDER_LINE % '/srv/runs/a b'}",
    "\x1b[92mINFO \x1b[0m:      round   0   test accuracy    9.10 %   0.0 s",
    "\x1b[92mINFO \x1b[0m:      round   1   train loss 1.2297   test accuracy  44.38 %   3 clients   15.2 s",
]
FINAL = f"INFO :      {wire.FINAL_LINE % ('test accuracy', '53.20 %', '/srv/runs/a b')}"
RUN = Listed(
    "7", "fedstride/fedstride", "finished", "failed", "", "2026-01-01T10:00:00+00:00", "", "", "anna@desk 1f"
)


def test_a_run_in_progress_has_its_round_figure_and_folder() -> None:
    stands = standing(replace(RUN, status="running", end=""), LOG)
    assert (stands.state, stands.round, stands.figure, stands.folder) == (
        "running",
        1,
        "test accuracy  44.38 %",
        "/srv/runs/a b",
    )


def test_a_completed_run_has_its_final_figure() -> None:
    stands = standing(replace(RUN, end="completed"), [*LOG, FINAL])
    assert (stands.state, stands.reason, stands.figure) == ("completed", "", "test accuracy 53.20 %")


def by(who: str) -> list[str]:
    return [*LOG, f"WARNING :   {wire.END_LINE % who}"]


@pytest.mark.parametrize(
    ("end", "details", "log", "state", "reason"),
    [
        ("stopped", "", LOG, "stopped", BY_FLOWER),
        ("failed", "ServerApp failed with exception: no node\nmore", LOG, "failed", "no node"),
        ("failed", "ServerApp failed with exception: ", [*LOG, "RunError: nobody"], "failed", "RunError: nobody"),
        ("failed", "Task failed with unknown error.", by("SIGTERM"), "terminated", "got SIGTERM"),
        ("failed", "Task failed with unknown error.", by(wire.BY_THE_SUPERLINK), "lost", "its SuperLink ended"),
        ("failed", "Task failed with unknown error.", by(wire.BY_THE_USER), "stopped", "got SIGINT"),
        ("failed", "No heartbeat received from the task", LOG, "lost", VANISHED),
        ("failed", "Task failed because the run expired", LOG, "lost", VANISHED),
    ],
)
def test_ends_are_told_apart(end: str, details: str, log: list[str], state: str, reason: str) -> None:
    stands = standing(replace(RUN, end=end, details=details), log)
    assert stands.state == state
    assert reason in stands.reason


def test_a_run_that_waits_for_its_server_app_is_pending() -> None:
    assert standing(replace(RUN, status="pending", end=""), []).state == "pending"
