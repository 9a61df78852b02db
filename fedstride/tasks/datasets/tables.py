"""The small tables that scikit-learn's wheel contains: real data without a download."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from ...errors import DataError
from ..cache import cached
from ..data import Data
from ..inputs import Inputs, Kind
from ..spec import Spec, Target
from .splits import TEST_SHARE, stratified

Table = tuple[np.ndarray, np.ndarray]
"""Rows (n, columns) and targets (n,)."""


def breast_cancer() -> Data:
    """Breast cancer, Wisconsin (Wolberg et al. 1995): 569 rows of 30 columns; malignant (0) or benign (1).

    The columns describe the nuclei of cells in an image. 20 % of each class are for testing, always the same rows:
    456 for training, 113 for testing. Columns are normalised with the training rows' mean and standard deviation.
    Raises DataError if scikit-learn is not installed.
    """

    def make(datasets: Any) -> tuple[Table, np.ndarray]:
        x, y = datasets.load_breast_cancer(return_X_y=True)
        return (x, y.astype(np.int64)), y

    arrays, mean, std = _arrays("breast_cancer", make)
    spec = Spec(Inputs(Kind.TABLE, (30,)), 2, mean=mean, std=std, names=("malignant", "benign"))
    return Data(spec, **arrays, full_size=None)


def diabetes() -> Data:
    """Diabetes (Efron et al. 2004): 442 rows of 10 columns; a measure of progression after a year, to predict.

    Columns: age, sex, body mass index, blood pressure and six values of blood serum, in their published units.
    20 % are for testing, always the same rows: 354 for training, 88 for testing. Columns are normalised with the
    training rows' mean and standard deviation, and so is the target, 25 to 346. Usual learning rates then work,
    and predicting the mean has a loss of about 1; figures such as the RMSE are in the target's own unit.
    Raises DataError if scikit-learn is not installed.
    """

    def make(datasets: Any) -> tuple[Table, np.ndarray]:
        x, y = datasets.load_diabetes(return_X_y=True, scaled=False)
        return (x, y[:, None].astype(np.float32)), np.zeros(len(y), dtype=np.int64)

    arrays, mean, std = _arrays("diabetes", make)
    y = arrays["train_y"].astype(np.float64)
    spec = Spec(
        Inputs(Kind.TABLE, (10,)),
        1,
        Target.VALUES,
        mean=mean,
        std=std,
        target_mean=(float(y.mean()),),
        target_std=(float(y.std()),),
        names=("progression",),
    )
    return Data(spec, **arrays, full_size=None)


def _arrays(
    task: str, make: Callable[[Any], tuple[Table, np.ndarray]]
) -> tuple[dict[str, np.ndarray], tuple[float, ...], tuple[float, ...]]:
    """The arrays of a table, with mean and standard deviation of each column of the training rows.

    `make` gets scikit-learn's module of data sets, and returns the table and the strata of its rows.
    """
    missing = f"task = {task!r} needs the package scikit-learn; pip install scikit-learn"
    try:
        release = version("scikit-learn")
    except PackageNotFoundError as error:
        raise DataError(missing) from error

    def split() -> dict[str, np.ndarray]:
        try:
            from sklearn import datasets  # imported here, because most processes read the arrays from the cache
        except ImportError as error:
            raise DataError(f"{missing} ({error})") from error
        (x, y), strata = make(datasets)
        train, test = stratified(strata)
        rows = x.astype(np.float32)
        return {
            "train_x": rows[train],
            "train_y": y[train],
            "test_x": rows[test],
            "test_y": y[test],
            "mean": x[train].mean(0),
            "std": x[train].std(0),
        }

    arrays = cached(task, {"scikit-learn": release, "share": TEST_SHARE}, split)
    mean, std = (tuple(float(value) for value in arrays.pop(name)) for name in ("mean", "std"))
    return arrays, mean, std
