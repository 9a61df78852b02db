"""How stored examples become what a network gets: for training, and inside of exported models."""

from __future__ import annotations

from functools import lru_cache

import torch

from ..inputs import Kind
from ..spec import Spec
from .memory_layout import as_images

COLUMN = {
    Kind.IMAGE: (1, -1, 1, 1),
    Kind.SIGNAL: (1, -1, 1),
    Kind.FRAMES: (1, 1, -1),
    Kind.TOKENS: (1, -1),
    Kind.TABLE: (1, -1),
}
"""The shape of `mean` and `std`: one value per channel, feature or column."""

Floats = tuple[float, ...]


def prepared(
    x: torch.Tensor, spec: Spec, mean: torch.Tensor, std: torch.Tensor, fill: torch.Tensor
) -> torch.Tensor:
    """Stored examples (n, ...) as a network gets them. `mean`, `std`, `fill`: those of `statistics_of`."""
    if spec.inputs.kind is Kind.TOKENS:
        return x.long()
    x = as_images(x) if spec.inputs.kind is Kind.IMAGE else x.float()  # in place below: a copy
    x = torch.where(x.isnan(), fill, x) if spec.fill else x
    x = x.sub_(mean).div_(std) if spec.mean else x
    # 0 is the mean of a normalised column.
    return x.nan_to_num_(nan=0.0) if spec.reading.may_be_missing else x


def statistics_of(spec: Spec, device: torch.device) -> tuple[torch.Tensor, ...]:
    """`mean`, `std`, `fill` in the shape of `COLUMN`, times the scale, `target_mean`, `target_std`. Read only."""
    statistics = (spec.mean, spec.std, spec.fill, spec.target_mean, spec.target_std)
    return _statistics(spec.inputs.kind, spec.scale, device, *(tuple(map(float, values)) for values in statistics))


@lru_cache(maxsize=8)
def _statistics(
    kind: Kind, scale: float, device: torch.device, mean: Floats, std: Floats, fill: Floats, *of_y: Floats
) -> tuple[torch.Tensor, ...]:
    """Mean, deviation and fill of x, in the shape of `COLUMN`, and those of y. Clients share them: read only."""
    of_x = (torch.tensor(values, device=device).mul(scale).reshape(COLUMN[kind]) for values in (mean, std, fill))
    return *of_x, *(torch.tensor(values, device=device) for values in of_y)
