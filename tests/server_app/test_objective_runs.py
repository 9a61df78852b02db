"""Runs with FedRS, FedLC and MOON: bits, resume, lost states, and refusals before training."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from desk import play, resume, table, weights, whole_and_resumed
from torch import nn

from fedstride.errors import ConfigError
from fedstride.parts import Part
from fedstride.tasks.inputs import Inputs
from fedstride.tasks.registry import MODELS
from server_app import preparation
from server_app.config.compose import compose
from server_app.records.line_files import read_lines

SKEWED = ("partition=dirichlet", "partition.alpha=0.3", "rounds=3", "cohort=3")


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [("objective=fedrs", "client=fednlr"), ("objective=fedlc", "strategy=scaffold"), ("objective=moon",)],
    ids=lambda given: given[0],
)
def test_the_bits_do_not_depend_on_the_workers(given: tuple[str, ...], tmp_path: Path) -> None:
    runs = [play(tmp_path, *SKEWED, *given, f"name={n}", workers=n).folder for n in (0, 1, 2)]
    assert len({weights(folder) for folder in runs}) == 1
    assert len({str(table(folder)) for folder in runs}) == 1
    assert weights(runs[0]) != weights(play(tmp_path, *SKEWED, *given[1:], "name=plain").folder)


@pytest.mark.slow
def test_a_resumed_run_with_moon_has_the_same_bits(tmp_path: Path) -> None:
    whole, resumed = whole_and_resumed(tmp_path, "objective=moon", "rounds=4", "cohort=2")
    assert weights(whole) == weights(resumed)
    assert table(whole) == table(resumed)


@pytest.mark.slow
def test_clients_that_lost_their_models_start_again_and_the_run_says_so(tmp_path: Path) -> None:
    play(tmp_path, "objective=moon", "rounds=2", "name=part")
    shutil.rmtree(tmp_path / "part" / "clients")
    resume(tmp_path / "part", "rounds=3")
    rows = read_lines(tmp_path / "part" / "clients.jsonl")
    assert [row["round"] for row in rows if row.get("state/lost")] == [3] * 4


@pytest.mark.parametrize("name", ["fedrs", "fedlc", "moon"])
@pytest.mark.parametrize(("task", "model", "loss"), [("diabetes", "mlp", "squared_error")])
def test_a_task_without_classes_is_refused(name: str, task: str, model: str, loss: str, tmp_path: Path) -> None:
    config = compose([f"task={task}", f"model={model}", f"objective={name}", f"out={tmp_path}", "clients=2"])
    with pytest.raises(ConfigError, match=rf"objective = '{name}' is not allowed: .* loss {loss}.*cross_entropy"):
        preparation.prepare(config)
    assert not any(tmp_path.iterdir())


def test_another_loss_is_refused_where_the_rule_changes_the_softmax(tmp_path: Path) -> None:
    def prepared(name: str) -> Any:
        given = ["model=mlp", "task.loss=hinge", f"objective={name}", f"out={tmp_path}"]
        return preparation.prepare(compose(given))

    for name in ("fedrs", "fedlc"):
        with pytest.raises(ConfigError, match="needs cross_entropy"):
            prepared(name)
    prepared("moon")


class NoLastLayer(nn.Module):
    def __init__(self, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        self.fc = nn.Linear(inputs.size, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x.flatten(1)).relu()


def test_a_network_without_a_last_layer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS._parts, "odd", Part("odd", NoLastLayer, "Ends with a ReLU."))
    with pytest.raises(ConfigError, match=r"objective = 'moon' .* model = 'odd': .*no last linear layer"):
        preparation.prepare(compose(["model=odd", "objective=moon", f"out={tmp_path}"]))
    preparation.prepare(compose(["model=odd", "objective=fedrs", f"out={tmp_path}"]))
