"""CIFAR-10 and CIFAR-100: pickled batches, as published. A subset in the same layout is read as one."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ..cache import cached
from ..data import Data
from ..files import signature
from ..spec import Spec
from .files import Download, Published, Root, check_md5

SOURCE = "https://www.cs.toronto.edu/~kriz/cifar.html"
CIFAR10 = Published("cifar10", "cifar-10-batches-py", SOURCE, "CIFAR10")
CIFAR100 = Published("cifar100", "cifar-100-python", SOURCE, "CIFAR100")

TRAIN10 = {  # MD5 as published; 10,000 images each
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
}
TEST10 = {"test_batch": "40351d587109b95175f43aff81a1287e"}
TRAIN100 = {"train": "16019d7e3df5f24257cddd939b257f8d"}  # 50,000 images
TEST100 = {"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"}  # 10,000 images

ALLOWED = {  # what the pickles of the published files consist of; nothing else is loaded
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def cifar10(*, root: Root = None, download: Download = False) -> Data:
    """CIFAR-10 (Krizhevsky 2009): 50,000 and 10,000 color images, 32 x 32, 10 classes."""
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    return _data(CIFAR10, (TRAIN10, TEST10), "labels", 10, (mean, std), root, download)


def cifar100(*, root: Root = None, download: Download = False) -> Data:
    """CIFAR-100 (Krizhevsky 2009): 50,000 and 10,000 color images, 32 x 32, 100 classes (the fine labels)."""
    mean, std = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
    return _data(CIFAR100, (TRAIN100, TEST100), "fine_labels", 100, (mean, std), root, download)


def _data(
    published: Published,
    checksums: tuple[Mapping[str, str], Mapping[str, str]],
    labels: str,
    classes: int,
    normalisation: tuple[tuple[float, ...], tuple[float, ...]],
    root: str | None,
    download: bool,
) -> Data:
    train, test = (published.locate(root, names, download) for names in checksums)
    whole = {name: 50_000 // len(checksums[0]) for name in checksums[0]} | dict.fromkeys(checksums[1], 10_000)

    def make() -> dict[str, np.ndarray]:
        arrays = {}
        for prefix, paths, known in (("train", train, checksums[0]), ("test", test, checksums[1])):
            batches = [read(path, labels, classes) for path in paths]
            for path, (_, y) in zip(paths, batches, strict=True):
                if len(y) >= whole[path.name]:  # a smaller file is a subset, which has no published checksum
                    check_md5(path, known[path.name])
            arrays[f"{prefix}_x"] = np.concatenate([x for x, _ in batches])
            arrays[f"{prefix}_y"] = np.concatenate([y for _, y in batches])
        return arrays

    arrays = cached(published.task, {"files": signature([*train, *test])}, make)
    return Data(Spec.images((3, 32, 32), classes, *normalisation), **arrays, full_size=50_000)


def read(path: Path, labels: str, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 (n, 3, 32, 32) and labels int64 (n,) of one batch. Raises DataError for any other file."""
    try:
        batch = _Unpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
        x, y = np.asarray(batch["data"]), np.asarray(batch[labels])
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # a pickle's bytes decide what is raised
        raise DataError(
            f"{path} is not a complete CIFAR batch ({type(error).__name__}: {error}); delete it and get it again"
        ) from error
    if x.dtype != np.uint8 or x.ndim != 2 or x.shape[1:] != (3072,) or y.shape != (len(x),) or y.dtype.kind != "i":
        raise DataError(
            f"{path} has data of dtype {x.dtype} and shape {x.shape} and {labels} of shape {y.shape}; "
            "it must have uint8 (n, 3072) and n whole numbers"
        )
    outside = y[(y < 0) | (y >= classes)]
    if len(outside):
        raise DataError(f"{path}: label {outside[0]} is not allowed: the task has classes 0 to {classes - 1}")
    return x.reshape(-1, 3, 32, 32), y.astype(np.int64)


class _Unpickler(pickle.Unpickler):
    """Loads arrays, lists, texts and numbers only: a pickle can otherwise run any code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in ALLOWED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it contains {module}.{name}, which no published batch contains")
