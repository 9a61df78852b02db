"""Validated in runs: the network's loss, an attack within the bounds, resume, workers, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from desk import SMALL, play, table, weights, whole_and_resumed

from fedstride.arrays.named import views
from fedstride.errors import ConfigError
from fedstride.tasks import data
from fedstride.tasks.models import networks_by_name
from fedstride.tasks.models.tensors import Examples, load_arrays
from server_app import preparation
from server_app.config.compose import compose
from server_app.evaluation.proxy_set import proxy_of
from server_app.rounds import Round

USES = ("strategy=fedavg+validated", "task.proxy=test")
ATTACK = ("attack=scaled", "attack.factor=-2", "attack.clients=1", "partition.alpha=0.5")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "resnet20"])
def test_the_losses_are_those_of_plain_torch_in_eval_mode(model: str) -> None:
    run = preparation.prepare(compose([*SMALL, *USES, f"model={model}"]))
    proxy, start = proxy_of(run.config, run.evaluation), views(run.evaluation.initial)
    source = data.load(run.config.task)
    assert isinstance(source, data.WithProxy) and proxy is not None
    network = networks_by_name.build(run.config.model, source.spec.inputs, source.spec.outputs, 99)
    load_arrays(network, start)
    network.eval()
    whole = Examples(source.test_x, source.test_y, source.spec, device=torch.device("cpu"))
    with torch.no_grad():
        x, y = whole.batch(source.proxy)
        want = torch.nn.functional.cross_entropy(network(x), y, reduction="none").double().numpy()
    found = proxy.losses(start)
    assert found.shape == (200,) and found.dtype == "float64"
    np.testing.assert_allclose(found, want, rtol=1e-5)
    assert found.tobytes() == proxy.losses(start).tobytes()


@pytest.mark.slow
def test_an_attack_within_the_bounds_is_left_out(tmp_path: Path) -> None:
    given = ("clients=5", "rounds=6", "model=mlp", "evaluate_every=6", *ATTACK, "task.proxy=test")
    plain = play(tmp_path, *given, "strategy=fedavg", "name=plain", small=False).rows[-1]
    held = play(tmp_path, *given, "strategy=fedavg+validated", "name=held", small=False).rows[-1]
    assert held["screening/rejected"] == 0 and held["validated/left_out"] >= 1
    assert held["validated/examples"] == 200 and "validated/loss" not in plain
    assert held["test/accuracy"] > plain["test/accuracy"] + 0.05


class Accepted:
    """How many clients keep the state of each round, and how many replies were left out."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.left_out: list[int] = []

    def replied(self, server_round: int, done: int, total: int) -> None: ...

    def round_done(self, done: Round) -> None:
        if done.number:
            self.kept.append(sum(last == done.number for last in done.accepted.values()))
            self.left_out.append(int(done.row["validated/left_out"]))


@pytest.mark.slow
@pytest.mark.parametrize("inside", ["feddyn", "scaffold", "scaffold strategy.inner.recover=false"])
def test_a_client_keeps_no_state_of_a_round_in_which_its_reply_is_left_out(tmp_path: Path, inside: str) -> None:
    """Otherwise server and client know different states: FedDyn starts again from zero, c is no mean of c_k."""
    name, *settings = inside.split()
    seen = Accepted()
    given = (f"strategy={name}+validated", *settings, "strategy.sure=0", "task.proxy=test", "rounds=6")
    done = play(tmp_path, *given, observers=[seen])
    assert sum(seen.left_out) > 0
    assert [kept + left_out for kept, left_out in zip(seen.kept, seen.left_out, strict=True)] == [4] * 6
    assert done.rows[-1].get("feddyn/restarts", 0) == 0


@pytest.mark.slow
def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    whole, resumed = whole_and_resumed(
        tmp_path, "strategy=fednnnn+validated", "task.proxy=test", *ATTACK, "rounds=3"
    )
    assert weights(whole) == weights(resumed)
    assert table(whole) == table(resumed)


@pytest.mark.slow
def test_workers_give_the_same_bits(tmp_path: Path) -> None:
    one = play(tmp_path, *USES, *ATTACK, "rounds=2", "name=one").folder
    two = play(tmp_path, *USES, *ATTACK, "rounds=2", "name=two", workers=2).folder
    assert weights(one) == weights(two)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("task.proxy=none", r"task\.proxy = 'none' .*strategy=validated, which uses examples at the server"),
        ("strategy.most=0.5", r"strategy\.most = 0\.5"),
        ("strategy.sure=-1", r"strategy\.sure = -1"),
    ],
)
def test_refused(more: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        preparation.prepare(compose([*SMALL, *USES, more]))
