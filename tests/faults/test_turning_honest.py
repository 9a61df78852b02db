"""A client that attacked and turns honest: the run recovers, as the table of docs/faults.md says."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import turning_honest as turning

POINT = 0.01

Undisturbed = Callable[..., list[float]]
Behind = Callable[..., list[float]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """The accuracy in each round of a run without an attack, which several tests compare theirs with."""

    @functools.cache
    def accuracy(strategy: str, *more: str) -> list[float]:
        return turning.play(strategy, None, tmp_path_factory.mktemp("whole"), *more).accuracy

    return accuracy


@pytest.fixture
def behind(undisturbed: Undisturbed, tmp_path: Path) -> Behind:
    """By how much the accuracy is lower than that of an undisturbed run, in each round after the attack."""

    def differences(strategy: str, attack: str, *more: str) -> list[float]:
        found = turning.play(strategy, attack, tmp_path, *more).accuracy
        pairs = zip(undisturbed(strategy, *more), found, strict=True)
        return [one - other for one, other in pairs][turning.ROUNDS + 1 :]

    return differences


@pytest.mark.slow
@pytest.mark.parametrize("attack", turning.ATTACKS)
@pytest.mark.parametrize("strategy", turning.STRATEGIES)
def test_a_client_that_turns_honest_leaves_nothing(strategy: str, attack: str, behind: Behind) -> None:
    assert min(behind(strategy, attack, "seed=2")) <= POINT


@pytest.mark.slow
def test_the_papers_form_of_scaffold_does_not_recover(behind: Behind) -> None:
    left = behind("scaffold", "reversed", "seed=1", "strategy.recover=false")
    assert min(left) > POINT and sum(left) / len(left) > 5 * POINT
