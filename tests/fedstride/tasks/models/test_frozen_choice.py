"""Which arrays of a network are trained and sent, and which are frozen."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn

from fedstride.errors import ConfigError
from fedstride.tasks.models.frozen_choice import fixed_norms, freeze_, split


def network() -> nn.Module:
    """A body with a BatchNorm, a head with a normalisation that has no parameters of its own, dropout."""
    body = nn.Sequential(OrderedDict(conv=nn.Conv2d(1, 2, 3), bn=nn.BatchNorm2d(2), flat=nn.Flatten()))
    head = nn.Sequential(OrderedDict(norm=nn.BatchNorm1d(8, affine=False), drop=nn.Dropout(), fc=nn.Linear(8, 3)))
    return nn.Sequential(OrderedDict(body=body, head=head))


STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
CONV = ["body.conv.weight", "body.conv.bias"]
BN = ["body.bn.weight", "body.bn.bias", *(f"body.bn.{name}" for name in STATISTICS)]
NORM = [f"head.norm.{name}" for name in STATISTICS]
FC = ["head.fc.weight", "head.fc.bias"]


@pytest.mark.parametrize(
    ("patterns", "sent"),
    [
        (None, [*CONV, *BN, *NORM, *FC]),
        (["*"], [*CONV, *BN, *NORM, *FC]),
        (["head.*"], [*NORM, *FC]),
        (["head"], [*NORM, *FC]),
        (["head.fc"], FC),
        (["head.fc.bias"], ["head.fc.bias"]),
        (["*.bias"], ["body.conv.bias", "body.bn.weight", "body.bn.bias", *BN[2:], "head.fc.bias"]),
        (["body.bn.weight", "body.conv"], [*CONV, "body.bn.weight", *BN[2:]]),
    ],
)
def test_the_arrays_that_patterns_name(patterns: list[str] | None, sent: list[str]) -> None:
    found = split(network(), patterns)
    if patterns == ["*.bias"]:  # the weight of the BatchNorm is frozen, its statistics are not
        sent = [name for name in sent if name != "body.bn.weight"]
    assert list(found.sent) == sent
    assert list(found.frozen) == [name for name in network().state_dict() if name not in sent]


def test_a_tied_parameter_has_several_names() -> None:
    model = nn.Sequential(OrderedDict(first=nn.Linear(3, 3), last=nn.Linear(3, 3)))
    model.get_submodule("last").weight = model.get_submodule("first").weight
    assert split(model, ["last.weight"]).sent == ("first.weight",)
    assert split(model, ["first.*"]).frozen == ("last.bias",)


@pytest.mark.parametrize(
    ("patterns", "words"),
    [
        (
            ["head.*", "nix.*"],
            "the pattern 'nix.*' matches no parameter of the model; the parameters are: 'body.conv",
        ),
        (["Head.*"], "matches no parameter"),
        (["*.running_mean"], "matches no parameter"),
        ([""], "matches no parameter"),
        ([], "nothing is left to train"),
    ],
)
def test_patterns_that_name_nothing(patterns: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split(network(), patterns)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"train = {patterns!r} is not allowed: ")
    assert "\n" not in str(caught.value)


def test_a_text_is_not_a_list_of_patterns() -> None:
    with pytest.raises(ConfigError, match="must be a list of patterns"):
        split(network(), "head")


def test_parameters_that_the_network_itself_does_not_train() -> None:
    model = network()
    model.get_submodule("head.fc").requires_grad_(False)
    with pytest.raises(ConfigError, match="nothing is left to train"):
        split(model, ["head.fc"])
    assert split(model, ["head.fc", "body.conv"]).sent == (*CONV, *FC)


def test_freezing_keeps_gradients_and_statistics_in_place() -> None:
    model = network()
    parts = split(model, ["head.*"])
    freeze_(model, parts)
    assert [name for name, p in model.named_parameters() if p.requires_grad] == FC
    assert list(fixed_norms(model, parts)) == [model.get_submodule("body.bn")]
    assert not list(fixed_norms(model, split(model, None)))
    assert list(fixed_norms(model, split(model, ["head.fc"]))) == [
        model.get_submodule("body.bn"),
        model.get_submodule("head.norm"),
    ]


def test_only_fixed_normalisations_are_in_eval_mode() -> None:
    model = network()
    parts = split(model, ["head.*"])
    model.train()
    for module in fixed_norms(model, parts):
        module.training = False
    before = {name: array.clone() for name, array in model.state_dict().items()}
    model(torch.randn(5, 1, 4, 4))
    moved = {name for name, array in model.state_dict().items() if not torch.equal(array, before[name])}
    assert moved == set(NORM)
    assert model.get_submodule("head.drop").training
