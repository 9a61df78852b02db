"""A node's own examples: arrays of every kind in an .npz file, errors, and the cache."""

from __future__ import annotations

import io
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_files import (
    CLASSES,
    COLOUR,
    GREY,
    LABELS,
    SPECS,
    VALUES,
    class_folder,
    images,
    npz,
    of_images,
    of_table,
    refused,
    written,
)
from PIL import Image

from fedstride.tasks import own_files
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.own_files.readers import folders
from fedstride.tasks.own_files.readers import npz as npz_files
from fedstride.tasks.reading import Reading
from fedstride.tasks.spec import Spec


@pytest.fixture(autouse=True)
def _fresh(own_cache: Path) -> None:
    """Every test has its own empty cache."""


# ---------------------------------------------------------------- images


@pytest.mark.parametrize("names", [("images", "labels"), ("x", "y")])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [(GREY, "n,h,w"), (GREY, "n,h,w,c"), (GREY, "n,c,h,w"), (COLOUR, "n,h,w,c"), (COLOUR, "n,c,h,w")],
)
def test_every_layout_of_images(tmp_path: Path, shape: tuple[int, ...], axes: str, names: tuple[str, str]) -> None:
    x = images(shape)
    given = {"n,h,w": x[:, 0], "n,h,w,c": np.moveaxis(x, 1, -1), "n,c,h,w": x}[axes]
    labels = np.array([0, 1, 2, 0, 1, 2], dtype=np.uint8)
    found = own_files.load(
        npz(tmp_path / "mine.npz", **dict(zip(names, (given, labels), strict=True))), of_images(shape)
    )
    assert found.x.dtype == np.uint8 and found.y.dtype == np.int64
    np.testing.assert_array_equal(found.x, x)
    np.testing.assert_array_equal(found.y, labels)


@pytest.mark.parametrize("dtype", ["uint16", "int64", "float16", "float32", "float64"])
def test_images_of_any_dtype_have_values_up_to_255(tmp_path: Path, dtype: str) -> None:
    x = images(GREY).astype(dtype)
    found = own_files.load(npz(tmp_path / "mine.npz", images=x, labels=np.zeros(6, int)), of_images())
    assert found.x.dtype == np.float32
    np.testing.assert_array_equal(found.x, x)


def test_loaded_arrays_are_mapped_and_read_only(tmp_path: Path) -> None:
    found = own_files.load(npz(tmp_path / "mine.npz", images=images(GREY), labels=np.zeros(6, int)), of_images())
    assert isinstance(found.x, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        found.x[0] = 0


ZEROS = np.zeros(6, int)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"images": images(GREY)}, "has no array 'labels': it contains 'images', but needs x and y or images and"),
        ({"x": images(GREY), "labels": ZEROS}, "has no array 'y'"),
        ({"a": images(GREY)}, "has no array 'x'"),
        (
            {"images": images(GREY) / 255.0, "labels": ZEROS},
            "images has values from 0 to 0.97.*, but .* up to 255; multiply",
        ),
        ({"images": images(GREY) - 256.0, "labels": ZEROS}, "values from -256 to -8, .* are 0 to 255"),
        ({"images": images(GREY).astype(int) + 8, "labels": ZEROS}, "to 256, but those of this task are 0 to 255"),
        (
            {"images": images(GREY) * np.nan, "labels": ZEROS},
            r"contains nan at \(0, 0, 0, 0\): every value must be",
        ),
        ({"images": images(GREY) > 9, "labels": ZEROS}, "images has dtype bool, but must have numbers"),
        ({"images": images(GREY) * 1j, "labels": ZEROS}, "images has dtype complex128, but must have numbers"),
        ({"images": images(GREY).astype(str), "labels": ZEROS}, "dtype <U3, but must have numbers"),
        ({"images": images((1, 5, 4)), "labels": ZEROS}, r"shape \(6, 1, 5, 4\), but this task needs"),
        ({"images": images(COLOUR), "labels": ZEROS}, r"needs .*\(n, 1, 4, 5\) or .*\(n, 4, 5\)"),
        (
            {"images": images(GREY), "labels": np.zeros(6)},
            r"labels has dtype float64 and shape \(6,\), but must be 6",
        ),
        ({"images": images(GREY), "labels": ZEROS[:5]}, r"labels has dtype int64 and shape \(5,\), but must be 6"),
        ({"images": images(GREY), "labels": ZEROS[:, None]}, r"labels has dtype int64 and shape \(6, 1\)"),
        ({"images": images(GREY), "labels": np.arange(6)}, "label 3 is not allowed: the task has classes 0 to 2"),
        ({"images": images(GREY), "labels": np.arange(6) - 1}, "label -1 is not allowed"),
        ({"images": images(GREY, 0), "labels": ZEROS[:0]}, "contains no examples"),
        ({"images": images(GREY), "labels": np.array([None] * 6)}, "Object arrays cannot be loaded"),
    ],
)
def test_images_that_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], said: str) -> None:
    path = npz(tmp_path / "mine.npz", **arrays)
    text = refused(path, of_images())
    assert str(path) in text
    assert re.search(said, text), text


