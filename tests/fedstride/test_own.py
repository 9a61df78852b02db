"""A node's own examples: every layout, what is refused and how, and that nothing is read twice."""

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
    """Every test fills a cache of its own."""


def images(shape: tuple[int, ...], count: int = 6) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)


def npz(path: Path, **arrays: object) -> Path:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


def class_folder(root: Path, counts: dict[str, int], shape: tuple[int, ...] = GREY, suffix: str = ".png") -> Path:
    """A folder a class with so many images; image i of class k is filled with 10 k + i."""
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


def test_what_is_read_is_mapped_and_cannot_be_changed(tmp_path: Path) -> None:
    found = own.load(npz(tmp_path / "mine.npz", images=images(GREY), labels=np.zeros(6, int)), GREY, CLASSES)
    assert isinstance(found.x, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        found.x[0] = 0


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"images": images(GREY)}, r"has no array 'labels', but \['images'\]"),
        ({"x": images(GREY), "y": np.zeros(6, int)}, "has no array 'images'"),
        ({"images": images(GREY) / 255.0, "labels": np.zeros(6, int)}, "images are float64, allowed is uint8"),
        (
            {"images": images((1, 5, 4)), "labels": np.zeros(6, int)},
            r"shape \(6, 1, 5, 4\), allowed by the task is",
        ),
        ({"images": images(COLOUR), "labels": np.zeros(6, int)}, r"allowed .* \(n, 1, 4, 5\) or .*\(n, 4, 5\)"),
        (
            {"images": images(GREY), "labels": np.zeros(6)},
            r"labels are float64\(6,\), allowed are 6 whole numbers",
        ),
        ({"images": images(GREY), "labels": np.zeros(5, int)}, r"labels are int64\(5,\), allowed are 6"),
        ({"images": images(GREY), "labels": np.zeros((6, 1), int)}, r"labels are int64\(6, 1\)"),
        ({"images": images(GREY), "labels": np.arange(6)}, "label 3 is not allowed: the task has classes 0 to 2"),
        ({"images": images(GREY), "labels": np.arange(6) - 1}, "label -1 is not allowed"),
        ({"images": images(GREY, 0), "labels": np.zeros(0, int)}, "holds no example"),
        ({"images": images(GREY), "labels": np.array([None] * 6)}, "Object arrays cannot be loaded"),
    ],
)
def test_an_npz_that_is_refused(tmp_path: Path, arrays: dict[str, np.ndarray], said: str) -> None:
    path = npz(tmp_path / "mine.npz", **arrays)
    text = refused(path)
    assert str(path) in text
    with pytest.raises(DataError, match=said):
        own.load(path, GREY, CLASSES)


def test_what_is_no_npz(tmp_path: Path) -> None:
    text = tmp_path / "mine.npz"
    text.write_text("no zip")
    assert "numpy.savez_compressed" in refused(text)
    bare = tmp_path / "bare.npz"
    with bare.open("wb") as file:
        np.save(file, images(GREY))
    assert "numpy.savez_compressed" in refused(bare)


def test_a_torn_npz(tmp_path: Path) -> None:
    whole = io.BytesIO()
    np.savez_compressed(whole, images=images(GREY, 2000), labels=np.zeros(2000, int))
    torn = bytearray(whole.getvalue())
    torn[2000:2100] = bytes(100)
    path = tmp_path / "mine.npz"
    path.write_bytes(torn)
    assert zipfile.is_zipfile(path)
    assert "is no .npz that can be read" in refused(path)


# ---------------------------------------------------------------- folders


@pytest.mark.parametrize("suffix", [".png", ".PNG", ".jpg", ".jpeg"])
@pytest.mark.parametrize("shape", [GREY, COLOUR])
def test_one_subfolder_a_class(tmp_path: Path, suffix: str, shape: tuple[int, ...]) -> None:
    folder = class_folder(tmp_path / "data", {"cat": 2, "dog": 0, "fox": 3}, shape, suffix)
    (folder / "README.txt").write_text("beside the classes, not in one")
    (folder / "cat/.hidden").write_text("left by a file manager")
    found = own.load(folder, shape, CLASSES)
    assert found.x.shape == (5, *shape)
    np.testing.assert_array_equal(found.y, [0, 0, 2, 2, 2])
    assert [int(x.flat[0]) for x in found.x] == [0, 1, 20, 21, 22]  # files in the order of their names


def test_colours_stay_where_they_were(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "data", {"a": 0, "b": 0, "c": 0}, COLOUR)
    pixels = np.moveaxis(images(COLOUR, 1)[0], 0, -1)
    Image.fromarray(pixels).save(folder / "b/one.png")
    found = own.load(folder, COLOUR, CLASSES)
    np.testing.assert_array_equal(found.x[0], np.moveaxis(pixels, -1, 0))


