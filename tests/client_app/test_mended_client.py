"""Faults that a close reading found; each is mended and stays so."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from client_talk import message, node, told
from flwr.app import Array
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from client_app.objectives.fedprox import FedProx
from client_app.rules import fednlr
from client_app.rules.fednlr import NeuronSGD, find_layers, mean_activations, network_rates
from fedstride import flower
from fedstride.arrays import to_record, view, views
from fedstride.errors import ConfigError
from fedstride.schema import FedNLRConfig, FedProxConfig
from server_app.config import compose as module
from server_app.config.compose import compose, conf_dir, from_yaml
from server_app.config.overrides import parse, quote


@pytest.mark.parametrize("value", [np.int64(7), np.float32(0.5), np.bool_(True)])
def test_to_record_takes_numpy_scalars(value: np.generic) -> None:
    """What arithmetic on 0-d arrays (num_batches_tracked) gives."""
    back = views(to_record({"a": value}))["a"]
    assert (back.shape, back.dtype, back[()]) == ((), value.dtype, value)


def frozen_net() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    model[0].requires_grad_(False)
    return model


def test_neuron_sgd_passes_over_rates_of_frozen_parameters() -> None:
    model, x = frozen_net(), torch.rand(6, 3)
    optimizer = NeuronSGD(model, network_rates(model, [x], x[:1]), lr=0.1)
    before = model[2].weight.detach().clone()
    model(x).sum().backward()
    optimizer.step()
    assert not torch.equal(model[2].weight, before)


def test_rule_counts_trainable_parameters_only() -> None:
    class Given:
        def in_order(self, size: int):
            x = torch.rand(6, 3, generator=torch.Generator().manual_seed(0))
            return ((x[i : i + size], None) for i in range(0, 6, size))

    model = frozen_net()
    factors, _ = fednlr.make(FedNLRConfig())(model, Given(), 0.1)
    trained = [p for p in model.parameters() if p.requires_grad]
    for i, factor in factors.items():
        assert factor.shape[0] == trained[i].shape[0]


class Between(nn.Module):
    def __init__(self, between: nn.Module) -> None:
        super().__init__()
        self.layer, self.between, self.norm, self.head = (
            nn.Linear(3, 4),
            between,
            nn.BatchNorm1d(4),
            nn.Linear(4, 2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.between(self.layer(x))))


@pytest.mark.parametrize("between", [nn.ReLU(inplace=True), nn.LeakyReLU(0.1, inplace=True)])
def test_a_batch_norm_after_an_in_place_activation_belongs_to_no_layer(between: nn.Module) -> None:
    model, x = Between(between), torch.randn(6, 3)
    assert set(network_rates(model, [x], x[:1]).factors) == {
        "layer.weight",
        "layer.bias",
        "head.weight",
        "head.bias",
    }


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(3, 4)
        self.na, self.nb, self.head = nn.BatchNorm1d(4), nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.a(x), self.b(x)
        return self.head((self.na(a) + self.nb(b)).relu())


def test_parallel_branches_keep_their_batch_norms() -> None:
    x = torch.randn(6, 3)
    assert {"na.weight", "nb.weight"} <= set(network_rates(Branches(), [x], x[:1]).factors)


def test_a_batch_norm_over_tokens_belongs_to_no_layer() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm, self.head = nn.Linear(4, 5), nn.BatchNorm1d(3), nn.Linear(15, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.norm(self.layer(x)).flatten(1))

    model, x = Tokens(), torch.randn(6, 3, 4)
    rates = network_rates(model, [x], x[:1])
    assert "norm.weight" not in rates.factors


def test_group_norm_counts_for_the_activation_but_gets_no_rate() -> None:
    """A5-5 says "a normalisation layer"; A5-9 gives rates to BatchNorm only."""

    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))

    torch.manual_seed(0)
    model, x = Grouped(), torch.randn(6, 1, 6, 6)
    layers = find_layers(model, x[:1])
    h = mean_activations(model, layers, [x])[0]
    expected = model.norm(model.conv(x)).relu().mean((0, 2, 3)).double()
    torch.testing.assert_close(h, expected, rtol=1e-5, atol=1e-6)
    assert "norm.weight" not in network_rates(model, [x], x[:1]).factors


def test_fedprox_with_two_parameters_that_get_one_gradient() -> None:
    w = [nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(2, 3))]
    objective = FedProx(FedProxConfig(mu=1.0), w)
    with torch.no_grad():
        w[0].add_(1.0)
        w[1].add_(10.0)
    gradients = torch.autograd.grad(((w[0] + w[1]) * 2.0).sum(), w)
    gradients = objective.correct(gradients, w)
    assert gradients[0][0, 0] == 3.0
    assert gradients[1][0, 0] == 12.0


@pytest.mark.parametrize("override", ["client.name=fednlr", "strategy.name=fedlws", "partition.name=iid"])
def test_a_choices_name_is_not_for_setting(override: str) -> None:
    with pytest.raises(ConfigError, match="unknown key"):
        compose([override])


@pytest.mark.parametrize("override", ["out=${nope}", "rounds=???", "name=???", "rounds=${"])
def test_broken_interpolations_are_config_errors(override: str) -> None:
    with pytest.raises(ConfigError):
        compose([override])


@pytest.mark.parametrize(
    ("key", "meant"),
    [("stratgy=fedavg", "strategy"), ("clint=sgd", "client"), ("expriment=quickstart", "experiment")],
)
def test_a_mistyped_group_is_answered_with_the_group(key: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"'{meant}'"):
        compose([key])


@pytest.mark.parametrize(
    "text",
    ["1.10", "1e3", "1_000", "007", "true", "null", "NULL", "nan", "Müller", "日本", "C:\\Users\\x", "a\\", "\\'"],
)
def test_any_name_of_a_folder_comes_back(text: str) -> None:
    (override,) = parse([f"out={quote(text)}"])
    assert override.value() == text


@pytest.mark.parametrize("text", ["", "[]", "strategy: 3", ": :", "a: [", "just text"])
def test_a_torn_configuration_is_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match="no configuration of this version"):
        from_yaml(text)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    conf = tmp_path / "conf"
    shutil.copytree(conf_dir(), conf)
    monkeypatch.setattr(module, "conf_dir", lambda: conf)

    def write(presets: str) -> None:
        (conf / "experiment" / "mine.yaml").write_text(
            f"# @package _global_\n# Mine.\nexperiment: mine\npresets: {presets}\n"
        )

    return write


def test_presets_may_hold_lists(mine) -> None:
    mine("{strategy: {fedlws: {fixed: [1.0, 0.9]}}}")
    assert compose(["experiment=mine", "strategy=fedlws"]).strategy.fixed == [1.0, 0.9]


@pytest.mark.parametrize("presets", ["{strateg: {fedlws: {beta: 0.2}}}", "{strategy: {fedlw: {beta: 0.2}}}"])
def test_presets_for_what_does_not_exist_are_config_errors(mine, presets: str) -> None:
    mine(presets)
    with pytest.raises(ConfigError, match=r"strateg|fedlw"):
        compose(["experiment=mine", "strategy=fedlws"])


def test_empty_presets_of_a_group_are_none(mine) -> None:
    mine("{strategy: }")
    assert compose(["experiment=mine", "strategy=fedlws"]).strategy.name == "fedlws"


def test_a_message_without_a_model_says_so() -> None:
    flower.set_identity()
    from client_app.app import app

    with pytest.raises(Exception, match="arrays") as caught:
        app(message("train", told(), None), node())
    assert type(caught.value) is not KeyError


BASE = Array(np.arange(12, dtype=np.float32).reshape(3, 4))


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.integers(8, 127), st.integers(0, 255)), min_size=1, max_size=4))
def test_torn_headers_raise_value_error_as_the_docstring_says(changes) -> None:
    data = bytearray(BASE.data)
    for place, value in changes:
        data[place] = value
    with contextlib.suppress(ValueError):
        view(Array(BASE.dtype, BASE.shape, BASE.stype, bytes(data)))


def test_an_entry_that_was_emptied_is_a_data_error_or_made_again(tmp_path, monkeypatch) -> None:
    """tmp cleaners delete files and leave folders."""
    from fedstride.tasks.cache import cached

    monkeypatch.setenv("FEDSTRIDE_CACHE", str(tmp_path))
    cached("kind", {}, lambda: {"a": np.arange(3)})
    for path in next(tmp_path.iterdir()).glob("*.npy"):
        path.unlink()
    assert cached("kind", {}, lambda: {"a": np.arange(3)})["a"].tolist() == [0, 1, 2]