# ---------------------------------------------------------------- other kinds of examples


def some(spec: Spec, dtype: str) -> np.ndarray:
    """Six examples with values from 0 to 2."""
    return np.random.default_rng(0).integers(0, 3, (6, *spec.inputs.shape)).astype(dtype)


@pytest.mark.parametrize(
    ("kind", "dtype", "stored"),
    [
        (Kind.SIGNAL, "int16", "int16"),
        (Kind.SIGNAL, "int32", "float32"),
        (Kind.SIGNAL, "float64", "float32"),
        (Kind.FRAMES, "float64", "float32"),
        (Kind.FRAMES, "int8", "float32"),
        (Kind.TABLE, "float32", "float32"),
        (Kind.TABLE, "uint8", "float32"),
        (Kind.TOKENS, "int64", "uint16"),
        (Kind.TOKENS, "float64", "uint16"),
    ],
)
def test_examples_of_any_dtype(tmp_path: Path, kind: Kind, dtype: str, stored: str) -> None:
    x = some(SPECS[kind], dtype)
    found = own_files.load(npz(tmp_path / "mine.npz", x=x, y=np.arange(6) % 3), SPECS[kind])
    assert (found.x.dtype, found.y.dtype) == (np.dtype(stored), np.int64)
    np.testing.assert_array_equal(found.x, x)


def test_a_large_vocabulary_is_stored_in_four_bytes(tmp_path: Path) -> None:
    spec = Spec(Inputs(Kind.TOKENS, (4,), 70_000), 3)
    x = np.full((2, 4), 69_999)
    found = own_files.load(npz(tmp_path / "mine.npz", x=x, y=np.arange(2)), spec)
    assert found.x.dtype == np.int32 and (found.x == x).all()


def altered(kind: Kind, value: float) -> np.ndarray:
    x = some(SPECS[kind], "float64")
    x[4].flat[1] = value
    return x


@pytest.mark.parametrize(
    ("kind", "x", "said"),
    [
        (Kind.SIGNAL, some(SPECS[Kind.SIGNAL], "float64") / 3, "go up to 32768; multiply them by 32768"),
        (Kind.SIGNAL, altered(Kind.SIGNAL, np.inf), r"contains inf at \(4, 0, 1\)"),
        (Kind.SIGNAL, np.zeros((6, 6)), r"x has shape \(6, 6\), but this task needs \(n, 1, 6\)"),
        (Kind.FRAMES, altered(Kind.FRAMES, 1e39), r"contains 1e\+39 at \(4, 0, 1\): .* finite in float32"),
        (Kind.TABLE, altered(Kind.TABLE, np.nan), r"contains nan at \(4, 1\)"),
        (Kind.TABLE, np.float64(3), r"has shape \(\), but this task needs \(n, 2\)"),
        (Kind.TOKENS, altered(Kind.TOKENS, 1000), "1000.0: tokens must be whole numbers from 0 to 999"),
        (Kind.TOKENS, altered(Kind.TOKENS, -1), "contains -1.0: tokens"),
        (Kind.TOKENS, altered(Kind.TOKENS, 0.5), "contains 0.5: tokens"),
        (Kind.TOKENS, altered(Kind.TOKENS, np.nan), "contains nan: tokens"),
        (Kind.TOKENS, np.full((6, 4), "word"), "x has dtype <U4, but must have numbers"),
    ],
)
def test_examples_that_are_refused(tmp_path: Path, kind: Kind, x: np.ndarray, said: str) -> None:
    text = refused(npz(tmp_path / "mine.npz", x=x, y=ZEROS), SPECS[kind])
    assert re.search(said, text), text


