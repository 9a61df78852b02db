"""Runs with augmentation: they differ from runs without, and a resumed one has the bits of a whole one."""

from __future__ import annotations

from pathlib import Path

import pytest
from desk import play, resume, weights

AUGMENTED = "task.augmentation=[crop,flip]"


@pytest.mark.slow
def test_a_resumed_run_has_the_same_draws(tmp_path: Path) -> None:
    whole = play(tmp_path, "rounds=3", "name=whole", AUGMENTED).folder
    part = play(tmp_path, "rounds=1", "name=part", AUGMENTED).folder
    assert weights(part) != weights(whole)
    resume(part, "rounds=3")
    assert weights(part) == weights(whole)


@pytest.mark.slow
def test_augmentation_changes_training_only(tmp_path: Path) -> None:
    usual = play(tmp_path, "rounds=1", "name=usual")
    changed = play(tmp_path, "rounds=1", "name=changed", AUGMENTED)
    assert usual.rows[0]["test/loss"] == changed.rows[0]["test/loss"]
    assert weights(usual.folder) != weights(changed.folder)
