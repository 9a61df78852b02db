"""A run that ends in the middle of a round leaves a checkpoint of its last completed round, not of a mixture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from desk import play, resume, table, weights
from flwr.app import ArrayRecord

from fedstride.processes.unix_signals import Terminated
from server_app.evaluation.central import CentralEvaluation
from server_app.records.checkpoint import newest_checkpoint


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, Terminated, RuntimeError])
def test_the_strategy_has_gone_on_when_the_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """The evaluation of round 3 ends the run, after the momentum of round 3 was computed."""
    given = ["strategy=fednnnn+fedlws", "rounds=4", "checkpoint_every=4"]
    evaluate = CentralEvaluation.__call__
    calls: list[int] = []

    def ends(self: CentralEvaluation, arrays: ArrayRecord, server_round: int) -> Mapping[str, Any]:
        calls.append(1)
        if len(calls) == 4:  # round 0 is the initial model
            raise error
        return evaluate(self, arrays, server_round)

    with monkeypatch.context() as patch:
        patch.setattr(CentralEvaluation, "__call__", ends)
        with pytest.raises(error):
            play(tmp_path, *given, "name=part")
    checkpoint, _ = newest_checkpoint(tmp_path / "part")
    assert checkpoint.server_round == 2
    resume(tmp_path / "part")
    whole = play(tmp_path, *given, "name=whole").folder
    assert weights(whole) == weights(tmp_path / "part")
    assert table(whole) == table(tmp_path / "part")
