"""CINIC-10 and Tiny-ImageNet: folders of images, as published."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...errors import DataError
from ..cache import cached
from ..data import Data
from ..files import digest, files_in
from ..forms.images import UPRIGHT, upright
from ..spec import Spec
from .files import Published, Root, root_folder

CINIC10 = Published("cinic10", "CINIC-10", "https://github.com/BayesWatch/cinic-10")
TINY = Published("tiny_imagenet", "tiny-imagenet-200", "http://cs231n.stanford.edu/tiny-imagenet-200.zip")

CINIC10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)

Labelled = list[tuple[Path, int]]
"""Image files with their class numbers."""


def cinic10(*, root: Root = None) -> Data:
    """CINIC-10 (Darlow et al. 2018): 90,000 training and 90,000 test images, 32 x 32, 10 classes.

    Training examples are those of the folder `train`, test examples those of `test`; `valid` is not used.
    """
    folder = root_folder(root, CINIC10.task) / CINIC10.folder
    CINIC10.require([folder / part / name for part in ("train", "test") for name in CINIC10_CLASSES])
    files = [
        [(file, label) for label, name in enumerate(CINIC10_CLASSES) for file in files_in(folder / part / name)]
        for part in ("train", "test")
    ]
    mean, std = (0.4789, 0.4723, 0.4305), (0.2421, 0.2383, 0.2587)
    return _data(CINIC10, folder, files[0], files[1], 32, 10, (mean, std), 90_000)


def tiny_imagenet(*, root: Root = None) -> Data:
    """Tiny-ImageNet (Stanford CS231n): 100,000 training images and 10,000 for testing, 64 x 64, 200 classes.

    Test examples are those of the folder `val`: the labels of the published test images are not public. Classes
    are numbered in the order of `wnids.txt`.
    """
    folder = root_folder(root, TINY.task) / TINY.folder
    TINY.require([folder / "wnids.txt", folder / "train", folder / "val" / "val_annotations.txt"])
    names = (folder / "wnids.txt").read_text().split()
    numbers = {name: label for label, name in enumerate(names)}
    if len(numbers) != 200:
        raise DataError(f"{folder / 'wnids.txt'} has {len(numbers)} classes, but Tiny-ImageNet has 200")
    TINY.require([folder / "train" / name / "images" for name in names])
    train = [(file, numbers[name]) for name in names for file in files_in(folder / "train" / name / "images")]
    mean, std = (0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)
    return _data(TINY, folder, train, _validation(folder / "val", numbers), 64, 200, (mean, std), 100_000)


def _validation(folder: Path, numbers: dict[str, int]) -> Labelled:
    """The images of the folder `val` with the classes that its annotations name."""
    images = []
    for number, line in enumerate((folder / "val_annotations.txt").read_text().splitlines(), 1):
        fields = line.split("\t")
        if len(fields) < 2 or fields[1] not in numbers:
            raise DataError(
                f"{folder / 'val_annotations.txt'}, line {number}: {line[:80]!r} is not a file name, a tab and a "
                "class of wnids.txt"
            )
        images.append((folder / "images" / fields[0], numbers[fields[1]]))
    return images


def _data(
    published: Published,
    folder: Path,
    train: Labelled,
    test: Labelled,
    side: int,
    classes: int,
    normalisation: tuple[tuple[float, ...], tuple[float, ...]],
    full_size: int,
) -> Data:
    """The images of these files; they are read once per machine."""
    for files, what in ((train, "training"), (test, "test")):
        if not files:
            raise DataError(f"{folder} contains no {what} images")

    def make() -> dict[str, np.ndarray]:
        arrays = {}
        for prefix, files in (("train", train), ("test", test)):
            arrays[f"{prefix}_x"] = np.stack([read(file, side) for file, _ in files])
            arrays[f"{prefix}_y"] = np.array([label for _, label in files], dtype=np.int64)
        return arrays

    key = {"folder": str(folder), "files": digest([*train, *test], folder), "turned": UPRIGHT}
    spec = Spec.images((3, side, side), classes, *normalisation)
    return Data(spec, **cached(published.task, key, make), full_size=full_size)


def read(file: Path, side: int) -> np.ndarray:
    """An image as uint8 (3, side, side). Raises DataError, naming the file, for another size or a damaged file."""
    from PIL import Image  # imported here, because most processes read the arrays from the cache

    try:
        with Image.open(file) as stored:
            image = upright(stored)
            if image.size != (side, side):
                raise DataError(f"{file} has size {image.width}x{image.height}, but must have {side}x{side}")
            return np.moveaxis(np.asarray(image.convert("RGB")), -1, 0)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{file} is not a readable image: {next(iter(str(error).splitlines()), error)}") from error
