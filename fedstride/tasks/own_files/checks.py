"""Checks arrays that a user made, and converts them to a task's stored form."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ...errors import DataError
from ..forms.tokens import dtype_for
from ..inputs import Kind
from ..missing import ERROR, with_indicators
from ..reading import Reading
from ..spec import Spec, Target

KEPT = {Kind.IMAGE: np.uint8, Kind.SIGNAL: np.int16}
"""The dtype that is stored as it is, because it is smaller than float32."""


def quoted(text: str, limit: int = 60) -> str:
    """A text of a file for an error message: shortened, in quotes, without line breaks."""
    return repr(text if len(text) <= limit else f"{text[:limit]}...")


def stored_examples(x: np.ndarray, spec: Spec, where: str) -> np.ndarray:
    """Examples (n, ...) in the stored form. Raises DataError, which begins with `where`, if they do not fit."""
    kind, shape = spec.inputs.kind, spec.inputs.shape
    if indicators := len(spec.reading.indicators):  # they are made from the other numbers
        shape = (shape[0] - indicators,)
    _require_numbers(x, where)
    if kind is Kind.IMAGE:
        x = _channels_first(x, shape, where)
    elif x.shape[1:] != shape:
        raise DataError(f"{where} has shape {x.shape}, but this task needs (n, {', '.join(map(str, shape))})")
    if not len(x):
        raise DataError(f"{where} contains no examples")
    if kind is Kind.TOKENS:
        return _tokens(x, spec.inputs.vocabulary, where)
    if kind in (Kind.IMAGE, Kind.SIGNAL):
        _require_scale(x, spec, where)
    if kind in KEPT and x.dtype == KEPT[kind]:
        return np.ascontiguousarray(x)
    return _table(x, spec.reading, where) if kind is Kind.TABLE else as_float32(x, where)


def _table(x: np.ndarray, reading: Reading, where: str) -> np.ndarray:
    """The rows of a table, with the indicators of missing cells."""
    values, start = as_float32(x, where, may_be_missing=reading.may_be_missing), 0
    for column in reading.parsed:
        if reading.rules[column.name].fill == ERROR:
            as_float32(values[:, start : start + column.width], f"{where}, column {quoted(column.name)}")
        start += column.width
    return with_indicators(values, reading.parsed, reading.rules)


def stored_targets(y: np.ndarray, count: int, spec: Spec, where: str) -> np.ndarray:
    """Targets of `count` examples as `spec.target` says. Raises DataError, which begins with `where`."""
    return _TARGETS[spec.target](y, count, spec, where)


def as_float32(x: np.ndarray, where: str, *, may_be_missing: bool = False) -> np.ndarray:
    """The values as float32. Raises DataError for infinite and too large values, and for NaN unless allowed."""
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(x, dtype=np.float32)
    allowed = np.isfinite(values) | np.isnan(x) if may_be_missing else np.isfinite(values)
    if not allowed.all():
        place = np.unravel_index(int(np.argmin(allowed)), allowed.shape)
        raise DataError(
            f"{where} contains {x[place]} at {tuple(int(i) for i in place)}: every value must be finite in float32"
            + (", or NaN if it is missing" if may_be_missing else "")
        )
    return values


def _require_numbers(x: np.ndarray, where: str) -> None:
    if x.dtype.kind not in "iuf":
        raise DataError(f"{where} has dtype {x.dtype}, but must have numbers (whole ones or floats)")


def _require_scale(x: np.ndarray, spec: Spec, where: str) -> None:
    """Refuse values that are in another unit than the task's: 0 to 255 for images of bytes."""
    low, high = x.min(), x.max()
    if x.dtype.kind == "f" and spec.scale > 1 and 0 < max(abs(low), abs(high)) <= 1:
        raise DataError(
            f"{where} has values from {low:g} to {high:g}, but those of this task go up to {spec.scale:g}; "
            f"multiply them by {spec.scale:g}"
        )
    if spec.inputs.kind is Kind.IMAGE and spec.scale == 255 and (low < 0 or high > 255):
        raise DataError(f"{where} has values from {low:g} to {high:g}, but those of this task are 0 to 255")