def test_the_names_images_and_labels_are_for_images_only(tmp_path: Path) -> None:
    path = npz(tmp_path / "mine.npz", images=some(SPECS[Kind.TABLE], "f4"), labels=ZEROS)
    assert "has no array 'x'" in refused(path, SPECS[Kind.TABLE])


def test_missing_numbers_of_a_table(tmp_path: Path) -> None:
    x = altered(Kind.TABLE, np.nan)
    spec = Spec(Inputs(Kind.TABLE, (2,)), 3, reading=Reading(missing="mean"))
    found = own_files.load(npz(tmp_path / "mine.npz", x=x, y=ZEROS), spec)
    np.testing.assert_array_equal(found.x, x.astype(np.float32))
    x[0, 0] = -np.inf
    text = refused(npz(tmp_path / "other.npz", x=x, y=ZEROS), spec)
    assert "contains -inf at (0, 0): every value must be finite in float32, or NaN if it is missing" in text


# ---------------------------------------------------------------- targets


def with_targets(path: Path, y: Any) -> Path:
    return npz(path / "mine.npz", x=np.ones((3, 2)), y=np.array(y))


@pytest.mark.parametrize("dtype", [bool, int, float])
def test_labels(tmp_path: Path, dtype: type) -> None:
    y = np.array([[1, 0], [1, 1], [0, 0]])
    found = own_files.load(with_targets(tmp_path, y.astype(dtype)), LABELS)
    assert found.y.dtype == np.uint8
    np.testing.assert_array_equal(found.y, y)


@pytest.mark.parametrize("dtype", [int, np.float16, float])
def test_values(tmp_path: Path, dtype: type) -> None:
    y = np.array([[1, -2], [300, 4], [0, 0]], dtype)
    found = own_files.load(with_targets(tmp_path, y), VALUES)
    assert found.y.dtype == np.float32
    np.testing.assert_array_equal(found.y, y)


def test_one_value_may_be_a_vector(tmp_path: Path) -> None:
    spec = Spec(VALUES.inputs, 1, VALUES.target)
    assert own_files.load(with_targets(tmp_path, [0.5, 1.5, 2.5]), spec).y.tolist() == [[0.5], [1.5], [2.5]]


@pytest.mark.parametrize(
    ("spec", "y", "said"),
    [
        (LABELS, [[0, 1], [1, 2], [0, 0]], "y contains 2, but each label must be 0 or 1"),
        (LABELS, [[0, 1], [1, np.nan], [0, 0]], "y contains nan, but each label"),
        (LABELS, [0, 1, 1], r"shape \(3,\), but must be 3 rows of 2 labels, each 0 or 1"),
        (LABELS, [["0", "1"]] * 3, "dtype <U1"),
        (VALUES, [0.0, 1.0, 1.0], r"y has shape \(3,\), but must be 3 rows of 2 values"),
        (VALUES, [[0.0, 1.0], [np.nan, 1.0], [0.0, 0.0]], r"y contains nan at \(1, 0\)"),
        (VALUES, [[True, False]] * 3, "y has dtype bool, but must have numbers"),
    ],
)
def test_targets_that_are_refused(tmp_path: Path, spec: Spec, y: Any, said: str) -> None:
    text = refused(with_targets(tmp_path, y), spec)
    assert re.search(said, text), text


# ---------------------------------------------------------------- files that are damaged or something else


def test_a_file_that_is_not_an_npz_is_rejected(tmp_path: Path) -> None:
    assert "numpy.savez_compressed" in refused(written(tmp_path / "mine.npz", "no zip"), of_images())
    bare = tmp_path / "bare.npz"
    with bare.open("wb") as file:
        np.save(file, images(GREY))
    assert "numpy.savez_compressed" in refused(bare, of_images())


def test_a_damaged_npz_is_rejected(tmp_path: Path) -> None:
    whole = io.BytesIO()
    np.savez_compressed(whole, images=images(GREY, 2000), labels=np.zeros(2000, int))
    damaged = bytearray(whole.getvalue())
    damaged[2000:2100] = bytes(100)
    path = written(tmp_path / "mine.npz", bytes(damaged))
    assert zipfile.is_zipfile(path)
    assert "is not a readable .npz file" in refused(path, of_images())


