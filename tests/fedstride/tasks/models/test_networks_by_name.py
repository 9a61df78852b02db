"""A network by name: random states, and what is refused. `test_networks.py` tests each network."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fedstride.errors import ConfigError
from fedstride.parts import Choice
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.networks_by_name import build, check_outputs, leaves_one, needs_two

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


# ---------------------------------------------------------------- outputs


class Returns(torch.nn.Module):
    """Returns what is made of (n, 3). It counts its calls in a buffer, and draws a number in each."""

    def __init__(self, change: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.change = torch.nn.Linear(4, 3), change
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> Any:
        self.calls += torch.rand(())
        return self.change(self.layer(x.float()))


ROW = Inputs(Kind.TABLE, (4,))
OTHERS: dict[str, tuple[Callable[[torch.Tensor], Any], int, str]] = {
    "one output without its axis": (lambda z: z[:, 0], 1, r"returns (n,) "),
    "one output for two classes": (lambda z: z[:, :1], 2, r"returns (n, 1) "),
    "too many": (lambda z: z, 2, r"returns (n, 3) "),
    "a sequence": (lambda z: z[:, None, :], 3, r"returns (n, 1, 3) "),
    "the axes in the other order": (lambda z: z.t(), 3, r"returns (3, 2) "),
    "the mean of all": (lambda z: z.mean(), 3, r"returns () "),
    "a dictionary": (lambda z: {"logits": z}, 3, "returns a dict "),
    "a tuple": (lambda z: (z, z), 3, "returns a tuple "),
    "nothing": (lambda z: None, 3, "returns a NoneType "),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_network_that_returns_another_shape_is_refused(case: str) -> None:
    change, outputs, said = OTHERS[case]
    with pytest.raises(
        ConfigError, match=re.escape(said) + rf".*must return a tensor \(n, {outputs}\)"
    ) as refused:
        check_outputs(Returns(change), "mine", ROW, outputs)
    assert "model = 'mine'" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("inputs", [ROW, Inputs(Kind.TOKENS, (4,), 9)], ids=str)
def test_checking_a_network_changes_nothing(inputs: Inputs) -> None:
    network = Returns(lambda z: z)
    network.layer.eval()
    before = torch.get_rng_state()
    check_outputs(network, "mine", inputs, 3)
    assert torch.equal(torch.get_rng_state(), before)
    assert network.calls == 0
    assert network.training
    assert not network.layer.training


def test_what_a_network_raises_is_left_to_its_first_use() -> None:
    check_outputs(Returns(lambda z: z @ z), "mine", ROW, 3)


def test_checking_a_network_whose_modules_have_two_names_changes_nothing() -> None:
    network = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))
    network.add_module("again", torch.nn.Sequential(torch.nn.Linear(3, 4), network[0], network[1]))
    before = {name: (id(value), value.clone()) for name, value in network.state_dict(keep_vars=True).items()}
    check_outputs(network, "mine", ROW, 3)
    for name, value in network.state_dict(keep_vars=True).items():
        assert id(value) == before[name][0]
        assert torch.equal(value, before[name][1])


def normalised(*layers: torch.nn.Module) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 6), *layers, torch.nn.Linear(6, 3))


NEEDING_TWO: dict[str, tuple[Callable[[], torch.nn.Module], Inputs, bool]] = {
    "BatchNorm after a linear layer": (lambda: normalised(torch.nn.BatchNorm1d(6)), ROW, True),
    "without parameters": (lambda: normalised(torch.nn.BatchNorm1d(6, affine=False)), ROW, True),
    "without running statistics": (
        lambda: normalised(torch.nn.BatchNorm1d(6, track_running_stats=False)), ROW, True,
    ),
    "deep inside": (lambda: normalised(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.BatchNorm1d(6))), ROW, True),
    "LayerNorm": (lambda: normalised(torch.nn.LayerNorm(6)), ROW, False),
    "none": (normalised, ROW, False),
    "over an image": (
        lambda: torch.nn.Sequential(torch.nn.BatchNorm2d(1), torch.nn.Flatten(), torch.nn.Linear(9, 3)),
        Inputs(Kind.IMAGE, (1, 3, 3)), False,
    ),
    "over an image of one pixel": (
        lambda: torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Flatten()),
        Inputs(Kind.IMAGE, (1, 3, 3)), True,
    ),
    "never works": (lambda: Returns(lambda z: z @ z), ROW, False),
}  # fmt: skip


@pytest.mark.parametrize("case", NEEDING_TWO)
def test_which_networks_need_two_examples(case: str) -> None:
    make, inputs, expected = NEEDING_TWO[case]
    network = make()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.get_rng_state()
    assert needs_two(network, inputs) is expected
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network.training


def test_a_normalisation_that_stays_as_it_is_needs_no_second_example() -> None:
    network = normalised(torch.nn.BatchNorm1d(6))
    assert not needs_two(network, ROW, [network[1]])


def test_which_batch_sizes_leave_one_example() -> None:
    for examples in range(1, 30):
        for size in range(1, 30):
            sizes = [len(range(start, min(start + size, examples))) for start in range(0, examples, size)]
            assert leaves_one(examples, size) == (1 in sizes)
