"""Images that a camera stored turned, with the way to turn them in EXIF."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from own_files import COLOUR, of_images
from PIL import Image

from fedstride.errors import DataError
from fedstride.tasks import own_files
from fedstride.tasks.datasets import folders
from fedstride.tasks.forms.images import ORIENTATION

SEEN = np.zeros((4, 5, 3), np.uint8)
SEEN[:2, :3, 0], SEEN[2:, 4:, 1], SEEN[0, 4] = 255, 255, (0, 0, 255)
STORED = {
    1: SEEN,
    2: SEEN[:, ::-1],
    3: SEEN[::-1, ::-1],
    4: SEEN[::-1],
    5: SEEN.transpose(1, 0, 2),
    6: np.rot90(SEEN, 1),  # turned by 90 degrees clockwise it is seen
    7: SEEN[::-1, ::-1].transpose(1, 0, 2),
    8: np.rot90(SEEN, -1),
}
"""What a camera stores, by the orientation that it writes (EXIF 2.3, tag 0112)."""


def written(folder: Path, name: str, pixels: np.ndarray, exif: bytes | Image.Exif, **how: object) -> Path:
    for label in range(3):
        (folder / str(label)).mkdir()
    path = folder / "0" / name
    Image.fromarray(np.ascontiguousarray(pixels)).save(path, exif=exif, **how)
    return path


def turned(orientation: int) -> Image.Exif:
    found = Image.Exif()
    found[ORIENTATION] = orientation
    return found


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("a.png", {}),
        ("a.jpg", {"quality": 100, "subsampling": 0}),
        ("webp.png", {"format": "WEBP", "lossless": True}),
        ("tiff.jpg", {"format": "TIFF"}),
    ],
)
def test_all_orientations(tmp_path: Path, name: str, how: dict[str, object], orientation: int) -> None:
    written(tmp_path, name, STORED[orientation], turned(orientation), **how)
    found = own_files.load(tmp_path, of_images(COLOUR)).x[0]
    difference = np.abs(np.moveaxis(found, 0, -1).astype(int) - SEEN)
    assert difference.max() <= (0 if name != "a.jpg" else 90) and difference.mean() < 12


@pytest.mark.parametrize("exif", [b"Exif\0\0garbage", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0", b"x" * 30])
@pytest.mark.parametrize("name", ["a.png", "a.jpg"])
@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_damaged_exif_is_none(tmp_path: Path, name: str, exif: bytes) -> None:
    written(tmp_path, name, SEEN, exif)
    assert own_files.load(tmp_path, of_images(COLOUR)).x.shape == (1, 3, 4, 5)


@pytest.mark.parametrize("number", [0, 9, 153, 65535])
def test_an_orientation_that_does_not_exist(tmp_path: Path, number: int) -> None:
    written(tmp_path, "a.png", SEEN, turned(number))
    np.testing.assert_array_equal(np.moveaxis(own_files.load(tmp_path, of_images(COLOUR)).x[0], 0, -1), SEEN)


def test_the_size_is_that_of_the_image_as_it_is_seen(tmp_path: Path) -> None:
    written(tmp_path, "a.png", SEEN, turned(6))
    with pytest.raises(DataError, match="has size 4x5"):
        own_files.load(tmp_path, of_images(COLOUR))


def test_images_of_published_folders_too(tmp_path: Path) -> None:
    square = np.arange(75, dtype=np.uint8).reshape(5, 5, 3)
    path = written(tmp_path, "a.png", np.rot90(square, 1), turned(6))
    np.testing.assert_array_equal(np.moveaxis(folders.read(path, 5), 0, -1), square)
