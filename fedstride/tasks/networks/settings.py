"""The settings of the networks. The table of models imports this module, so it does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from ...settings import Setting

MOST_UNITS = 65_536
"""Units, filters or heads of a layer, and its kernel sizes: far below what blocks a machine at once."""
MOST_LAYERS = 1_000


@dataclass
class MLPSettings:
    """The setting of a perceptron."""

    width: Annotated[int, Setting("units of a hidden layer", least=1, most=MOST_UNITS)] = 200


@dataclass
class NormSettings:
    """The normalisation of a network."""

    norm: Annotated[
        str,
        Setting(
            "normalisation: batch, group (GroupNorm), or layer (GroupNorm with one group)",
            options=("batch", "group", "layer"),
        ),
    ] = "batch"
    groups: Annotated[int, Setting("groups of channels with norm=group", least=1, most=MOST_UNITS)] = 8


@dataclass
class CNN1dSettings(NormSettings):
    """The settings of the network for signals."""

    width: Annotated[
        int,
        Setting(
            "filters of the first convolution; the others have 2 and 4 times as many", least=1, most=MOST_UNITS
        ),
    ] = 32


@dataclass
class ViTSettings:
    """The settings of the Vision Transformer."""

    patch: Annotated[int, Setting("side of a patch, in pixels", least=1, most=MOST_UNITS)] = 4
    width: Annotated[int, Setting("values of a patch's vector", least=1, most=MOST_UNITS)] = 512
    depth: Annotated[int, Setting("encoder layers", least=1, most=MOST_LAYERS)] = 6
    heads: Annotated[int, Setting("attention heads; width is a multiple of it", least=1, most=MOST_UNITS)] = 8
    mlp_width: Annotated[int, Setting("hidden units of an encoder layer", least=1, most=MOST_UNITS)] = 512
    dropout: Annotated[float, Setting("share of values that training sets to zero", least=0, below=1)] = 0.1


@dataclass
class TextCNNSettings:
    """The settings of the convolutional network for text."""

    embedding: Annotated[int, Setting("values of a token's vector", least=1, most=MOST_UNITS)] = 300
    filters: Annotated[int, Setting("filters of each size", least=1, most=MOST_UNITS)] = 100
    sizes: Annotated[
        list[int], Setting("sizes of the filters, in tokens; at least one", least=1, most=MOST_UNITS)
    ] = field(default_factory=lambda: [3, 4, 5])
    dropout: Annotated[float, Setting("share of values that training sets to zero", least=0, below=1)] = 0.5


@dataclass
class LSTMSettings:
    """The settings of the recurrent network."""

    width: Annotated[int, Setting("values of the hidden state", least=1, most=MOST_UNITS)] = 128
    layers: Annotated[int, Setting("LSTM layers, one above the other", least=1, most=MOST_LAYERS)] = 1
    embedding: Annotated[
        int, Setting("values of a token's vector; not used with frames", least=1, most=MOST_UNITS)
    ] = 100


@dataclass
class TransformerSettings:
    """The settings of the transformer for text."""

    width: Annotated[int, Setting("values of a token's vector", least=1, most=MOST_UNITS)] = 128
    depth: Annotated[int, Setting("encoder layers", least=1, most=MOST_LAYERS)] = 2
    heads: Annotated[int, Setting("attention heads; width is a multiple of it", least=1, most=MOST_UNITS)] = 4
    dropout: Annotated[float, Setting("share of values that training sets to zero", least=0, below=1)] = 0.1
