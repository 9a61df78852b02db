"""The small tables that scikit-learn's wheel contains: real data without a download."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ..cache import cached
from ..data import Data
from ..inputs import Inputs, Kind
from ..reading import Reading
from ..spec import Spec, Target
from .splits import TEST_SHARE, stratified

TARGET = "target"
"""The column of the targets, which scikit-learn names so in its own tables."""


class PublishedTable(NamedTuple):
    """A table as published: the names of its columns, rows (n, columns), targets, and the strata of the rows."""

    columns: Sequence[str]
    x: np.ndarray
    y: np.ndarray
    strata: np.ndarray


def breast_cancer() -> Data:
    """Breast cancer, Wisconsin (Wolberg et al. 1995): 569 rows of 30 columns; malignant (0) or benign (1).

    The columns describe the nuclei of cells in an image. 20 % of each class are for testing, always the same rows:
    456 for training, 113 for testing. Columns are normalised with the training rows' mean and standard deviation.
    Raises DataError if scikit-learn is not installed.
    """

    def make(datasets: Any) -> PublishedTable:
        table = datasets.load_breast_cancer()
        return PublishedTable(table.feature_names, table.data, table.target.astype(np.int64), table.target)

    return _data("breast_cancer", make, 2, Target.CLASS, ("malignant", "benign"))


def diabetes() -> Data:
    """Diabetes (Efron et al. 2004): 442 rows of 10 columns; a measure of progression after a year, to predict.

    Columns: age, sex, body mass index, blood pressure and six values of blood serum, in their published units.
    20 % are for testing, always the same rows: 354 for training, 88 for testing. Columns are normalised with the
    training rows' mean and standard deviation, and so is the target, 25 to 346. Usual learning rates then work,
    and predicting the mean has a loss of about 1; figures such as the RMSE are in the target's own unit.
    Raises DataError if scikit-learn is not installed.
    """

    def make(datasets: Any) -> PublishedTable:
        table = datasets.load_diabetes(scaled=False)
        y = table.target[:, None].astype(np.float32)
        return PublishedTable(table.feature_names, table.data, y, np.zeros(len(y), dtype=np.int64))

    return _data("diabetes", make, 1, Target.VALUES, ("progression",))


def _data(
    task: str, make: Callable[[Any], PublishedTable], outputs: int, target: Target, names: tuple[str, ...]
) -> Data:
    """The task of a table that `make` takes from scikit-learn's module of data sets."""
    arrays = _arrays(task, make)
    mean, std = (tuple(float(value) for value in arrays.pop(name)) for name in ("mean", "std"))
    columns = tuple(str(name) for name in arrays.pop("columns"))
    spec = Spec(
        Inputs(Kind.TABLE, (len(columns),)),
        outputs,
        target,
        mean,
        std,
        names=names,
        reading=Reading(columns=columns, targets=(TARGET,)),
    )
    if target is Target.VALUES:
        values = arrays["train_y"].astype(np.float64)
        spec = replace(spec, target_mean=tuple(values.mean(0).tolist()), target_std=tuple(values.std(0).tolist()))
    return Data(spec, **arrays, full_size=None)


def _arrays(task: str, make: Callable[[Any], PublishedTable]) -> dict[str, np.ndarray]:
    """The arrays of a table, the names of its columns, and mean and standard deviation of its training rows."""
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
        table = make(datasets)
        train, test = stratified(table.strata)
        rows = table.x.astype(np.float32)
        return {
            "train_x": rows[train],
            "train_y": table.y[train],
            "test_x": rows[test],
            "test_y": table.y[test],
            "mean": table.x[train].mean(0),
            "std": table.x[train].std(0),
            "columns": np.array(table.columns, dtype=np.str_),
        }

    return cached(task, {"scikit-learn": release, "share": TEST_SHARE, "with": "columns"}, split)
