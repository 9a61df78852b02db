"""Folders with one subfolder for each class: images, recordings, texts, and which class a subfolder is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from own_files import (
    COLOUR,
    GREY,
    LABELS,
    SPECS,
    class_folder,
    images,
    of_images,
    of_table,
    of_texts,
    refused,
    wav,
    written,
)
from PIL import Image

from fedstride.tasks import own_files
from fedstride.tasks.forms.logmel import LogMel
from fedstride.tasks.forms.tokens import tokens
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.reading import Reading
from fedstride.tasks.spec import Spec


@pytest.fixture(autouse=True)
def _fresh(own_cache: Path) -> None:
    """Every test has its own empty cache."""


# ---------------------------------------------------------------- images


@pytest.mark.parametrize("suffix", [".png", ".PNG", ".jpg", ".jpeg"])
@pytest.mark.parametrize("shape", [GREY, COLOUR])
def test_a_folder_with_one_subfolder_for_each_class(tmp_path: Path, suffix: str, shape: tuple[int, ...]) -> None:
    folder = class_folder(tmp_path / "data", {"cat": 2, "dog": 0, "fox": 3}, shape, suffix)
    (folder / "README.txt").write_text("next to the class folders, not in one")
    (folder / "cat/.hidden").write_text("left by a file manager")
    found = own_files.load(folder, of_images(shape))
    assert found.x.shape == (5, *shape)
    assert (found.x.dtype, found.y.dtype) == (np.uint8, np.int64)
    np.testing.assert_array_equal(found.y, [0, 0, 2, 2, 2])
    assert [int(x.flat[0]) for x in found.x] == [0, 1, 20, 21, 22]  # files in the order of their names


def test_colour_channels_keep_their_order(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "data", {"a": 0, "b": 0, "c": 0}, COLOUR)
    pixels = np.moveaxis(images(COLOUR, 1)[0], 0, -1)
    Image.fromarray(pixels).save(folder / "b/one.png")
    found = own_files.load(folder, of_images(COLOUR))
    np.testing.assert_array_equal(found.x[0], np.moveaxis(pixels, -1, 0))


def test_images_of_a_task_with_another_scale(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "data", {"a": 2, "b": 2, "c": 2})
    found = own_files.load(folder, replace(of_images(), scale=1.0))
    assert found.x.dtype == np.float32
    np.testing.assert_allclose(found.x[:, 0, 0, 0], np.array([0, 1, 10, 11, 20, 21]) / 255, rtol=1e-6)


def test_a_file_that_is_no_image(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "data", {"a": 1, "b": 1, "c": 1})
    (folder / "b/notes.txt").write_text("?")
    said = "cannot be an example: it must be a file whose name ends with .png, .jpg, .jpeg"
    assert f"{folder / 'b/notes.txt'} {said}" in refused(folder, of_images())
    (folder / "b/notes.txt").rename(folder / "b/notes.png")
    assert f"{folder / 'b/notes.png'} is not a readable image: cannot identify" in refused(folder, of_images())
    (folder / "b/notes.png").unlink()
    (folder / "b/deeper.png").mkdir()
    assert f"{folder / 'b/deeper.png'} {said}" in refused(folder, of_images())


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
    text = refused(folder, of_images(shape))
    assert str(folder / "c/one.png") in text and said in text


def test_a_truncated_image_is_reported(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "data", {"a": 1, "b": 1, "c": 1}, (1, 40, 50))
    path = folder / "a/0.png"
    path.write_bytes(path.read_bytes()[:-40])
    assert f"{path} is not a readable image" in refused(folder, of_images((1, 40, 50)))


# ---------------------------------------------------------------- which class a subfolder is


def test_names_that_are_numbers_are_sorted_by_their_value(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "data", {str(k): 1 for k in range(11)})
    np.testing.assert_array_equal(own_files.load(folder, of_images(classes=11)).y, np.arange(11))


def test_names_are_sorted_if_the_classes_have_none(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "data", {"wolf": 1, "ape": 1, "fox": 1})
    assert own_files.load(folder, of_images()).x[:, 0, 0, 0].tolist() == [10, 20, 0]


@pytest.mark.parametrize("folders", [("Hund", "Katze", "Fuchs"), ("1", "2", "3"), ("cat", "dog", "wolf")])
def test_classes_with_names_are_not_numbered_by_other_names(tmp_path: Path, folders: tuple[str, ...]) -> None:
    """In the order of their names, Fuchs would be a cat."""
    folder = class_folder(tmp_path / "data", dict.fromkeys(folders, 1))
    text = refused(folder, replace(of_images(), names=("cat", "dog", "fox")))
    assert "is not named after a class of the task" in text and "the classes are 'cat, dog, fox'" in text


def test_class_names_decide_the_order(tmp_path: Path) -> None:
    spec = replace(of_images(), names=("malignant", "benign", "unclear"))
    folder = class_folder(tmp_path / "data", {"benign": 2, "malignant": 1})  # a class may be missing
    found = own_files.load(folder, spec)
    assert (found.y.tolist(), found.x[:, 0, 0, 0].tolist()) == ([0, 1, 1], [10, 0, 1])


def test_a_misspelt_class_name_would_shift_the_labels(tmp_path: Path) -> None:
    spec = replace(of_images(), names=("malignant", "benign", "unclear"))
    folder = class_folder(tmp_path / "data", {"benign": 1, "malignent": 1, "unclear": 1})
    text = refused(folder, spec)
    assert f"{folder / 'malignent'} is not named after a class of the task (did you mean 'malignant'?)" in text
    assert "the classes are 'malignant, benign, unclear'" in text


def test_a_missing_class_folder_is_rejected(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "data", {"cat": 1, "fox": 1})
    text = refused(folder, of_images())
    assert "has 2 subfolders, but needs one for each of the task's 3 classes; create an empty subfolder" in text
    (tmp_path / "empty").mkdir()
    text = refused(tmp_path / "empty", replace(of_images(), names=("a", "b", "c")))
    assert "has 0 subfolders, but needs subfolders that are named after classes of the task: 'a, b, c'" in text


def test_a_folder_without_examples_is_rejected(tmp_path: Path) -> None:
    assert "contains no examples" in refused(
        class_folder(tmp_path / "data", {"a": 0, "b": 0, "c": 0}), of_images()
    )


def test_a_folder_of_tables_is_not_read(tmp_path: Path) -> None:
    written(tmp_path / "data/part1.csv", "text,label\nx,0\n")
    written(tmp_path / "data/part2.csv", "text,label\nx,0\n")
    assert "a folder with tables is not read: give the path of one table" in refused(tmp_path / "data", of_texts())
    text = refused(tmp_path / "data", of_table())
    assert "is a folder, but examples of kind table must be in one file: .npz, .csv, .csv.gz, .parquet" in text


def test_a_folder_gives_classes_only(tmp_path: Path) -> None:
    spec = replace(of_images(), target=LABELS.target)
    text = refused(class_folder(tmp_path / "data", {"a": 1}), spec)
    assert "is a folder, but examples with labels to predict must be in one file: .npz" in text


# ---------------------------------------------------------------- recordings


def recordings(root: Path) -> tuple[Path, list[np.ndarray]]:
    """One recording for each of three classes: too short, as long as the task's, too long."""
    rng = np.random.default_rng(0)
    signals = [rng.integers(-30_000, 30_000, length).astype(np.int16) for length in (400, 520, 900)]
    for name, signal in zip("abc", signals, strict=True):
        wav(root / name / "one.wav", signal)
    return root, signals


