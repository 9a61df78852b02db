"""One client multiplies its update: the others' model survives, whatever the strategy."""

from __future__ import annotations

from pathlib import Path

import pytest
from attacks import ATTACKS, names, play

FAULTS = Path(__file__).parents[2] / "docs" / "faults.md"
RULES = ("fedavg", "fednnnn", "momentum", "norm_norm", "fedmedian", "fedavg+fedlws")


@pytest.mark.slow
@pytest.mark.parametrize("clients", [5, 2])
@pytest.mark.parametrize("strategy", RULES)
def test_an_attack_costs_no_more_than_a_client_that_always_fails(
    strategy: str, clients: int, tmp_path: Path
) -> None:
    silent = play(strategy, clients, "silent", tmp_path)
    for attack in ("x-10", "x-900", "1e30"):
        result = play(strategy, clients, attack, tmp_path)
        assert result.finite and result.honest_rejected == 0
        assert result.accepted <= 1, attack
        assert result.accuracy > silent.accuracy - 0.05, attack


@pytest.mark.slow
@pytest.mark.parametrize("strategy", RULES)
def test_clipping_bounds_an_attack_too(strategy: str, tmp_path: Path) -> None:
    """Every rule runs with it; no reply is rejected, and the model stays finite."""
    result = play(strategy, 5, "1e30", tmp_path, "screening.clip=0.5", "rounds=4")
    assert (result.finite, result.accepted, result.honest_rejected) == (True, 4, 0)
    assert result.accuracy > 0.5


def test_the_tables_have_a_row_for_every_strategy() -> None:
    section = FAULTS.read_text().split("## One client that attacks")[1].split("\n## ")[0]
    tables = section.split("clients, one of them malicious")[1:]
    assert len(tables) == 2
    for each in tables:
        rows = [
            [cell.strip() for cell in line.split("|")[1:-1]] for line in each.splitlines() if line.startswith("|")
        ]
        assert rows[0] == ["strategy", "all honest", *ATTACKS]
        assert [row[0] for row in rows[2:]] == names()
