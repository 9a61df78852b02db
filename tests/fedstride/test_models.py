"""A network by name: random states, and what is refused. `test_networks.py` tests each network."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from fedstride.errors import ConfigError
from fedstride.parts import Choice
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models import build

DIGITS = Inputs(Kind.IMAGE, (1, 28, 28))


def made(name: str) -> torch.nn.Module:
    return build(Choice(name), DIGITS, 10, 1)


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
    with pytest.raises(ConfigError, match=r"unknown model 'cnn_mnst'. Did you mean 'cnn_mnist' or 'cnn_emnist'\?"):
        made("cnn_mnst")
