"""An `.npz` file with the arrays x and y, or images and labels."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from ....errors import DataError
from ...evaluation.holdout import digests_of
from ...inputs import Kind
from ...spec import Spec
from ..checks import quoted, stored_examples, stored_targets
from ..reader_result import ReaderResult

SUFFIX = ".npz"
NAMES = ("x", "y")
IMAGE_NAMES = ("images", "labels")
"""The names of the two arrays; the second ones for images only."""


def read(path: Path, spec: Spec) -> ReaderResult:
    """The examples. Raises DataError, with file and array, for arrays that do not fit the task."""
    (x_name, x), (y_name, y) = _arrays(path, spec).items()
    examples = stored_examples(x, spec, f"{path}: {x_name}")
    targets = stored_targets(y, len(examples), spec, f"{path}: {y_name}")
    digests = digests_of(x, y)
    return ReaderResult(examples, targets, digests, digests)


def inputs(path: Path, spec: Spec) -> np.ndarray:
    """The examples alone, as they are in the file, which needs no targets. Raises DataError if there are none."""
    return next(iter(_arrays(path, spec, with_targets=False).values()))


def _arrays(path: Path, spec: Spec, *, with_targets: bool = True) -> dict[str, np.ndarray]:
    """The arrays by their names in the file, as they are there."""
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not a readable .npz file; write it with numpy.savez_compressed")
    try:
        with path.open("rb") as whole, np.load(whole, allow_pickle=False) as file:
            return {name: np.asarray(file[name]) for name in _names(path, list(file), spec, with_targets)}
    except (OSError, ValueError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{path} is not a readable .npz file: {reason[:200]}") from error


def _names(path: Path, names: list[str], spec: Spec, with_targets: bool) -> tuple[str, ...]:
    """The names of the arrays in this file: those of which it has the first."""
    both = (NAMES, IMAGE_NAMES) if spec.inputs.kind is Kind.IMAGE else (NAMES,)
    pairs = both if with_targets else tuple(pair[:1] for pair in both)
    pair = next((pair for pair in pairs if pair[0] in names), pairs[0])
    missing = [name for name in pair if name not in names]
    if missing:
        needed = " or ".join(" and ".join(pair) for pair in pairs)
        raise DataError(
            f"{path} has no array {missing[0]!r}: it contains {quoted(', '.join(sorted(names)))}, but needs "
            f"{needed}"
        )
    return pair
