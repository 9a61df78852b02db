"""Networks by name: sizes as in the papers, initial weights that depend only on the seed."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from fedstride.errors import ConfigError
from fedstride.parts import Choice
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models import build
from fedstride.tasks.parts import MODELS
from fedstride.tasks.tensors import to_arrays

DIGITS = Inputs(Kind.IMAGE, (1, 28, 28))


def made(name: str, seed: int = 1) -> torch.nn.Module:
    return build(Choice(name), DIGITS, 10, seed)


def size(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_fednnnns_network_has_431_080_parameters() -> None:
    assert size(made("cnn_mnist")) == 431_080


def test_the_perceptron_has_one_hidden_layer_of_200() -> None:
    assert size(made("mlp")) == 784 * 200 + 200 + 200 * 10 + 10
    assert size(build(Choice("mlp"), Inputs(Kind.IMAGE, (3, 4, 5)), 7, 1)) == 60 * 200 + 200 + 200 * 7 + 7


@pytest.mark.parametrize("name", sorted(MODELS))
def test_one_logit_per_class(name: str) -> None:
    with torch.no_grad():
        assert made(name)(torch.zeros(3, *DIGITS.shape)).shape == (3, 10)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_initial_weights_depend_only_on_the_seed(name: str) -> None:
    torch.manual_seed(5)
    first = to_arrays(made(name))
    torch.manual_seed(6)
    torch.rand(7)
    second, other = to_arrays(made(name)), to_arrays(made(name, seed=2))
    for key, array in first.items():
        assert array.tobytes() == second[key].tobytes()
        assert array.tobytes() != other[key].tobytes()


def test_building_does_not_change_the_global_random_states() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tobytes(), random.getstate()
    made("cnn_mnist")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tobytes() == before[1]
    assert random.getstate() == before[2]


def test_an_unsupported_example_shape_is_rejected() -> None:
    said = r"'cnn_mnist' needs examples of kind image of shape \(1, 28, 28\), but the task's examples are: "
    for inputs in (Inputs(Kind.IMAGE, (3, 32, 32)), Inputs(Kind.TABLE, (1, 28, 28)), Inputs(Kind.IMAGE, (28, 28))):
        with pytest.raises(ConfigError, match=said + inputs.kind):
            build(Choice("cnn_mnist"), inputs, 10, 1)


def test_an_unknown_network() -> None:
    with pytest.raises(ConfigError, match=r"unknown model 'cnn_mnst'. Did you mean 'cnn_mnist'\?"):
        made("cnn_mnst")
