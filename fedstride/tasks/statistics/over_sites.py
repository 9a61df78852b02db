"""What is computed over all sites of a task's examples, and what a Spec needs of it.

These are the moments of inputs and values to predict together, and the bins of columns whose missing cells become
the median. Indicators of missing cells have none: they are 0 or 1 as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ReplyError
from ...messages.varying_values import Varies
from ..inputs import Inputs, Kind
from ..missing import MEDIAN
from ..spec import Spec, Target
from . import medians
from .medians import CellBins
from .moments import AXES, Moments, moments, normalisation

BINS = "moments.bins"
"""The key of the bins in a message."""


@dataclass(frozen=True)
class Report:
    """What a client says of its examples: moments, and the bins of each column with a median (`medians_of`)."""

    moments: Moments
    bins: Sequence[CellBins] = ()

    def flatten(self) -> dict[str, list[float]]:
        """As plain values of a message."""
        return self.moments.flatten() | ({BINS: medians.packed(self.bins)} if self.bins else {})

    @classmethod
    def unflatten(cls, record: Mapping[str, Any], spec: Spec) -> Report:
        """What `flatten` converted. Raises ReplyError for values that are missing or cannot be."""
        columns = len(medians_of(spec))
        if columns and BINS not in record:
            raise ReplyError(f"{BINS} is missing")
        bins = medians.unpacked(record[BINS], columns) if columns else ()
        return cls(Moments.unflatten(record, len(names(spec))), bins)


def report(x: np.ndarray, y: np.ndarray, spec: Spec, min_rows: int = 1) -> Report:
    """The moments of examples x (n, ...) with targets y as they are, and bins of at least `min_rows` cells."""
    bins = [medians.cells_of(x[:, at], min_rows) for at in medians_of(spec).values()]
    return Report(of_examples(x, y, spec), bins)


def of_examples(x: np.ndarray, y: np.ndarray, spec: Spec) -> Moments:
    """The moments of each channel, feature or column of x (n, ...), then of each value to predict in y (n, k)."""
    inputs = moments(measured(x, spec), spec)
    if spec.target is not Target.VALUES:
        return inputs
    targets = moments(y, Spec(Inputs(Kind.TABLE, y.shape[1:]), spec.outputs))
    pairs = zip(vars(inputs).values(), vars(targets).values(), strict=True)
    return Moments(*(np.concatenate(pair) for pair in pairs))


def columns_of(x: np.ndarray, y: np.ndarray, spec: Spec) -> list[np.ndarray]:
    """The values (n, ...) of each number of which `of_examples` has moments."""
    x = measured(x, spec)
    channels = next(axis for axis in range(x.ndim) if axis not in AXES[spec.inputs.kind])
    return [*np.moveaxis(x, channels, 0), *(y.T if spec.target is Target.VALUES else ())]


def names(spec: Spec) -> list[str]:
    """The names of what `of_examples` has moments of, for messages to people."""
    columns = list(spec.reading.signals)
    columns += [name for column in spec.reading.parsed for name in (column.categories or [column.name])]
    count = spec.inputs.shape[0 if spec.inputs.kind in (Kind.IMAGE, Kind.SIGNAL) else -1]
    count -= len(spec.reading.indicators)
    inputs = columns if len(columns) == count else [str(number) for number in range(count)]
    targets = spec.names or spec.reading.targets
    return [*inputs, *(targets if spec.target is Target.VALUES else ())]


def measured(x: np.ndarray, spec: Spec) -> np.ndarray:
    """Examples x (n, ...) without the indicators of missing cells, which are the last numbers of a row."""
    indicators = len(spec.reading.indicators)
    return x[:, : x.shape[1] - indicators] if indicators else x


def medians_of(spec: Spec) -> dict[str, int]:
    """The columns of numbers whose missing cells become the median: name, and place in an example."""
    reading, places, at = spec.reading, dict[str, int](), 0
    if not reading.columns and reading.missing == MEDIAN:
        return {name: place for place, name in enumerate(names(spec)[: spec.inputs.shape[0]])}
    for column in reading.parsed:
        if reading.rules[column.name].median and not column.categories:
            places[column.name] = at
        at += column.width
    return places


def statistics(total: Moments, spec: Spec) -> dict[str, list[float]]:
    """Mean and standard deviation of inputs and of values to predict, for `Spec.with_statistics`.

    Without those that the Spec already has.
    """
    mean, std = (list(values) for values in normalisation(total))
    inputs = len(mean) - (spec.outputs if spec.target is Target.VALUES else 0)
    as_they_are = len(spec.reading.indicators)
    by_name = {
        "mean": [*mean[:inputs], *[0.0] * as_they_are],
        "std": [*std[:inputs], *[1.0] * as_they_are],
        "target_mean": mean[inputs:],
        "target_std": std[inputs:],
    }
    return {name: values for name, values in by_name.items() if values and not getattr(spec, name)}


def fill(by_column: Mapping[str, float], mean: Sequence[float], spec: Spec) -> dict[str, list[float]]:
    """What replaces missing numbers, for `Spec.with_statistics`: these medians of columns, else `mean`.

    Empty if the Spec already has it, or no column needs it.
    """
    if spec.fill or not spec.reading.has_medians:
        return {}
    values, places = list(mean), medians_of(spec)
    for name, value in by_column.items():
        values[places[name]] = value
    return {"fill": values}


def varies(spec: Spec) -> dict[str, Varies]:
    """What a message may say of the statistics that are still to be computed, by its key; the first one counts.

    Empty if there are none.
    """
    if not spec.federated:
        return {}
    nothing = np.zeros(len(names(spec)))
    by_name = statistics(Moments(nothing, nothing, nothing), spec)
    by_name |= fill({}, [0.0] * spec.inputs.shape[0], spec)
    most = sys.float_info.max
    return {
        f"spec.{name}": Varies("float", -most, most, most_values=len(values), once=True)
        for name, values in by_name.items()
    }