def test_an_array_that_claims_more_than_fits_in_memory(tmp_path: Path) -> None:
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000, 2), }"
    with zipfile.ZipFile(tmp_path / "mine.npz", "w") as file:
        for name in "xy":
            file.writestr(f"{name}.npy", header.ljust(127) + b"\n")
    assert "is not a readable .npz file" in refused(tmp_path / "mine.npz", SPECS[Kind.TABLE])


@pytest.mark.parametrize(
    ("kind", "layouts"),
    [
        (
            Kind.IMAGE,
            "or a folder with one subfolder of .png, .jpg, .jpeg, .dcm, .nii, .nii.gz files",
        ),
        (Kind.SIGNAL, "an .npz file with x and y or a folder with one subfolder of .wav files for each class"),
        (Kind.TABLE, "an .npz file with x and y or one table (.csv, .csv.gz, .parquet)"),
        (
            Kind.TOKENS,
            "or one table (.csv, .csv.gz, .parquet) or a folder with one subfolder of .txt files for each",
        ),
    ],
)
def test_a_missing_path_or_another_file_says_the_layouts(tmp_path: Path, kind: Kind, layouts: str) -> None:
    text = refused(tmp_path / "nowhere", SPECS[kind])
    assert "does not exist on this node: it must be" in text and layouts in text
    for name in ["mine.xlsx", "mine.npy", *(["mine.csv"] if kind is Kind.IMAGE else [])]:
        text = refused(written(tmp_path / name, "1,2"), SPECS[kind])
        assert "cannot be read: it must be" in text and layouts in text


def test_a_path_with_a_line_break_stays_on_one_line(tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "two\nlines\x1b[2J.npz", of_images())


# ---------------------------------------------------------------- the cache


def test_a_second_load_reads_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = class_folder(tmp_path / "data", {"a": 1, "b": 1, "c": 1})
    file = npz(tmp_path / "mine.npz", images=images(GREY), labels=np.zeros(6, int))
    first = [own_files.load(path, of_images()) for path in (folder, file)]
    monkeypatch.setattr(folders, "read", lambda *_: pytest.fail("read again"))
    monkeypatch.setattr(npz_files, "read", lambda *_: pytest.fail("read again"))
    for path, found in zip((folder, file), first, strict=True):
        np.testing.assert_array_equal(own_files.load(path, of_images()).x, found.x)


@pytest.mark.parametrize("change", ["content", "more", "class", "name"])
def test_a_changed_file_is_read_again(tmp_path: Path, change: str) -> None:
    folder = class_folder(tmp_path / "data", {"a": 0, "b": 1, "c": 1})
    before = own_files.load(folder, of_images())
    if change == "content":
        Image.new("L", (5, 4), 99).save(folder / "b/0.png")
        os.utime(folder / "b/0.png", ns=(1, 1))
    elif change == "more":
        Image.new("L", (5, 4), 99).save(folder / "b/1.png")
    elif change == "class":
        (folder / "a").rename(folder / "z")  # an empty class: the files keep their names, not their labels
    else:
        (folder / "b/0.png").rename(folder / "c/1.png")
    after = own_files.load(folder, of_images())
    assert after.x.tobytes() != before.x.tobytes() or after.y.tolist() != before.y.tolist()


def test_another_task_is_another_cache_entry(tmp_path: Path) -> None:
    path = npz(tmp_path / "mine.npz", images=images(GREY), labels=np.full(6, 4))
    assert own_files.load(path, of_images(classes=5)).y.tolist() == [4] * 6
    assert "classes 0 to 2" in refused(path, of_images(classes=CLASSES))


def test_another_reading_is_another_cache_entry(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.csv", "age,mass,stage,label,sick\n50,70,I,1,0\n51,71,II,0,1\n")
    assert own_files.load(path, of_table()).y.tolist() == [1, 0]
    assert own_files.load(path, of_table(targets=("sick",))).y.tolist() == [0, 1]


def test_only_the_user_can_access_the_cached_copy(tmp_path: Path, own_cache: Path) -> None:
    own_files.load(npz(tmp_path / "mine.npz", images=images(GREY), labels=np.zeros(6, int)), of_images())
    (entry,) = own_cache.iterdir()
    assert entry.stat().st_mode & 0o077 == 0
