"""The runs of a sweep: how processor cores are shared among them, and their configurations."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engine.sweep import shared_out
from lab.engine.sweep_combinations import PlannedRun, plan
from server_app.config.compose import from_yaml


def workers(count: int, at_once: int, cores: int) -> list[int]:
    jobs = [PlannedRun((str(number),), "") for number in range(count)]
    found = shared_out(jobs, at_once, cores)
    assert [job.overrides for job in found] == [job.overrides for job in jobs]
    return [job.workers for job in found]


@pytest.mark.parametrize(
    ("count", "at_once", "cores", "expected"),
    [
        (4, 2, 2, [0, 0, 2, 2]),
        (5, 2, 2, [0, 0, 0, 0, 2]),
        (2, 2, 2, [2, 2]),
        (3, 2, 1, [0, 0, 0]),
        (1, 1, 1, [0]),
        (1, 1, 4, [4]),
        (3, 1, 4, [4, 4, 4]),  # --jobs 1: one after the other, each on all cores
        (3, 3, 16, [6, 6, 6]),
        (6, 4, 4, [0, 0, 0, 0, 2, 2]),
        (9, 4, 4, [0, 0, 0, 0, 0, 0, 0, 0, 4]),
        (5, 5, 2, [2, 2, 2, 2, 2]),  # --jobs 8 on two cores
    ],
)
def test_the_last_runs_get_several_workers(count: int, at_once: int, cores: int, expected: list[int]) -> None:
    assert workers(count, at_once, cores) == expected


@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 20))
def test_the_runs_of_a_turn_have_equal_shares(count: int, at_once: int, cores: int) -> None:
    """And those of the last turn use all cores; so no run starts beside others that take its cores."""
    at_once = min(at_once, count)  # as the command does
    found = workers(count, at_once, cores)
    for start in range(0, count, at_once):
        assert len(set(found[start : start + at_once])) == 1
    last = found[(count - 1) // at_once * at_once :]
    assert sum(max(1, each) for each in last) >= cores


@pytest.mark.slow
def test_the_configuration_of_a_run_is_what_its_text_says(tmp_path: Path) -> None:
    """It was composed in this process; another process reads the text."""
    jobs = plan(
        ["strategy=fednnnn+fedlws", "client=sgd,fednlr", "seed=1,2", "client.lr=0.05", f"out='{tmp_path}'"]
    ).jobs
    assert len(jobs) == 4
    for job in jobs:
        assert job.config == from_yaml(job.text)
        assert job.folder.parent == tmp_path
