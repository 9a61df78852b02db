"""Normalisations by name: batch, group or layer."""

from __future__ import annotations

import torch
from torch import nn

from ...errors import require
from .settings import NormSettings


class BatchNorm1d(nn.BatchNorm1d):
    """torch's BatchNorm1d, except that it trains on a single value per channel too.

    One value has no variance, and torch raises ValueError. Here such a batch is normalised with the running
    statistics, which it does not change. This happens in a batch of one example after the last pooling.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 (torch's name)
        """The normalised values, of the same shape."""
        if self.training and input.numel() == self.num_features:
            return _with_running_statistics(self, input)
        return super().forward(input)


class BatchNorm2d(nn.BatchNorm2d):
    """torch's BatchNorm2d, except that it trains on a single value per channel too, as `BatchNorm1d`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 (torch's name)
        """The normalised values, of the same shape."""
        if self.training and input.numel() == self.num_features:
            return _with_running_statistics(self, input)
        return super().forward(input)


def _with_running_statistics(norm: nn.BatchNorm1d | nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
    return nn.functional.batch_norm(
        x, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=False, eps=norm.eps
    )


def norm1d(settings: NormSettings, channels: int) -> nn.Module:
    """The normalisation for values of shape (n, channels, positions).

    Raises ConfigError if norm=group and the channels are not a multiple of the groups.
    """
    return BatchNorm1d(channels) if settings.norm == "batch" else _group_norm(settings, channels)


def norm2d(settings: NormSettings, channels: int) -> nn.Module:
    """The normalisation for values of shape (n, channels, height, width).

    Raises ConfigError if norm=group and the channels are not a multiple of the groups.
    """
    return BatchNorm2d(channels) if settings.norm == "batch" else _group_norm(settings, channels)


def _group_norm(settings: NormSettings, channels: int) -> nn.Module:
    groups = 1 if settings.norm == "layer" else settings.groups
    require(
        channels % groups == 0,
        "model.groups",
        groups,
        f"a divisor of the number of channels of each layer, and one layer has {channels}",
    )
    return nn.GroupNorm(groups, channels)
