"""Figures on the pages name the code that made them: what `.ci/check_figures.py` reads, and what it says."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from scripts import loaded

from server_app.config.compose import compose

PAGE = """
| method | accuracy | overrides | fingerprint |
|---|--:|---|---|
| **FedNNNN** | 1.0 | `method=fednnnn` | `1.00 -2.00` |
| a heading | | | |
| FedNLR | 2.0 | `method=fednlr client.lr=0.1` | `3.00 -4.00` (older) |
| new row | 3.0 | `method=fedavg` | |

| method | accuracy |
|---|--:|
| no fingerprint here | 1.0 |
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return loaded(".ci/check_figures.py")


def test_rows_of_a_page(script: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(PAGE)
    assert list(script.rows(page)) == [
        ("README.md:4", "FedNNNN", "method=fednnnn", "1.00 -2.00", False),
        ("README.md:6", "FedNLR", "method=fednlr client.lr=0.1", "3.00 -4.00", True),
        ("README.md:7", "new row", "method=fedavg", "", False),
    ]


def test_older_rows_are_marked_and_no_others(script: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(PAGE)
    rows = list(script.rows(page))
    now = {
        "method=fednnnn": "1.02 -2.04",
        "method=fednlr client.lr=0.1": "3.00 -4.10",
        "method=fedavg": "5.00 6.00",
    }
    [line] = script.faults(rows, now)
    assert "README.md:7: the figures of new row (method=fedavg) are of nothing, now 5.00 6.00" in line
    [changed, _] = script.faults(rows, {**now, "method=fednnnn": "1.02 -2.06"})
    assert "README.md:4: the figures of FedNNNN (method=fednnnn) are of 1.00 -2.00, now 1.02 -2.06" in changed
    [marked, _] = script.faults(rows, {**now, "method=fednlr client.lr=0.1": "3.01 -4.00"})
    assert marked == (
        "README.md:6: the figures of FedNLR (method=fednlr client.lr=0.1) are of this code: remove (older)"
    )


@pytest.mark.slow
def test_the_pages_rows_are_found_and_can_be_run(script: ModuleType) -> None:
    found = [row for page in script.PAGES for row in script.rows(page)]
    assert {row.where.partition(":")[0] for row in found} == {"baselines.md"}
    number = r"-?[0-9]+\.[0-9]{2}"
    assert all(row.is_marked or re.fullmatch(f"{number}( {number}){{3,4}}", row.fingerprint) for row in found)
    for overrides in {row.overrides for row in found}:
        compose([*script.SHORT, *overrides.split()])


@pytest.mark.slow
def test_the_fingerprint_is_of_the_model(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "SHORT", ("rounds=1", "clients=4", "cohort=2", "task=breast_cancer", "model=mlp"))
    avg = script.fingerprint("method=fedavg")
    assert avg == script.fingerprint("method=fedavg strategy.weighting=examples")
    assert not script.agree(avg, script.fingerprint("method=fedavg client.lr=0.3"))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1.00 -2.00", "1.04 -2.04", True),
        ("1.00 -2.00", "1.06 -2.00", False),
        ("1.00 -2.00", "1.00 2.00", False),
        ("1.00 -2.00", "1.00 -2.00 0.68", False),
        ("1.00 nan", "1.00 nan", False),
        ("060f979a", "1.00 -2.00", False),
        ("", "", False),
    ],
)
def test_numbers_agree_within_the_differences_of_processors(
    script: ModuleType, one: str, other: str, same: bool
) -> None:
    assert script.agree(one, other) == same
    assert script.agree(other, one) == same
