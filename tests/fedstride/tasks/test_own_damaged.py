"""A node's files with damaged bytes: they are read, or the error is one line; never anything else."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from own_files import GREY, SPECS, class_folder, images, npz, of_images, of_table, of_texts, wav, written

from fedstride.errors import FedstrideError
from fedstride.tasks import own_files
from fedstride.tasks.inputs import Kind
from fedstride.tasks.spec import Spec

TRIES = 60
TEXT = 'age,mass,stage,label,note\n40,70.5,I,0,"a, b"\n41,,II,1,\n'


@pytest.fixture(autouse=True)
def _fresh(own_cache: Path) -> None:
    """Every test has its own empty cache."""


def an_npz(root: Path) -> tuple[Path, Path, Spec]:
    path = npz(root / "mine.npz", images=images(GREY), labels=np.zeros(6, int))
    return path, path, of_images()


def a_png(root: Path) -> tuple[Path, Path, Spec]:
    folder = class_folder(root, {"a": 1, "b": 0, "c": 0})
    return folder / "a/0.png", folder, of_images()


def a_jpeg(root: Path) -> tuple[Path, Path, Spec]:
    folder = class_folder(root, {"a": 1, "b": 0, "c": 0}, suffix=".jpg")
    return folder / "a/0.jpg", folder, of_images()


def a_wav(root: Path) -> tuple[Path, Path, Spec]:
    for name in "bc":
        (root / name).mkdir(parents=True)
    return wav(root / "a/0.wav", range(400)), root, SPECS[Kind.FRAMES]


def a_text(root: Path) -> tuple[Path, Path, Spec]:
    (root / "b").mkdir(parents=True)
    return written(root / "a/0.txt", "naïve"), root, of_texts()


def a_csv(root: Path) -> tuple[Path, Path, Spec]:
    path = written(root / "mine.csv", TEXT)
    return path, path, of_table(missing="mean")


def a_packed_csv(root: Path) -> tuple[Path, Path, Spec]:
    path = written(root / "mine.csv.gz", gzip.compress(TEXT.encode()))
    return path, path, of_table(missing="mean")


def a_parquet(root: Path) -> tuple[Path, Path, Spec]:
    import pyarrow
    from pyarrow import parquet

    path = written(root / "mine.parquet", b"")
    rows = {"age": [40, 41], "mass": [70.5, None], "stage": ["I", "II"], "label": [0, 1]}
    parquet.write_table(pyarrow.table(rows), path)
    return path, path, of_table(missing="mean")


LAYOUTS = [an_npz, a_png, a_jpeg, a_wav, a_text, a_csv, a_packed_csv, a_parquet]


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """The content with a few other bytes, and now and then cut."""
    found = bytearray(content)
    for _ in range(rng.integers(1, 6)):
        found[rng.integers(len(found))] = rng.choice([0, 255, 10, 34, 44, rng.integers(256)])
    return bytes(found[: rng.integers(len(found))] if rng.random() < 0.2 else found)


@pytest.mark.parametrize("make", LAYOUTS)
def test_damaged_bytes(tmp_path: Path, make: Callable[[Path], tuple[Path, Path, Spec]]) -> None:
    (tmp_path / "data").mkdir()
    file, path, spec = make(tmp_path / "data")
    assert len(own_files.load(path, spec).y)
    whole, rng = file.read_bytes(), np.random.default_rng(0)
    errors = []
    for _ in range(TRIES):
        file.write_bytes(damaged(whole, rng))
        try:
            found = own_files.load(path, spec)
            assert len(found.x) == len(found.y) > 0
        except FedstrideError as error:
            errors.append(str(error))
    assert errors
    assert all(text.isprintable() and len(text) < 800 for text in errors)


@pytest.mark.parametrize("path", ["~nobody-here/mine.npz", "a\0b.npz", "x" * 5000])
def test_a_path_that_is_not_possible(path: str) -> None:
    with pytest.raises(FedstrideError) as caught:
        own_files.load(path, of_images())
    assert str(caught.value).isprintable() and len(str(caught.value)) < 800
