"""Figures on the pages name the code that made them: what `.ci/check_figures.py` reads, and what it says."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from scripts import loaded

from server_app.config.compose import compose

PAGE = """
| method | accuracy | overrides | digest |
|---|--:|---|---|
| **FedNNNN** | 1.0 | `method=fednnnn` | `060f979a` |
| a heading | | | |
| FedNLR | 2.0 | `method=fednlr client.lr=0.1` | `7343f646` (older) |
| new row | 3.0 | `method=fedavg` | |

| method | accuracy |
|---|--:|
| no digest here | 1.0 |
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return loaded(".ci/check_figures.py")


def test_rows_of_a_page(script: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(PAGE)
    assert list(script.rows(page)) == [
        ("README.md:4", "FedNNNN", "method=fednnnn", "060f979a", False),
        ("README.md:6", "FedNLR", "method=fednlr client.lr=0.1", "7343f646", True),
        ("README.md:7", "new row", "method=fedavg", "", False),
    ]


def test_older_rows_are_marked_and_no_others(script: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(PAGE)
    rows = list(script.rows(page))
    now = {"method=fednnnn": "060f979a", "method=fednlr client.lr=0.1": "11111111", "method=fedavg": "22222222"}
    [line] = script.faults(rows, now)
    assert "README.md:7: the figures of new row (method=fedavg) are of nothing, now 22222222" in line
    [changed, _] = script.faults(rows, {**now, "method=fednnnn": "33333333"})
    assert "README.md:4: the figures of FedNNNN (method=fednnnn) are of 060f979a, now 33333333" in changed
    [marked, _] = script.faults(rows, {**now, "method=fednlr client.lr=0.1": "7343f646"})
    assert marked == (
        "README.md:6: the figures of FedNLR (method=fednlr client.lr=0.1) are of this code: remove (older)"
    )


@pytest.mark.slow
def test_the_pages_rows_are_found_and_can_be_run(script: ModuleType) -> None:
    found = [row for page in script.PAGES for row in script.rows(page)]
    assert {row.where.partition(":")[0] for row in found} == {"baselines.md"}
    assert all(re.fullmatch("[0-9a-f]{8}", row.digest) for row in found)
    for overrides in {row.overrides for row in found}:
        compose([*script.SHORT, *overrides.split()])


@pytest.mark.slow
def test_the_digest_is_of_the_model(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "SHORT", ("rounds=1", "clients=4", "cohort=2", "task=breast_cancer", "model=mlp"))
    avg = script.digest("method=fedavg")
    assert avg == script.digest("method=fedavg strategy.weighting=examples")
    assert avg != script.digest("method=fedavg client.lr=0.07")
