"""The last linear layer of every network, its input, and networks without one."""

from __future__ import annotations

import copy

import pytest
import torch
from all_networks import CASES, TAKES, drawn, made
from torch import nn

from fedstride.errors import ConfigError
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.last_layer import Representations, last_layer, without_last_layer

ROW = Inputs(Kind.TABLE, (5,))


@pytest.mark.slow
@pytest.mark.parametrize("name", TAKES)
def test_every_network_has_one(name: str) -> None:
    """Its output of the representation is the result, and looking for it changes nothing."""
    inputs = next(inputs for other, inputs in CASES if other == name)
    model = made(name, inputs).train()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    layer = last_layer(model, inputs)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(module.training for module in model.modules()) and torch.equal(state, torch.get_rng_state())
    features, x = without_last_layer(model, layer), drawn(inputs)
    model.eval()
    with torch.no_grad(), Representations(layer) as seen:
        result = model(x)
        assert torch.equal(layer(features(x)), result)
        assert torch.equal(seen.value, features(x))  # an LSTM has other kernels, and bits, for gradients
    assert not layer._forward_pre_hooks and not features.training


class Shared(nn.Module):
    """A network that knows its last layer by two names, one of them inside a container."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(5, 4)
        self.heads = nn.ModuleList([nn.Linear(4, 3)])
        self.head = self.heads[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def test_a_layer_with_two_names() -> None:
    model, x = Shared(), torch.rand(2, 5)
    features = without_last_layer(model, last_layer(model, ROW))
    assert torch.equal(features(x), model.body(x))


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(5, 3), nn.ReLU()),
        nn.Sequential(nn.Linear(5, 3), nn.Unflatten(1, (1, 3))),
        nn.Sequential(nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 3, 5), nn.Flatten()),
        nn.Sequential(nn.Unflatten(1, (5, 1)), nn.Linear(1, 3)),
    ],
    ids=["activated", "reshaped", "convolution", "at-positions"],
)
def test_networks_without_one(model: nn.Module) -> None:
    with pytest.raises(ConfigError, match="no last linear layer"):
        last_layer(model, ROW)
    assert model.training