def _channels_first(images: np.ndarray, shape: tuple[int, ...], where: str) -> np.ndarray:
    """Images of shape (n, h, w), (n, h, w, c) or (n, c, h, w) as (n, c, h, w); the task's shape decides which."""
    channels, height, width = shape
    if images.shape[1:] == shape:
        return images
    if images.shape[1:] == (height, width, channels):
        return np.moveaxis(images, -1, 1)
    if channels == 1 and images.shape[1:] == (height, width):
        return images[:, None]
    allowed = [f"(n, {channels}, {height}, {width})", f"(n, {height}, {width}, {channels})"]
    allowed += [f"(n, {height}, {width})"] * (channels == 1)
    raise DataError(f"{where} has shape {images.shape}, but this task needs {' or '.join(allowed)}")


def _tokens(x: np.ndarray, vocabulary: int, where: str) -> np.ndarray:
    allowed = (x >= 0) & (x < vocabulary) & (x == np.floor(x))
    if not allowed.all():
        raise DataError(
            f"{where} contains {x[~allowed][0]}: tokens must be whole numbers from 0 to {vocabulary - 1}"
        )
    return np.ascontiguousarray(x, dtype=dtype_for(vocabulary))


# ---------------------------------------------------------------- targets


def _classes(y: np.ndarray, count: int, spec: Spec, where: str) -> np.ndarray:
    if y.shape != (count,) or y.dtype.kind not in "iu":
        raise DataError(
            f"{where} has dtype {y.dtype} and shape {y.shape}, but must be {count} whole numbers, one for each "
            "example"
        )
    outside = y[(y < 0) | (y >= spec.outputs)]
    if len(outside):
        raise DataError(
            f"{where}: label {outside[0]} is not allowed: the task has classes 0 to {spec.outputs - 1}"
        )
    return y.astype(np.int64)


def _labels(y: np.ndarray, count: int, spec: Spec, where: str) -> np.ndarray:
    if y.shape != (count, spec.outputs) or y.dtype.kind not in "biuf":
        raise DataError(
            f"{where} has dtype {y.dtype} and shape {y.shape}, but must be {count} rows of {spec.outputs} labels, "
            "each 0 or 1"
        )
    wrong = y[(y != 0) & (y != 1)]
    if len(wrong):
        raise DataError(f"{where} contains {wrong[0]}, but each label must be 0 or 1")
    return y.astype(np.uint8)


def _values(y: np.ndarray, count: int, spec: Spec, where: str) -> np.ndarray:
    _require_numbers(y, where)
    if y.shape == (count,) and spec.outputs == 1:
        y = y[:, None]
    if y.shape != (count, spec.outputs):
        raise DataError(f"{where} has shape {y.shape}, but must be {count} rows of {spec.outputs} values")
    return as_float32(y, where)


def _survival(y: np.ndarray, count: int, spec: Spec, where: str) -> np.ndarray:
    _require_numbers(y, where)
    if y.shape != (count, spec.targets):
        raise DataError(f"{where} has shape {y.shape}, but must be {count} rows of a time and an event")
    if len(wrong := y[:, 0][y[:, 0] < 0]):
        raise DataError(f"{where} contains the time {wrong[0]}, but each time must be at least 0")
    if len(wrong := y[:, 1][(y[:, 1] != 0) & (y[:, 1] != 1)]):
        raise DataError(f"{where} contains the event {wrong[0]}, but each must be 1, or 0 if none was seen")
    return as_float32(y, where)


_TARGETS: Mapping[Target, Callable[[np.ndarray, int, Spec, str], np.ndarray]] = {
    Target.CLASS: _classes,
    Target.LABELS: _labels,
    Target.VALUES: _values,
    Target.SURVIVAL: _survival,
}