def test_recordings_as_samples(tmp_path: Path) -> None:
    folder, signals = recordings(tmp_path / "data")
    spec = replace(SPECS[Kind.SIGNAL], inputs=Inputs(Kind.SIGNAL, (1, 520)))
    found = own_files.load(folder, spec)
    assert found.x.dtype == np.int16 and found.y.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(found.x[0, 0], np.append(signals[0], np.zeros(120)))
    np.testing.assert_array_equal(found.x[1, 0], signals[1])
    np.testing.assert_array_equal(found.x[2, 0], signals[2][:520])
    other = own_files.load(folder, replace(spec, scale=1.0))
    assert other.x.dtype == np.float32
    np.testing.assert_allclose(other.x, found.x / 32768, rtol=1e-6)


@pytest.mark.parametrize("samples", [520, 599])
def test_recordings_as_log_mel_features(tmp_path: Path, samples: int) -> None:
    """The task's examples have 520 to 599 samples: the same five frames of 25 ms, one every 10 ms."""
    folder, signals = recordings(tmp_path / "data")
    log_mel = LogMel(8000, bands=8)
    spec = Spec(Inputs(Kind.FRAMES, log_mel.shape(samples)), 3, reading=Reading(rate=8000))
    found = own_files.load(folder, spec)
    assert spec.inputs.shape == (5, 8) and found.x.dtype == np.float32
    for x, signal in zip(found.x, signals, strict=True):
        whole = np.pad(signal, (0, 600))[:samples]
        np.testing.assert_array_equal(x, log_mel(whole / 32768))


