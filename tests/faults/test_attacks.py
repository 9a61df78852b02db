"""One client multiplies its update: the others' model survives, whatever the strategy."""

from __future__ import annotations

from pathlib import Path

import pytest
from attacks import PAGE, faults, play

from fedstride.errors import ConfigError
from server_app import preparation
from server_app.config.compose import compose

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
    """No reply is rejected, and the model stays finite."""
    result = play(strategy, 5, "1e30", tmp_path, "screening.clip=0.5", "rounds=4")
    assert (result.finite, result.accepted, result.honest_rejected) == (True, 4, 0)
    assert result.accuracy > 0.5


@pytest.mark.parametrize("strategy", ["feddyn", "scaffold", "scaffold+fedlws"])
def test_clipping_is_refused_where_clients_keep_a_state_of_the_whole_update(strategy: str) -> None:
    with pytest.raises(ConfigError, match=r"screening\.clip = 0\.5 .*clip must be null with (FedDyn|Scaffold)"):
        preparation.prepare(compose([f"strategy={strategy}", "screening.clip=0.5", "model=mlp", "clients=4"]))


def test_the_check_before_a_release_names_rows_that_are_missing_or_too_many() -> None:
    """Rows are measured for a release; a new rule does not need them before."""
    page = PAGE.read_text()
    known = faults(page)
    first = next(line for line in page.splitlines() if line.startswith("| fedavg |"))
    assert faults(page.replace(f"{first}\n", "", 1)) == ["5 clients: no row fedavg", *known]
    other = first.replace("fedavg", "gone")
    assert "5 clients: the row gone is of no strategy" in faults(page.replace(first, f"{first}\n{other}", 1))
    head = "| strategy | all honest |"
    assert any("another head" in each for each in faults(page.replace(head, "| rule | all honest |", 1)))
