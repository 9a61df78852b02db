"""A node's own examples: every layout, error messages, and the cache."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedstride.errors import DataError
from fedstride.tasks import own

GREY, COLOUR = (1, 4, 5), (3, 4, 5)  # channels, height, width
CLASSES = 3


@pytest.fixture(autouse=True)
def _fresh(own_cache: Path) -> None:
    """Every test has its own empty cache."""


def images(shape: tuple[int, ...], count: int = 6) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)


def npz(path: Path, **arrays: object) -> Path:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


def class_folder(root: Path, counts: dict[str, int], shape: tuple[int, ...] = GREY, suffix: str = ".png") -> Path:
    """A folder for each class with the given number of images; image i of class k is filled with 10 k + i."""
    for label, (name, count) in enumerate(counts.items()):
        (root / name).mkdir(parents=True)
        for i in range(count):
            pixels = np.full(shape[1:] if shape[0] == 1 else (*shape[1:], 3), 10 * label + i, dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}{suffix}")
    return root


def refused(path: Path, shape: tuple[int, ...] = GREY, classes: int = CLASSES) -> str:
    with pytest.raises(DataError) as caught:
        own.load(path, shape, classes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---------------------------------------------------------------- .npz


@pytest.mark.parametrize(
    ("shape", "axes"),
    [(GREY, "n,h,w"), (GREY, "n,h,w,c"), (GREY, "n,c,h,w"), (COLOUR, "n,h,w,c"), (COLOUR, "n,c,h,w")],
)
def test_every_layout_of_an_npz(tmp_path: Path, shape: tuple[int, ...], axes: str) -> None:
    x = images(shape)
    given = {"n,h,w": x[:, 0], "n,h,w,c": np.moveaxis(x, 1, -1), "n,c,h,w": x}[axes]
    labels = np.array([0, 1, 2, 0, 1, 2], dtype=np.uint8)
    found = own.load(npz(tmp_path / "mine.npz", images=given, labels=labels), shape, CLASSES)
    assert found.x.dtype == np.uint8 and found.y.dtype == np.int64
    np.testing.assert_array_equal(found.x, x)
    np.testing.assert_array_equal(found.y, labels)


def test_loaded_arrays_are_mapped_and_read_only(tmp_path: Path) -> None:
    found = own.load(npz(tmp_path / "mine.npz", images=images(GREY), labels=np.zeros(6, int)), GREY, CLASSES)
    assert isinstance(found.x, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        found.x[0] = 0


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"images": images(GREY)}, r"has no array 'labels': it contains \['images'\]"),
        ({"x": images(GREY), "y": np.zeros(6, int)}, "has no array 'images'"),
        (
            {"images": images(GREY) / 255.0, "labels": np.zeros(6, int)},
            "images have dtype float64, but must have uint8",
        ),
        (
            {"images": images((1, 5, 4)), "labels": np.zeros(6, int)},
            r"shape \(6, 1, 5, 4\), but this task needs",
        ),
        ({"images": images(COLOUR), "labels": np.zeros(6, int)}, r"needs .*\(n, 1, 4, 5\) or .*\(n, 4, 5\)"),
        (
            {"images": images(GREY), "labels": np.zeros(6)},
            r"labels have dtype float64 and shape \(6,\), but must be 6 whole numbers",
        ),
        (
            {"images": images(GREY), "labels": np.zeros(5, int)},
            r"labels have dtype int64 and shape \(5,\), but must be 6",
        ),
        ({"images": images(GREY), "labels": np.zeros((6, 1), int)}, r"labels have dtype int64 and shape \(6, 1\)"),
        ({"images": images(GREY), "labels": np.arange(6)}, "label 3 is not allowed: the task has classes 0 to 2"),
        ({"images": images(GREY), "labels": np.arange(6) - 1}, "label -1 is not allowed"),
        ({"images": images(GREY, 0), "labels": np.zeros(0, int)}, "contains no examples"),
        ({"images": images(GREY), "labels": np.array([None] * 6)}, "Object arrays cannot be loaded"),
    ],
)
def test_an_npz_that_is_refused(tmp_path: Path, arrays: dict[str, np.ndarray], said: str) -> None:
    path = npz(tmp_path / "mine.npz", **arrays)
    text = refused(path)
    assert str(path) in text
    with pytest.raises(DataError, match=said):
        own.load(path, GREY, CLASSES)


def test_a_file_that_is_not_an_npz_is_rejected(tmp_path: Path) -> None:
    text = tmp_path / "mine.npz"
    text.write_text("no zip")
    assert "numpy.savez_compressed" in refused(text)
    bare = tmp_path / "bare.npz"
    with bare.open("wb") as file:
        np.save(file, images(GREY))
    assert "numpy.savez_compressed" in refused(bare)


def test_a_damaged_npz_is_rejected(tmp_path: Path) -> None:
    whole = io.BytesIO()
    np.savez_compressed(whole, images=images(GREY, 2000), labels=np.zeros(2000, int))
    damaged = bytearray(whole.getvalue())
    damaged[2000:2100] = bytes(100)
    path = tmp_path / "mine.npz"
    path.write_bytes(damaged)
    assert zipfile.is_zipfile(path)
    assert "is not a readable .npz file" in refused(path)


# ---------------------------------------------------------------- folders


@pytest.mark.parametrize("suffix", [".png", ".PNG", ".jpg", ".jpeg"])
@pytest.mark.parametrize("shape", [GREY, COLOUR])
def test_a_folder_with_one_subfolder_for_each_class(tmp_path: Path, suffix: str, shape: tuple[int, ...]) -> None:
    folder = class_folder(tmp_path / "data", {"cat": 2, "dog": 0, "fox": 3}, shape, suffix)
    (folder / "README.txt").write_text("next to the class folders, not in one")
    (folder / "cat/.hidden").write_text("left by a file manager")
    found = own.load(folder, shape, CLASSES)
    assert found.x.shape == (5, *shape)
    np.testing.assert_array_equal(found.y, [0, 0, 2, 2, 2])
    assert [int(x.flat[0]) for x in found.x] == [0, 1, 20, 21, 22]  # files in the order of their names


def test_colour_channels_keep_their_order(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "data", {"a": 0, "b": 0, "c": 0}, COLOUR)
    pixels = np.moveaxis(images(COLOUR, 1)[0], 0, -1)
    Image.fromarray(pixels).save(folder / "b/one.png")
    found = own.load(folder, COLOUR, CLASSES)
    np.testing.assert_array_equal(found.x[0], np.moveaxis(pixels, -1, 0))


def test_numeric_class_names_are_sorted_as_numbers(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "data", {str(k): 1 for k in range(11)})
    np.testing.assert_array_equal(own.load(folder, GREY, 11).y, np.arange(11))


def test_a_missing_class_folder_is_rejected(tmp_path: Path) -> None:
    text = refused(class_folder(tmp_path / "data", {"cat": 1, "fox": 1}))
    assert "has 2 subfolders, but needs one for each of the task's 3 classes" in text
    assert "create an empty subfolder" in text


def test_a_folder_that_is_refused(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "data", {"a": 1, "b": 1, "c": 1})
    (folder / "b/notes.txt").write_text("?")
    assert (
        f"{folder / 'b/notes.txt'} is not a supported image file: its name must end with .png, .jpg, .jpeg"
        in refused(folder)
    )
    (folder / "b/notes.txt").rename(folder / "b/notes.png")
    assert f"{folder / 'b/notes.png'} is not a readable image: cannot identify" in refused(folder)
    (folder / "b/notes.png").unlink()
    (folder / "b/deeper").mkdir()
    assert f"{folder / 'b/deeper'} is not a supported image file" in refused(folder)


def test_a_folder_without_images_is_rejected(tmp_path: Path) -> None:
    assert "contains no examples" in refused(class_folder(tmp_path / "data", {"a": 0, "b": 0, "c": 0}))


@pytest.mark.parametrize(
    ("mode", "size", "shape", "said"),
    [
        ("L", (4, 5), GREY, "has size 4x5 and mode L, but this task needs 5x4 and mode L"),
        ("RGB", (5, 4), GREY, "mode RGB, but this task needs 5x4 and mode L"),
        ("I;16", (5, 4), GREY, "mode I;16, but"),
        ("L", (5, 4), COLOUR, "mode L, but this task needs 5x4 and mode RGB"),
        ("L", (5, 4), (2, 4, 5), "none has 2 channels"),
    ],
)
def test_an_image_of_another_size_or_mode_is_rejected(
    tmp_path: Path, mode: str, size: tuple[int, int], shape: tuple[int, ...], said: str
) -> None:
    folder = class_folder(tmp_path / "data", {"a": 0, "b": 0, "c": 0})
    Image.new(mode, size).save(folder / "c/one.png")
    text = refused(folder, shape)
    assert str(folder / "c/one.png") in text and said in text


def test_a_truncated_image_is_reported(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "data", {"a": 1, "b": 1, "c": 1}, (1, 40, 50))
    path = folder / "a/0.png"
    path.write_bytes(path.read_bytes()[:-40])
    assert f"{path} is not a readable image" in refused(folder, (1, 40, 50))


# ---------------------------------------------------------------- neither


def test_a_missing_path_or_another_file_type_is_rejected(tmp_path: Path) -> None:
    assert "does not exist on this node" in refused(tmp_path / "nowhere")
    other = tmp_path / "mine.csv"
    other.write_text("1,2")
    assert "it must be an .npz file with images and labels, or a folder" in refused(other)


# ---------------------------------------------------------------- the cache


def test_a_second_load_reads_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = class_folder(tmp_path / "data", {"a": 1, "b": 1, "c": 1})
    file = npz(tmp_path / "mine.npz", images=images(GREY), labels=np.zeros(6, int))
    first = [own.load(path, GREY, CLASSES) for path in (folder, file)]
    monkeypatch.setattr(own, "_read_image", lambda *_: pytest.fail("read again"))
    monkeypatch.setattr(np, "savez_compressed", None)
    monkeypatch.setattr(own, "_read_npz", lambda *_: pytest.fail("read again"))
    for path, found in zip((folder, file), first, strict=True):
        np.testing.assert_array_equal(own.load(path, GREY, CLASSES).x, found.x)


@pytest.mark.parametrize("change", ["content", "more", "class", "name"])
def test_a_changed_file_is_read_again(tmp_path: Path, change: str) -> None:
    folder = class_folder(tmp_path / "data", {"a": 0, "b": 1, "c": 1})
    before = own.load(folder, GREY, CLASSES)
    if change == "content":
        Image.new("L", (5, 4), 99).save(folder / "b/0.png")
        os.utime(folder / "b/0.png", ns=(1, 1))
    elif change == "more":
        Image.new("L", (5, 4), 99).save(folder / "b/1.png")
    elif change == "class":
        (folder / "a").rename(folder / "z")  # an empty class: the files keep their names, not their labels
    else:
        (folder / "b/0.png").rename(folder / "c/1.png")
    after = own.load(folder, GREY, CLASSES)
    assert after.x.tobytes() != before.x.tobytes() or after.y.tolist() != before.y.tolist()


def test_another_task_is_another_cache_entry(tmp_path: Path) -> None:
    path = npz(tmp_path / "mine.npz", images=images(GREY), labels=np.full(6, 4))
    assert own.load(path, GREY, 5).y.tolist() == [4] * 6
    assert "classes 0 to 2" in refused(path)


def test_only_the_user_can_access_the_cached_copy(tmp_path: Path, own_cache: Path) -> None:
    own.load(npz(tmp_path / "mine.npz", images=images(GREY), labels=np.zeros(6, int)), GREY, CLASSES)
    (entry,) = own_cache.iterdir()
    assert entry.stat().st_mode & 0o077 == 0
