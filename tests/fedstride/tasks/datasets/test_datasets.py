"""Readers of published data sets: the real bytes where they are at hand, else small files in the real layout."""

from __future__ import annotations

import gzip
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from real_data import REAL, load, real, refused

from fedstride.errors import ConfigError, DataError
from fedstride.tasks import data
from fedstride.tasks.datasets import cifar, folders, idx
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.registry import TASKS

pytestmark = pytest.mark.usefixtures("forgotten_data")


# ---------------------------------------------------------------- the real bytes


@pytest.mark.slow
@real
@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        ("mnist", [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949], 10_000),
        ("fashion_mnist", [6000] * 10, 10_000),
        ("cifar10", [500] * 10, 1_000),
        ("cifar100", [25] * 100, 500),
    ],
)
def test_the_published_sets(name: str, train: list[int], test: int) -> None:
    found = load(name, REAL)
    assert np.bincount(found.train_y).tolist() == train
    assert (len(found.test_x), len(found.test_y)) == (test, test)
    assert (found.train_x.dtype, found.train_y.dtype, found.spec.classes) == (np.uint8, np.int64, len(train))
    shape = (1, 28, 28) if "mnist" in name else (3, 32, 32)
    assert found.spec.inputs == Inputs(Kind.IMAGE, shape)
    scaled = found.train_x / 255.0
    np.testing.assert_allclose(scaled.mean((0, 2, 3)), found.spec.mean, atol=0.01)  # of a subset, too
    np.testing.assert_allclose(scaled.std((0, 2, 3)), found.spec.std, atol=0.01)
    whole = 50_000 if "cifar" in name else None
    assert found.subset == (f"a subset: {sum(train):,} of {whole:,} training examples" if whole else "")


@pytest.mark.slow
@real
def test_the_folder_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSTRIDE_DATA", str(REAL))
    assert len(data.load(TASKS.config("fashion_mnist")()).train_y) == 60_000


@pytest.mark.slow
@real
def test_unpacked_files_are_read_too_and_give_the_same_arrays(tmp_path: Path) -> None:
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for file in (REAL / "MNIST" / "raw").iterdir():
        (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    assert np.array_equal(load("mnist", tmp_path).test_x, load("mnist", REAL).test_x)


@real
def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    shutil.copytree(REAL / "MNIST", tmp_path / "MNIST", copy_function=shutil.copyfile)
    file = tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte.gz"
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(bytes(content))
    assert f"{file} is damaged: it does not have the published MD5" in refused("mnist", tmp_path)
    file.unlink()
    assert "t10k-labels-idx1-ubyte missing in" in refused("mnist", tmp_path)


# ---------------------------------------------------------------- IDX files


def write_idx(path: Path, array: np.ndarray, packed: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()
    path = path.with_name(f"{path.name}.gz") if packed else path
    path.write_bytes(gzip.compress(content) if packed else content)


def write_emnist(root: Path, labels: list[int], packed: bool = True) -> np.ndarray:
    images = np.random.default_rng(0).integers(0, 256, (len(labels), 28, 28)).astype(np.uint8)
    for part in ("train", "test"):
        start = root / "EMNIST" / "raw" / f"emnist-byclass-{part}"
        write_idx(start.with_name(f"{start.name}-images-idx3-ubyte"), images, packed)
        write_idx(start.with_name(f"{start.name}-labels-idx1-ubyte"), np.array(labels, np.uint8), packed)
    return images


@pytest.mark.parametrize("packed", [True, False])
def test_emnist_is_upright(tmp_path: Path, packed: bool) -> None:
    images = write_emnist(tmp_path, [0, 10, 61], packed)
    found = load("emnist", tmp_path)
    assert found.spec.classes == 62
    assert found.train_y.tolist() == [0, 10, 61]
    assert np.array_equal(found.train_x[:, 0], images.transpose(0, 2, 1))


def test_a_label_outside_the_classes(tmp_path: Path) -> None:
    write_emnist(tmp_path, [0, 62])
    assert "label 62 is not allowed: emnist has 62 classes" in refused("emnist", tmp_path)


def test_as_many_labels_as_images(tmp_path: Path) -> None:
    write_emnist(tmp_path, [0, 1, 2])
    write_idx(tmp_path / "EMNIST/raw/emnist-byclass-test-labels-idx1-ubyte", np.zeros(2, np.uint8), packed=True)
    assert "has 3 images, but" in refused("emnist", tmp_path)


@pytest.mark.parametrize("cut", [0, 3, 20, -1])
def test_a_truncated_idx_file(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "images-idx3-ubyte"
    write_idx(path, np.ones((2, 3, 4), np.uint8))
    assert idx.read(path, 3).shape == (2, 3, 4)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=f"{path} is not a complete IDX file"):
        idx.read(path, 3)


def test_a_truncated_packed_file(tmp_path: Path) -> None:
    path = tmp_path / "images-idx3-ubyte.gz"
    write_idx(tmp_path / "images-idx3-ubyte", np.ones((2, 3, 4), np.uint8), packed=True)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=f"{path} is damaged or cannot be read"):
        idx.read(path, 3)


def test_an_idx_file_of_other_numbers(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes((0, 0, 13, 1)) + np.array([1], ">u4").tobytes() + b"abcd")
    with pytest.raises(DataError, match="not a complete IDX file of bytes"):
        idx.read(path, 1)


# ---------------------------------------------------------------- CIFAR


def write_cifar(root: Path, rows: int = 2, **changes: Any) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*cifar.TRAIN10, *cifar.TEST10):
        batch = {"data": np.full((rows, 3072), 7, np.uint8), "labels": [k % 10 for k in range(rows)], **changes}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))


