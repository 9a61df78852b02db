"""FedLAW in runs: the network's gradient, where the proxy set comes from, resume, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from desk import SMALL, play, table, weights, whole_and_resumed

from fedstride.arrays.named import views
from fedstride.errors import ConfigError
from fedstride.tasks import data
from fedstride.tasks.models import networks_by_name
from fedstride.tasks.models.tensors import Examples, load_arrays, to_arrays
from server_app import preparation
from server_app.build import build_strategy
from server_app.config.compose import compose
from server_app.evaluation.central import CentralEvaluation
from server_app.evaluation.proxy_set import ServerProxy, proxy_of
from server_app.preparation import Prepared

pytestmark = pytest.mark.slow

PROXY = ("strategy=fedlaw", "task.proxy=test", "strategy.server_epochs=2")


def prepared(*overrides: str) -> Prepared:
    return preparation.prepare(compose([*SMALL, *PROXY, *overrides]))


def server_proxy(run: Prepared) -> ServerProxy:
    found = proxy_of(run.config, run.evaluation)
    assert found is not None
    return found


# ---------------------------------------------------------------- the gradient


@pytest.mark.parametrize("model", ["mlp", "resnet20"])
def test_the_gradient_is_that_of_plain_torch_in_train_mode(model: str) -> None:
    run = prepared(f"model={model}")
    proxy, start = server_proxy(run), views(run.evaluation.initial)
    got = proxy.gradient(start, np.array([3, 17, 190, 5]), seed=1)
    source = data.load(run.config.task)
    assert isinstance(source, data.WithProxy)
    network = networks_by_name.build(run.config.model, source.spec.inputs, source.spec.outputs, 99)
    load_arrays(network, start)
    rows = source.proxy[[3, 17, 190, 5]]
    x, y = Examples(source.test_x, source.test_y, source.spec, device=torch.device("cpu")).batch(rows)
    network.train()
    loss = torch.nn.functional.cross_entropy(network(x), y)
    loss.backward()
    assert got.loss == pytest.approx(float(loss.detach()), rel=1e-6)
    want = {name: w.grad.numpy() for name, w in network.named_parameters() if w.grad is not None}
    assert set(got.parameters) == set(want)
    for name, g in want.items():
        np.testing.assert_allclose(got.parameters[name], g, rtol=1e-4, atol=1e-6, err_msg=name)
    after = to_arrays(network)
    assert set(got.buffers) | set(want) == set(start)
    for name, buffer in got.buffers.items():
        np.testing.assert_allclose(buffer, after[name], rtol=1e-5, atol=1e-6, err_msg=name)
    assert bool(got.buffers) == (model == "resnet20")


def test_equal_arguments_give_equal_bits_also_with_dropout() -> None:
    run = prepared("model=vit")
    proxy, start = server_proxy(run), views(run.evaluation.initial)
    found = [proxy.gradient(start, np.arange(6), seed) for seed in (4, 5, 4)]
    assert found[0].loss == found[2].loss != found[1].loss
    name = next(iter(found[0].parameters))
    assert found[0].parameters[name].tobytes() == found[2].parameters[name].tobytes()


def test_frozen_parameters_have_no_gradient() -> None:
    run = prepared("train=[fc2]")
    found = server_proxy(run).gradient(views(run.evaluation.initial), np.arange(4), 1)
    assert set(found.parameters) == {"fc2.weight", "fc2.bias"}


# ---------------------------------------------------------------- runs


def test_a_run_uses_other_examples_than_it_is_measured_on(tmp_path: Path) -> None:
    done = play(tmp_path, *PROXY, "rounds=2", "strategy.lr=0.05")
    last = done.rows[-1]
    assert last["fedlaw/proxy_examples"] == 200
    assert last["fedlaw/gamma"] != 1.0 and 0.0 < last["fedlaw/weight_min"] <= last["fedlaw/weight_max"] < 1.0
    assert last["test/accuracy"] * 800 == pytest.approx(round(last["test/accuracy"] * 800), abs=1e-6)
    alone = play(tmp_path, "strategy=fedavg", "task.proxy=test", "rounds=1", "name=alone")
    assert alone.rows[0]["test/loss"] == done.rows[0]["test/loss"]  # the same model on the same examples


def test_without_epochs_a_run_is_fedavg(tmp_path: Path) -> None:
    """Up to the rounding of its start, ln p."""
    law = play(tmp_path, *PROXY, "strategy.server_epochs=0", "rounds=2", "name=law")
    avg = play(tmp_path, "strategy=fedavg", "task.proxy=test", "rounds=2", "name=avg")
    assert law.rows[-1]["test/loss"] == pytest.approx(avg.rows[-1]["test/loss"], rel=1e-5)


def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    whole, resumed = whole_and_resumed(tmp_path, *PROXY, "rounds=3", "cohort=2", "task.proxy=train_holdout")
    assert weights(whole) == weights(resumed)
    assert table(whole) == table(resumed)


def test_workers_give_the_same_bits(tmp_path: Path) -> None:
    one = play(tmp_path, *PROXY, "rounds=2", "name=one").folder
    two = play(tmp_path, *PROXY, "rounds=2", "name=two", workers=2).folder
    assert weights(one) == weights(two)


def test_the_user_is_told_who_uses_extra_data() -> None:
    (note,) = prepared().notes
    assert note.startswith("200 test examples are the server's proxy set (task.proxy=test)")
    assert note.endswith("strategy=fedlaw uses this extra data")
    other = ["strategy=fedavg", "task.proxy=train_holdout", "task.proxy_smallest=0.1"]
    (note,) = preparation.prepare(compose([*SMALL, *other])).notes
    assert note.startswith("78 training examples are") and note.endswith("no part of this run uses them")


def test_inside_two_d_lrd_and_with_privacy_it_still_gets_its_proxy_set() -> None:
    given = ["strategy=fedlaw+two_d_lrd", "strategy.local_steps=3", "privacy=server_side", "task.proxy=test"]
    run = preparation.prepare(compose([*SMALL, *given]))
    innermost: Any = list(run.strategy.nested())[-1]
    assert len(innermost.proxy) == 200


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["task.proxy=none"], r"^task\.proxy = 'none' .*with strategy=fedlaw, which uses examples"),
        (["test_set=false"], r"^task\.proxy = 'test' .*the server has no test set"),
        (["task=diabetes"], r"^task\.proxy = 'test' .*task=diabetes has no classes"),
        (["task.loss=hinge"], r"^strategy = 'fedlaw' .*fedlaw needs cross_entropy"),
        (["partition=own"], r"^task\.proxy = 'test' .*no test set"),
        (["partition=own", "task.proxy=train_holdout"], r"^task\.proxy = 'train_holdout' .*nodes' own files"),
        (["strategy=fedlaw+fedlws"], "FedLAW learns its own factor"),
        (["strategy=fedlaw+adadecay"], "FedLAW learns its own factor"),
        (["strategy=fedlaw+awd"], "FedLAW learns its own factor"),
        (["model=resnet20", "strategy.batch_size=199"], r"^strategy\.batch_size = 199 .*a single example of 200"),
        (["task.proxy=some"], r"^task\.proxy = 'some'"),
        (["task.proxy_smallest=0"], r"^task\.proxy_smallest = 0"),
    ],
)
def test_refusals(overrides: list[str], said: str, tmp_path: Path) -> None:
    given = [*SMALL, "strategy=fedlaw", "task.proxy=test", f"out={tmp_path}", *overrides]
    with pytest.raises(ConfigError, match=said):
        preparation.prepare(compose(given))
    assert not any(tmp_path.iterdir())


def test_the_need_of_a_proxy_set_is_found_before_the_data_are_read() -> None:
    with pytest.raises(ConfigError, match=r"^task\.proxy = 'none'"):
        build_strategy(compose(["strategy=fedlaw+two_d_lrd", "strategy.local_steps=3"]))


# ---------------------------------------------------------------- FedDisco's target


def test_feddisco_gets_the_labels_of_the_test_set_without_the_proxy_set(tmp_path: Path) -> None:
    given = ["strategy=feddisco", "strategy.target=test", "task.proxy=test", "task.proxy_smallest=0.1"]
    run = preparation.prepare(compose([*SMALL, *given]))
    innermost: Any = list(run.strategy.nested())[-1]
    assert innermost.test_labels == [100 - taken for taken in (20, 15, 11, 9, 7, 5, 4, 3, 2, 2)]
    play(tmp_path, *given, "rounds=1")


def test_feddiscos_target_is_refused_without_a_test_set(tmp_path: Path) -> None:
    given = [*SMALL, "strategy=feddisco", "strategy.target=test", "test_set=false", f"out={tmp_path}"]
    with pytest.raises(ConfigError, match=r"^strategy\.target = 'test' .*the server has no test set"):
        preparation.prepare(compose(given))
    assert not any(tmp_path.iterdir())


def test_the_labels_of_an_evaluation() -> None:
    config = compose([*SMALL, "strategy=fedavg"])
    assert CentralEvaluation(config).labels == [100] * 10
