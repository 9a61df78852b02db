"""Data sets as arrays. Images are kept as uint8 in memory, with one copy for all clients of a process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..parts import Choice
from .divisible import Divisible
from .inputs import Inputs, Kind
from .parts import TASKS


@dataclass(frozen=True)
class Data:
    """The training and test examples of a task.

    Images are uint8 of shape (n, channels, height, width), labels int64 of shape (n,). `mean` and `std` have one
    value for each channel, for images scaled to [0, 1]; batches are normalised with them on the device. `groups`
    is the group of each training example, such as its speaker or domain, int64 of shape (n,), or None.
    """

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    full_size: int | None = None  # the number of training examples as published; the data may be a subset
    groups: np.ndarray | None = None

    @property
    def divisible(self) -> Divisible:
        """What a partition needs: classes and groups of the training examples.

        A task without classes (`classes` is 0, or `train_y` is not one whole number for each example) has none.
        """
        has_classes = self.classes > 0 and self.train_y.ndim == 1 and self.train_y.dtype.kind in "iu"
        return Divisible(len(self.train_x), self.train_y if has_classes else None, self.groups)

    @property
    def inputs(self) -> Inputs:
        """What an example is for a network."""
        return Inputs(Kind.IMAGE, tuple(self.train_x.shape[1:]))

    @property
    def subset(self) -> str:
        """How many of the published examples these are, in words; empty if all."""
        if self.full_size is None or len(self.train_y) >= self.full_size:
            return ""
        return f"a subset: {len(self.train_y):,} of {self.full_size:,} training examples"


def load(config: Choice) -> Data:
    """The data set that a configuration chooses. It is prepared once per machine, then memory-mapped.

    Raises ConfigError for an unknown name, DataError if the data are missing or cannot be prepared.
    """
    return _load(config.name, tuple((key, getattr(config, key)) for key in TASKS.fields(config.name)))


@lru_cache(maxsize=4)
def _load(name: str, settings: tuple[tuple[str, Any], ...]) -> Data:
    data: Data = TASKS.make(TASKS.config(name)(**dict(settings)))
    return data