def test_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "data", {str(k): 1 for k in range(11)})
    np.testing.assert_array_equal(own.load(folder, GREY, 11).y, np.arange(11))


def test_an_absent_class_would_shift_the_others(tmp_path: Path) -> None:
    text = refused(class_folder(tmp_path / "data", {"cat": 1, "fox": 1}))
    assert "has 2 subfolders, allowed is one for each of the task's 3 classes" in text
    assert "empty one" in text


def test_a_folder_that_is_refused(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "data", {"a": 1, "b": 1, "c": 1})
    (folder / "b/notes.txt").write_text("?")
    assert f"{folder / 'b/notes.txt'} is no image that can be read, allowed are .png, .jpg, .jpeg" in refused(
        folder
    )
    (folder / "b/notes.txt").rename(folder / "b/notes.png")
    assert f"{folder / 'b/notes.png'} is no image that can be read: cannot identify" in refused(folder)
    (folder / "b/notes.png").unlink()
    (folder / "b/deeper").mkdir()
    assert f"{folder / 'b/deeper'} is no image" in refused(folder)


def test_no_example_at_all(tmp_path: Path) -> None:
    assert "holds no example" in refused(class_folder(tmp_path / "data", {"a": 0, "b": 0, "c": 0}))


@pytest.mark.parametrize(
    ("mode", "size", "shape", "said"),
    [
        ("L", (4, 5), GREY, "is 4x5 of mode L, allowed by the task is 5x4 of mode L"),
        ("RGB", (5, 4), GREY, "mode RGB, allowed by the task is 5x4 of mode L"),
        ("I;16", (5, 4), GREY, "mode I;16, allowed"),
        ("L", (5, 4), COLOUR, "mode L, allowed by the task is 5x4 of mode RGB"),
        ("L", (5, 4), (2, 4, 5), "2 channels: none"),
    ],
)
def test_an_image_of_another_form(
    tmp_path: Path, mode: str, size: tuple[int, int], shape: tuple[int, ...], said: str
) -> None:
    folder = class_folder(tmp_path / "data", {"a": 0, "b": 0, "c": 0})
    Image.new(mode, size).save(folder / "c/one.png")
    text = refused(folder, shape)
    assert str(folder / "c/one.png") in text and said in text


def test_a_cut_image_is_named(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "data", {"a": 1, "b": 1, "c": 1}, (1, 40, 50))
    path = folder / "a/0.png"
    path.write_bytes(path.read_bytes()[:-40])
    assert f"{path} is no image that can be read" in refused(folder, (1, 40, 50))


# ---------------------------------------------------------------- neither


def test_a_path_that_is_neither(tmp_path: Path) -> None:
    assert "does not exist on this node" in refused(tmp_path / "nowhere")
    other = tmp_path / "mine.csv"
    other.write_text("1,2")
    assert "it must be an .npz with images and labels, or a folder" in refused(other)


# ---------------------------------------------------------------- the cache


def test_nothing_is_read_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = class_folder(tmp_path / "data", {"a": 1, "b": 1, "c": 1})
    file = npz(tmp_path / "mine.npz", images=images(GREY), labels=np.zeros(6, int))
    first = [own.load(path, GREY, CLASSES) for path in (folder, file)]
    monkeypatch.setattr(own, "_read_image", lambda *_: pytest.fail("read again"))
    monkeypatch.setattr(np, "savez_compressed", None)
    monkeypatch.setattr(own, "_read_npz", lambda *_: pytest.fail("read again"))
    for path, found in zip((folder, file), first, strict=True):
        np.testing.assert_array_equal(own.load(path, GREY, CLASSES).x, found.x)


@pytest.mark.parametrize("change", ["content", "more", "class", "name"])
def test_a_change_is_seen(tmp_path: Path, change: str) -> None:
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


def test_another_task_is_another_entry(tmp_path: Path) -> None:
    path = npz(tmp_path / "mine.npz", images=images(GREY), labels=np.full(6, 4))
    assert own.load(path, GREY, 5).y.tolist() == [4] * 6
    assert "classes 0 to 2" in refused(path)


def test_the_copy_is_for_its_owner_alone(tmp_path: Path, own_cache: Path) -> None:
    own.load(npz(tmp_path / "mine.npz", images=images(GREY), labels=np.zeros(6, int)), GREY, CLASSES)
    (entry,) = own_cache.iterdir()
    assert entry.stat().st_mode & 0o077 == 0
