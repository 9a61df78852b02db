"""Random changes of a prepared batch of training images, on its device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional

from ... import seeds
from ...errors import ConfigError
from ..spec import Spec
from .images import require_images

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
    return changed(x, names, drawn(len(x), names, seed=seed, server_round=server_round, client=client, step=step))


def drawn(
    count: int, names: Sequence[str], *, seed: int, server_round: int, client: int, step: int
) -> list[np.ndarray]:
    """What is drawn for `count` images of one client: an array for each name, whose last axis is the images."""
    rng = seeds.generator(seed, f"augmentation {step}", server_round, client)
    return [_CHANGES[name].draw(rng, count) for name in names]


def changed(x: torch.Tensor, names: Sequence[str], draws: Sequence[np.ndarray]) -> torch.Tensor:
    """The images after the changes with these names and draws; a new tensor."""
    for name, draw in zip(names, draws, strict=True):
        x = _CHANGES[name].apply(x, torch.from_numpy(draw).to(x.device))
    return x


def _draw_flip(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.random(count) < 0.5


def _flip(x: torch.Tensor, mirrored: torch.Tensor) -> torch.Tensor:
    return torch.where(mirrored[:, None, None, None], x.flip(-1), x)


def _draw_crop(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.integers(0, 2 * PADDING + 1, (2, count))


def _crop(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    count, channels, height, width = x.shape
    rows = offsets[0][:, None] + torch.arange(height, device=x.device)
    columns = offsets[1][:, None] + torch.arange(width, device=x.device)
    images = torch.arange(count, device=x.device)
    padded = functional.pad(x, (PADDING,) * 4)
    all_channels = torch.arange(channels, device=x.device)[None, :, None, None]
    return padded[images[:, None, None, None], all_channels, rows[:, None, :, None], columns[:, None, None, :]]


class _Change(NamedTuple):
    """How a change is drawn, and how it is applied."""

    draw: Callable[[np.random.Generator, int], np.ndarray]
    apply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


_CHANGES: Mapping[str, _Change] = {
    "flip": _Change(_draw_flip, _flip),
    "crop": _Change(_draw_crop, _crop),
}
