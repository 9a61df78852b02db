"""Networks for text: convolutions over tokens, and a transformer. Padding does not influence their results."""

from __future__ import annotations

import torch
from torch import nn

from ...errors import require
from ..inputs import Inputs, Kind
from .settings import TextCNNSettings, TransformerSettings
from .vit import encoder_layers

PADDING = 0


def token_embedding(model: str, inputs: Inputs, width: int) -> nn.Embedding:
    """The embedding of tokens, uniform in [-0.25, 0.25] at first, and zero for padding, which is not trained.

    Raises ConfigError if the examples are not tokens, or if their number of different tokens is not known.
    """
    inputs.require(model, Kind.TOKENS, shape=(None,))
    require(inputs.vocabulary > 1, "the task's vocabulary", inputs.vocabulary, "at least 2, padding included")
    embedding = nn.Embedding(inputs.vocabulary, width, padding_idx=PADDING)
    with torch.no_grad():
        embedding.weight.uniform_(-0.25, 0.25)
        embedding.weight[PADDING] = 0.0
    return embedding


def lengths(tokens: torch.Tensor) -> torch.Tensor:
    """The number of tokens up to the last one that is not padding: (n, length) -> int64 (n,); 0 without any."""
    numbers = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    return ((tokens != PADDING) * numbers).amax(1)


def inside(tokens: torch.Tensor) -> torch.Tensor:
    """Which positions are inside the text: (n, length) -> bool (n, length)."""
    return torch.arange(tokens.shape[1], device=tokens.device) < lengths(tokens)[:, None]


class TextCNN(nn.Module):
    """TextCNN (Kim, 2014; Zhang and Wallace, 2015), for FedLWS: tokens (n, length) -> (n, outputs).

    Convolutions of several sizes over the embedded tokens, 100 filters of each of the sizes 3, 4 and 5, ReLU, the
    maximum over the text, dropout of 0.5, one linear layer. Our decisions: the embedding is not pretrained; each
    filter starts at each token; zeros are added after the last token, so a text may be shorter than a filter; the
    norm of the classifier's weights has no limit. A text without tokens has activations of zero.
    Raises ConfigError if `sizes` is empty.
    """

    def __init__(self, settings: TextCNNSettings, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        sizes = list(settings.sizes)
        require(len(sizes) > 0, "model.sizes", sizes, "a list of at least one size")
        self.embedding = token_embedding("textcnn", inputs, settings.embedding)
        self.convs = nn.ModuleList(nn.Conv1d(settings.embedding, settings.filters, size) for size in sizes)
        self.ends = [size - 1 for size in sizes]
        self.drop = nn.Dropout(settings.dropout)
        self.fc = nn.Linear(settings.filters * len(sizes), outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        text = inside(x)[:, None]  # n, 1, length
        x = self.embedding(x).transpose(1, 2) * text  # n, embedding, length
        pooled = [
            (conv(nn.functional.pad(x, (0, end))).relu() * text).amax(2)  # after ReLU, zero is the smallest value
            for conv, end in zip(self.convs, self.ends, strict=True)
        ]
        logits: torch.Tensor = self.fc(self.drop(torch.cat(pooled, 1)))
        return logits


class TextTransformer(nn.Module):
    """A small transformer for text: tokens (n, length) -> (n, outputs). Our own; no paper has it.

    Embeddings of tokens and of positions, encoder layers with normalisation first, GELU and 4 `width` hidden
    units, a normalisation, the mean over the positions of the text, one linear layer. It takes texts up to the
    task's length. Raises ConfigError if `width` is not a multiple of `heads`.
    """

    def __init__(self, settings: TransformerSettings, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        self.embedding = token_embedding("transformer", inputs, settings.width)
        self.positions = nn.Parameter(0.02 * torch.randn(1, inputs.shape[0], settings.width))
        self.drop = nn.Dropout(settings.dropout)
        self.layers = encoder_layers(
            settings.depth, settings.width, settings.heads, 4 * settings.width, settings.dropout
        )
        self.norm = nn.LayerNorm(settings.width)
        self.head = nn.Linear(settings.width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        text = inside(x)
        outside = ~text
        outside[:, 0] = False  # attention over no position at all is not a number
        x = self.drop(self.embedding(x) + self.positions[:, : x.shape[1]])  # n, length, width
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=outside)
        x = self.norm(x).masked_fill(~text[:, :, None], 0.0).sum(1) / text.sum(1, keepdim=True).clamp(min=1)
        logits: torch.Tensor = self.head(x)
        return logits
