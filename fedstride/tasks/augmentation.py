"""Random changes of a prepared batch of training images, on its device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch.nn import functional

from .. import seeds
from ..errors import ConfigError
from .images import require_images
from .spec import Spec

PADDING = 4
"""Pixels on each side for `crop`, as in He et al. (CVPR 2016) for CIFAR. They are zeros of the prepared batch."""


def check_augmentation(spec: Spec, names: Sequence[str] | None) -> None:
    """Raise ConfigError for an unknown name, for one that is given twice, and if the examples are not images."""
    if not names:
        return
    if not set(names) <= set(_CHANGES) or len(set(names)) < len(names):
        raise ConfigError(
            f"task.augmentation = {list(names)} is not allowed: it must be a list of different names out of "
            f"{', '.join(_CHANGES)}, as in task.augmentation=[crop,flip]"
        )
    require_images(spec, "augmentation", list(names))


def augmented(
    x: torch.Tensor, names: Sequence[str], *, seed: int, server_round: int, client: int, step: int
) -> torch.Tensor:
    """The images (n, channels, height, width) after the changes with these names, in this order; a new tensor.

    The draws depend only on (seed, round, client, step), so every engine and every resumed run has the same.
    `flip`: each image is mirrored from left to right with probability 1/2. `crop`: each image is moved by up to 4
    pixels in both directions; zeros come in.
    """
    rng = seeds.generator(seed, f"augmentation {step}", server_round, client)
    for name in names:
        x = _CHANGES[name](x, rng)
    return x


def _flip(x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    mirrored = torch.from_numpy(rng.random(len(x)) < 0.5).to(x.device)
    return torch.where(mirrored[:, None, None, None], x.flip(-1), x)


def _crop(x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    count, channels, height, width = x.shape
    offsets = torch.from_numpy(rng.integers(0, 2 * PADDING + 1, (2, count))).to(x.device)
    rows = offsets[0][:, None] + torch.arange(height, device=x.device)
    columns = offsets[1][:, None] + torch.arange(width, device=x.device)
    images = torch.arange(count, device=x.device)
    padded = functional.pad(x, (PADDING,) * 4)
    all_channels = torch.arange(channels, device=x.device)[None, :, None, None]
    return padded[images[:, None, None, None], all_channels, rows[:, None, :, None], columns[:, None, None, :]]


_CHANGES: Mapping[str, Callable[[torch.Tensor, np.random.Generator], torch.Tensor]] = {
    "flip": _flip,
    "crop": _crop,
}