def test_a_subset_in_the_published_layout(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    found = load("cifar10", tmp_path)
    assert (found.train_x.shape, found.test_x.shape) == ((10, 3, 32, 32), (2, 3, 32, 32))
    assert found.subset == "a subset: 10 of 50,000 training examples"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": [0, 10]}, "label 10 is not allowed"),
        ({"labels": [0, -1]}, "label -1 is not allowed"),
        ({"labels": [0]}, "labels of shape (1,)"),
        ({"data": np.zeros((2, 3072), np.float32)}, "dtype float32"),
        ({"data": np.zeros((2, 3071), np.uint8)}, "shape (2, 3071)"),
        ({"data": None}, "must have uint8"),
        ({"labels": Path("x")}, "which no published batch contains"),
    ],
)
def test_a_batch_that_does_not_fit(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    write_cifar(tmp_path, **changes)
    text = refused("cifar10", tmp_path)
    assert said in text and "data_batch_1" in text


@pytest.mark.slow
def test_a_whole_batch_must_have_its_checksum(tmp_path: Path) -> None:
    write_cifar(tmp_path, rows=10_000)
    assert "data_batch_1 is damaged: it does not have the published MD5" in refused("cifar10", tmp_path)


def test_a_truncated_batch(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    path.write_bytes(path.read_bytes()[:-100])
    assert f"{path} is not a complete CIFAR batch" in refused("cifar10", tmp_path)


# ---------------------------------------------------------------- folders of images


def write_image(path: Path, side: int, color: int = 3) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (side, side), (color, 0, 255)).save(path, quality=100)


def write_cinic10(root: Path) -> None:
    for part, count in (("train", 2), ("valid", 1), ("test", 1)):
        for label, name in enumerate(folders.CINIC10_CLASSES):
            for k in range(count):
                write_image(root / "CINIC-10" / part / name / f"cifar10-{k}.png", 32, label)


def test_cinic10(tmp_path: Path) -> None:
    write_cinic10(tmp_path)
    found = load("cinic10", tmp_path)
    assert (found.train_x.shape, found.test_x.shape) == ((20, 3, 32, 32), (10, 3, 32, 32))
    assert found.train_y.tolist() == [label for label in range(10) for _ in range(2)]
    assert found.train_x[:, 0, 0, 0].tolist() == found.train_y.tolist()
    assert found.subset == "a subset: 20 of 90,000 training examples"
    shutil.rmtree(tmp_path / "CINIC-10" / "test" / "ship")
    assert f"{tmp_path}/CINIC-10/test/ship missing" in refused("cinic10", tmp_path)


def test_an_image_of_another_size_or_a_damaged_one_is_named(tmp_path: Path) -> None:
    write_cinic10(tmp_path)
    file = tmp_path / "CINIC-10" / "train" / "cat" / "cifar10-0.png"
    write_image(file, 31)
    assert f"{file} has size 31x31, but must have 32x32" in refused("cinic10", tmp_path)
    file.write_bytes(file.read_bytes()[:-60])
    assert f"{file} is not a readable image" in refused("cinic10", tmp_path) or "31x31" in refused(
        "cinic10", tmp_path
    )


def write_tiny(root: Path) -> list[str]:
    folder = root / "tiny-imagenet-200"
    names = [f"n{k:08d}" for k in range(200)]
    for k, name in enumerate(names):
        write_image(folder / "train" / name / "images" / f"{name}_0.JPEG", 64, k)
    for k in (3, 1):
        write_image(folder / "val" / "images" / f"val_{k}.JPEG", 64, k)
    (folder / "wnids.txt").write_text("\n".join(names) + "\n")
    lines = [f"val_{k}.JPEG\t{names[k]}\t0\t0\t62\t57" for k in (3, 1)]
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    return names


def test_tiny_imagenet(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    found = load("tiny_imagenet", tmp_path)
    assert (found.train_x.shape, found.test_x.shape) == ((200, 3, 64, 64), (2, 3, 64, 64))
    assert (found.train_y.tolist(), found.test_y.tolist()) == (list(range(200)), [3, 1])
    annotations = tmp_path / "tiny-imagenet-200" / "val" / "val_annotations.txt"
    annotations.write_text("val_3.JPEG\tn99\n")
    assert f"{annotations}, line 1: " in refused("tiny_imagenet", tmp_path)
    (tmp_path / "tiny-imagenet-200" / "wnids.txt").write_text("n00000000\n")
    assert "has 1 classes, but Tiny-ImageNet has 200" in refused("tiny_imagenet", tmp_path)


# ---------------------------------------------------------------- where the files are

ON_DISK = [name for name in TASKS if "root" in TASKS.fields(name)]


@pytest.mark.parametrize("name", ON_DISK)
def test_without_a_folder_the_error_says_what_to_set(name: str) -> None:
    with pytest.raises(ConfigError, match=f"task = '{name}' reads files, .* task.root=FOLDER .* FEDSTRIDE_DATA"):
        data.load(TASKS.config(name)())


@pytest.mark.parametrize("name", ON_DISK)
def test_missing_files_are_named_with_where_to_get_them(name: str, tmp_path: Path) -> None:
    text = refused(name, tmp_path)
    assert "missing" in text and "http" in text and str(tmp_path) in text


def test_a_folder_that_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "task.root = " in refused("mnist", tmp_path / "x")
    monkeypatch.setenv("FEDSTRIDE_DATA", str(tmp_path / "y"))
    with pytest.raises(ConfigError, match=r"FEDSTRIDE_DATA = .*/y' is not allowed"):
        data.load(TASKS.config("mnist")())


def test_a_download_without_torchvision_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    said = r"task.download = True needs torchvision.* get the data from http"
    with pytest.raises(DataError, match=said) as caught:
        data.load(TASKS.config("mnist")(root=str(tmp_path), download=True))
    assert "\n" not in str(caught.value)


def test_a_second_process_reads_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar(tmp_path)
    load("cifar10", tmp_path)
    data._load.cache_clear()
    monkeypatch.setattr(cifar, "read", lambda *arguments: pytest.fail("read again"))
    assert isinstance(load("cifar10", tmp_path).train_x, np.memmap)
