"""Networks of torchvision. torchvision is imported when such a network is built."""

from __future__ import annotations

from typing import Any

from torch import nn

from ...errors import ConfigError
from ..inputs import Inputs, Kind
from .norms import norm2d
from .settings import NormSettings
from .windows import HALVE, Window, positions

STEM = [Window(7, 2, 3), Window(3, 2, 1)]
"""The first convolution and pooling, which divide each side by four."""


def resnet18(settings: NormSettings, inputs: Inputs, outputs: int) -> nn.Module:
    """torchvision's ResNet18 (He et al., 2016), for FedLWS: images (n, 3, height, width) -> (n, outputs).

    11,689,512 parameters with 1000 outputs, 11,279,112 with 200 (Tiny-ImageNet). Layers and initial weights are
    torchvision's, with the first convolution and pooling for ImageNet. Images of any size with three channels.
    Raises ConfigError for other examples, and if torchvision cannot be imported.
    """
    inputs.require("resnet18", Kind.IMAGE, shape=(3, None, None))
    return _made("resnet18", settings, outputs)


def densenet121(settings: NormSettings, inputs: Inputs, outputs: int) -> nn.Module:
    """torchvision's DenseNet121 (Huang et al., 2017), for FedLWS: images (n, 3, height, width) -> (n, outputs).

    7,978,856 parameters with 1000 outputs, 6,964,106 with 10. Layers and initial weights are torchvision's, with
    the first convolution and pooling for ImageNet. Sides of at least 29.
    Raises ConfigError for other examples, and if torchvision cannot be imported.
    """
    inputs.require("densenet121", Kind.IMAGE, shape=(3, None, None))
    positions("densenet121", inputs, [*STEM, HALVE, HALVE, HALVE])
    return _made("densenet121", settings, outputs)


def _made(name: str, settings: NormSettings, outputs: int) -> nn.Module:
    """torchvision's network of this name, with our normalisations in place of its BatchNorm."""
    network: nn.Module = getattr(_torchvision_models(name), name)(num_classes=outputs)
    for parent in list(network.modules()):
        for child_name, child in list(parent.named_children()):
            if isinstance(child, nn.BatchNorm2d):
                setattr(parent, child_name, norm2d(settings, child.num_features))
    return network


def _torchvision_models(name: str) -> Any:
    try:
        from torchvision import models
    except (ImportError, RuntimeError) as error:  # RuntimeError: made for another torch
        raise ConfigError(
            f"model = {name!r} needs torchvision, which cannot be imported ({error}); install the torchvision "
            "that fits the installed torch (pip install torchvision), or choose another model"
        ) from error
    return models
