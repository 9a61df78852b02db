"""Every network, with examples that it takes, for tests."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.networks_by_name import build
from fedstride.tasks.registry import MODELS


def image(channels: int, height: int, width: int) -> Inputs:
    return Inputs(Kind.IMAGE, (channels, height, width))


def text(length: int, vocabulary: int = 30) -> Inputs:
    return Inputs(Kind.TOKENS, (length,), vocabulary)


GREY, COLOUR = image(1, 28, 28), image(3, 32, 32)
SOUND, SIGNAL, ROW = Inputs(Kind.FRAMES, (9, 4)), Inputs(Kind.SIGNAL, (2, 40)), Inputs(Kind.TABLE, (5,))
VECTORS = [GREY, COLOUR, SOUND, SIGNAL, ROW]
TAKES: dict[str, list[Inputs]] = {  # the last examples of an image network are the smallest ones
    "cnn_mnist": [GREY],
    "cnn_cifar10": [GREY, COLOUR, image(2, 8, 9)],
    "simple_cnn": [GREY, COLOUR, image(2, 18, 19)],
    "cnn2conv3fc": [GREY, COLOUR, image(2, 16, 17)],
    "vgg9": [GREY, COLOUR, image(2, 8, 9)],
    "lenet5": [GREY, COLOUR, image(2, 12, 13)],
    "cnn_emnist": [GREY, image(2, 4, 5)],
    "resnet20": [GREY, COLOUR, image(2, 1, 2)],
    "wrn56_4": [image(3, 4, 4)],
    "resnet18": [image(3, 1, 2), COLOUR],
    "densenet121": [image(3, 29, 30)],
    "vit": [GREY, COLOUR, image(2, 4, 8)],
    "mlp": VECTORS,
    "mlp3": VECTORS,
    "svm": VECTORS,
    "textcnn": [text(12), text(1)],
    "lstm": [text(12), text(1), SOUND],
    "transformer": [text(12), text(1)],
    "cnn1d": [SIGNAL, Inputs(Kind.SIGNAL, (1, 16))],
}
TORCHVISION = {"resnet18", "densenet121"}
CASES = [(name, inputs) for name, taken in TAKES.items() for inputs in taken]
NORMED = ["cnn_cifar10", "resnet20", "wrn56_4", "resnet18", "densenet121", "cnn1d"]


def made(
    name: str, inputs: Inputs | None = None, outputs: int = 10, *, seed: int = 1, **settings: Any
) -> nn.Module:
    if name in TORCHVISION:
        pytest.importorskip("torchvision")
    return build(MODELS.config(name)(**settings), inputs or TAKES[name][0], outputs, seed)


def drawn(inputs: Inputs, count: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    if inputs.kind is Kind.TOKENS:
        return torch.randint(1, inputs.vocabulary, (count, *inputs.shape), generator=generator)
    return torch.rand(count, *inputs.shape, generator=generator)
