"""The recurrent network, for text and for sound."""

from __future__ import annotations

import torch
from torch import nn

from ..inputs import Inputs, Kind
from .settings import LSTMSettings
from .text import lengths, token_embedding


class LSTM(nn.Module):
    """An LSTM for 2D-LRD: tokens (n, length) or frames (n, frames, features) -> (n, outputs).

    The linear layer takes the hidden state of the last layer after the last token of the text, or its mean over
    all frames. Padding that follows a text has no influence. 2D-LRD uses an LSTM for KWS and AG News and gives no
    sizes. Our defaults are one layer of 128 units, and an embedding of 100 values for tokens; no dropout.
    """

    def __init__(self, settings: LSTMSettings, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        inputs.require("lstm", Kind.TOKENS, Kind.FRAMES)
        self.embedding: nn.Embedding | None = None
        if inputs.kind is Kind.TOKENS:
            self.embedding = token_embedding("lstm", inputs, settings.embedding)
            features = settings.embedding
        else:
            inputs.require("lstm", Kind.FRAMES, shape=(None, None))
            features = inputs.shape[1]
        self.lstm = nn.LSTM(features, settings.width, settings.layers, batch_first=True)
        self.fc = nn.Linear(settings.width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        if self.embedding is None:
            states, _ = self.lstm(x)
            # Recordings end with silence, after which the last state has forgotten the word.
            summary = states.mean(1)
        else:
            states, _ = self.lstm(self.embedding(x))
            # The state after a token does not depend on what follows it.
            summary = states[torch.arange(x.shape[0], device=x.device), (lengths(x) - 1).clamp(min=0)]
        logits: torch.Tensor = self.fc(summary)
        return logits
