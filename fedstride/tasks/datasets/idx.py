"""MNIST, Fashion-MNIST and EMNIST: IDX files, packed with gzip or not."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from ...errors import DataError
from ..cache import cached
from ..data import Data
from ..files import signature
from ..spec import Spec
from .files import Download, Published, Root, check_md5

MNIST = Published("mnist", "MNIST/raw", "https://yann.lecun.com/exdb/mnist", "MNIST")
FASHION = Published(
    "fashion_mnist", "FashionMNIST/raw", "https://github.com/zalandoresearch/fashion-mnist", "FashionMNIST"
)
EMNIST = Published(
    "emnist", "EMNIST/raw", "https://www.nist.gov/itl/products-and-services/emnist-dataset", "EMNIST"
)

PARTS = (("train", "images", 3), ("train", "labels", 1), ("t10k", "images", 3), ("t10k", "labels", 1))
"""Set, kind and number of dimensions of the four files."""

CHECKSUMS = {  # MD5 of the packed files, as published
    "mnist": {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    "fashion_mnist": {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
}


def mnist(*, root: Root = None, download: Download = False) -> Data:
    """MNIST (LeCun et al. 1998): 60,000 and 10,000 grey images of digits, 28 x 28."""
    names = [f"{part}-{kind}-idx{dimensions}-ubyte" for part, kind, dimensions in PARTS]
    return _data(MNIST, names, root, download, classes=10, mean=0.1307, std=0.3081, full_size=60_000)


def fashion_mnist(*, root: Root = None, download: Download = False) -> Data:
    """Fashion-MNIST (Xiao et al. 2017): 60,000 and 10,000 grey images of clothes, 28 x 28."""
    names = [f"{part}-{kind}-idx{dimensions}-ubyte" for part, kind, dimensions in PARTS]
    return _data(FASHION, names, root, download, classes=10, mean=0.2860, std=0.3530, full_size=60_000)


def emnist(*, root: Root = None, download: Download = False) -> Data:
    """EMNIST byclass (Cohen et al. 2017): 697,932 and 116,323 grey images of digits and letters, 62 classes.

    Classes 0 to 9 are the digits, then A to Z, then a to z. The published images are transposed; here they are
    upright, as MNIST's.
    """
    names = [
        f"emnist-byclass-{part.replace('t10k', 'test')}-{kind}-idx{dimensions}-ubyte"
        for part, kind, dimensions in PARTS
    ]
    return _data(
        EMNIST, names, root, download, classes=62, mean=0.1736, std=0.3317, full_size=697_932, transposed=True
    )


def _data(
    published: Published,
    names: list[str],
    root: str | None,
    download: bool,
    *,
    classes: int,
    mean: float,
    std: float,
    full_size: int,
    transposed: bool = False,
) -> Data:
    paths = published.locate(root, names, download)

    def make() -> dict[str, np.ndarray]:
        checksums = CHECKSUMS.get(published.task, {})
        for path in paths:
            if path.name in checksums:
                check_md5(path, checksums[path.name])
        train_x, train_y, test_x, test_y = (
            read(path, dimensions) for path, (_, _, dimensions) in zip(paths, PARTS, strict=True)
        )
        for (x, y), (images, labels) in (((train_x, train_y), paths[:2]), ((test_x, test_y), paths[2:])):
            if len(x) != len(y):
                raise DataError(f"{images} has {len(x)} images, but {labels} has {len(y)} labels")
            if len(y) and int(y.max()) >= classes:
                raise DataError(
                    f"{labels}: label {y.max()} is not allowed: {published.task} has {classes} classes"
                )
        if transposed:
            train_x, test_x = train_x.swapaxes(1, 2), test_x.swapaxes(1, 2)
        return {
            "train_x": np.ascontiguousarray(train_x[:, None]),
            "train_y": train_y.astype(np.int64),
            "test_x": np.ascontiguousarray(test_x[:, None]),
            "test_y": test_y.astype(np.int64),
        }

    arrays = cached(published.task, {"files": signature(paths)}, make)
    spec = Spec.images((1, 28, 28), classes, (mean,), (std,))
    return Data(spec, **arrays, full_size=full_size)


def read(path: Path, dimensions: int) -> np.ndarray:
    """The bytes of an IDX file, as uint8 with this number of dimensions. Raises DataError for any other file."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged or cannot be read: {error}; delete it and get it again") from error
    start = 4 + 4 * dimensions
    shape = np.frombuffer(content[4:start], ">u4") if len(content) >= start else ()
    whole = content[:4] == bytes((0, 0, 8, dimensions)) and len(content) == start + np.prod(shape, dtype=np.int64)
    if not whole:
        raise DataError(
            f"{path} is not a complete IDX file of bytes with {dimensions} dimensions (it has {len(content)} "
            "bytes); delete it and get it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(tuple(int(n) for n in shape))
