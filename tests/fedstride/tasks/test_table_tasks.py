"""The tables of scikit-learn as tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch

from fedstride.errors import DataError
from fedstride.tasks import data
from fedstride.tasks.datasets import tables
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.registry import MODELS, TASKS
from fedstride.tasks.spec import Target

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    data._load.cache_clear()
    yield
    data._load.cache_clear()


def load(name: str) -> data.Data:
    return data.load(TASKS.config(name)())


def test_breast_cancer() -> None:
    found = load("breast_cancer")
    assert found.spec.inputs == Inputs(Kind.TABLE, (30,))
    assert (found.spec.target, found.spec.classes, found.spec.names) == (Target.CLASS, 2, ("malignant", "benign"))
    assert np.bincount(found.train_y).tolist() == [170, 286]
    assert np.bincount(found.test_y).tolist() == [42, 71]
    assert (found.train_x.dtype, found.train_y.dtype, found.subset) == (np.float32, np.int64, "")
    # The first row of the published file: malignant, mean radius 17.99, mean texture 10.38.
    rows, labels = np.concatenate([found.train_x, found.test_x]), np.concatenate([found.train_y, found.test_y])
    (row,) = np.flatnonzero((rows[:, 0] == np.float32(17.99)) & (rows[:, 1] == np.float32(10.38)))
    assert labels[row] == 0


def test_diabetes() -> None:
    found = load("diabetes")
    assert found.spec.inputs == Inputs(Kind.TABLE, (10,))
    assert (found.spec.target, found.spec.outputs, found.spec.classes) == (Target.VALUES, 1, 0)
    assert (found.train_x.shape, found.test_x.shape) == ((354, 10), (88, 10))
    assert (found.train_y.dtype, found.train_y.shape, found.test_y.shape) == (np.float32, (354, 1), (88, 1))
    assert (found.train_y.min(), found.test_y.max()) == (25, 346)
    assert found.spec.target_mean == pytest.approx((found.train_y.mean(),))
    assert found.divisible.labels is None
    assert set(np.unique(found.train_x[:, 1]).tolist()) == {1, 2}  # sex, in the published unit


@pytest.mark.parametrize(("name", "outputs"), [("breast_cancer", 2), ("diabetes", 1)])
@pytest.mark.parametrize("model", ["mlp", "svm"])
def test_the_networks_take_the_rows(name: str, outputs: int, model: str) -> None:
    found = load(name)
    x, y = Examples(found.train_x, found.train_y, found.spec, device=CPU).batch(np.arange(len(found.train_x)))
    assert x.mean(0).abs().max() < 1e-4
    assert (x.std(0, correction=0) - 1).abs().max() < 1e-4
    assert y.dtype == (torch.int64 if outputs == 2 else torch.float32)
    if outputs == 1:
        assert (float(y.mean()), float(y.std(correction=0))) == pytest.approx((0, 1), abs=1e-5)
    assert MODELS.make(MODELS.config(model)(), found.spec.inputs, outputs)(x).shape == (len(x), outputs)


@pytest.mark.parametrize("name", ["breast_cancer", "diabetes"])
def test_a_linear_model_learns_the_task(name: str) -> None:
    """Least squares on the prepared rows: the columns belong to their targets."""
    found = load(name)
    x, y = (
        Examples(each, target, found.spec, device=CPU).batch(np.arange(len(each)))
        for each, target in ((found.train_x, found.train_y), (found.test_x, found.test_y))
    )
    train, test = (torch.cat([rows, torch.ones(len(rows), 1)], 1).double() for rows, _ in (x, y))
    weights = torch.linalg.lstsq(train, x[1].double().reshape(len(train), -1)).solution
    predicted, expected = test @ weights, y[1].double().reshape(len(test), -1)
    if name == "breast_cancer":
        assert float(((predicted > 0.5) == (expected > 0.5)).double().mean()) > 0.92
    else:
        assert 0.3 < 1 - float(((predicted - expected) ** 2).mean() / expected.var(correction=0)) < 0.7


def test_scikit_learn_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(tmp_path))
    said = "task = 'diabetes' needs the package scikit-learn; pip install scikit-learn"
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(DataError, match=said):
        load("diabetes")

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(tables, "version", missing)
    with pytest.raises(DataError, match=said):
        load("diabetes")


def test_a_second_process_does_not_import_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    first = load("breast_cancer")
    data._load.cache_clear()
    monkeypatch.setitem(sys.modules, "sklearn", None)
    second = load("breast_cancer")
    assert isinstance(second.train_x, np.memmap)
    assert np.array_equal(first.test_x, second.test_x)
