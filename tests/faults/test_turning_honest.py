"""A client that attacked and turns honest: the run recovers, as the table of docs/faults.md says."""

from __future__ import annotations

from pathlib import Path

import pytest
import turning_honest as turning

POINT = 0.01


def behind(strategy: str, attack: str, folder: Path, *more: str) -> list[float]:
    """By how much the accuracy is lower than that of an undisturbed run, in each round after the attack."""
    whole = turning.play(strategy, None, folder, *more, "name=whole")
    found = turning.play(strategy, attack, folder, *more, "name=attacked")
    pairs = zip(whole.accuracy, found.accuracy, strict=True)
    return [one - other for one, other in pairs][turning.ROUNDS + 1 :]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", turning.STRATEGIES)
def test_a_client_that_turns_honest_leaves_nothing(strategy: str, tmp_path: Path) -> None:
    assert min(behind(strategy, "reversed", tmp_path, "seed=1")) <= POINT


@pytest.mark.slow
@pytest.mark.parametrize("attack", turning.ATTACKS)
@pytest.mark.parametrize("strategy", turning.STRATEGIES)
def test_so_it_is_for_each_attack(strategy: str, attack: str, tmp_path: Path) -> None:
    assert min(behind(strategy, attack, tmp_path, "seed=2")) <= POINT


@pytest.mark.slow
def test_the_papers_form_of_scaffold_does_not_recover(tmp_path: Path) -> None:
    left = behind("scaffold", "reversed", tmp_path, "seed=1", "strategy.recover=false")
    assert min(left) > POINT and sum(left) / len(left) > 5 * POINT