def test_other_windows_give_other_features(tmp_path: Path) -> None:
    folder, _ = recordings(tmp_path / "data")
    first = Spec(Inputs(Kind.FRAMES, (3, 4)), 3, reading=Reading(rate=8000))
    second = replace(first, reading=Reading(rate=8000, window=20.0, step=15.0))
    assert not np.allclose(own_files.load(folder, first).x, own_files.load(folder, second).x)


def test_recordings_that_are_refused(tmp_path: Path) -> None:
    folder, _ = recordings(tmp_path / "data")
    spec = SPECS[Kind.FRAMES]
    assert "the task's sampling rate = 0 is not allowed" in refused(folder, replace(spec, reading=Reading()))
    two = replace(SPECS[Kind.SIGNAL], inputs=Inputs(Kind.SIGNAL, (2, 6)))
    assert "with one channel, but the task has 2; use an .npz file" in refused(folder, two)
    said = "one.wav has 8000 Hz, 1 channels and 16 bits, but must have 16000 Hz"
    assert said in refused(folder, replace(spec, reading=Reading(rate=16_000)))
    written(folder / "a/two.wav", b"RIFF")
    assert "two.wav is not a complete WAV file" in refused(folder, spec)
    (folder / "a/two.wav").rename(folder / "a/two.mp3")
    assert "two.mp3 cannot be an example: it must be a file whose name ends with .wav" in refused(folder, spec)


# ---------------------------------------------------------------- texts


def test_texts(tmp_path: Path) -> None:
    texts = ["The cat sat.", "naïve café", "one two three four five", "!"]
    for number, text in enumerate(texts):
        mark = "\ufeff" if number == 1 else ""
        written(tmp_path / "data" / ("good" if number < 3 else "bad") / f"{number}.txt", mark + text)
    found = own_files.load(tmp_path / "data", of_texts(names=("good", "bad")))
    assert found.y.tolist() == [0, 0, 0, 1]
    np.testing.assert_array_equal(found.x, tokens(texts, 4, 1000))
    assert found.x.dtype == np.uint16 and found.x[3].tolist() == [0] * 4


def test_texts_that_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    written(folder / "a/one.txt", "one")
    (folder / "b").mkdir()
    file = written(folder / "a/two.txt", b"abc\xff")
    assert f"{file}: byte 4 is not UTF-8; save the text as UTF-8" in refused(folder, of_texts())
    written(file, " \n")
    assert f"{file} is empty: delete it" in refused(folder, of_texts())
    file.unlink()
    written(folder / "b/page.html", "one")
    assert "page.html cannot be an example: it must be a file whose name ends with .txt" in refused(
        folder, of_texts()
    )
