"""The moments of a task's examples, inputs and values to predict together, and what a Spec needs of them."""

from __future__ import annotations

import sys

import numpy as np

from ..varying import Varies
from .columns import Column
from .inputs import Inputs, Kind
from .moments import Moments, moments, normalisation
from .spec import Spec, Target


def of_examples(x: np.ndarray, y: np.ndarray, spec: Spec) -> Moments:
    """The moments of each channel, feature or column of x (n, ...), then of each value to predict in y (n, k)."""
    inputs = moments(x, spec)
    if spec.target is not Target.VALUES:
        return inputs
    targets = moments(y, Spec(Inputs(Kind.TABLE, y.shape[1:]), spec.outputs))
    each = zip(vars(inputs).values(), vars(targets).values(), strict=True)
    return Moments(*(np.concatenate(pair) for pair in each))


def names(spec: Spec) -> list[str]:
    """The names of what `of_examples` has moments of, for messages to people."""
    columns = [Column.parse(text) for text in spec.reading.columns]
    own = [each for column in columns for each in (column.categories or [column.name])]
    count = spec.inputs.shape[0 if spec.inputs.kind in (Kind.IMAGE, Kind.SIGNAL) else -1]
    inputs = own if len(own) == count else [str(number) for number in range(count)]
    targets = spec.names or spec.reading.targets
    return [*inputs, *(targets if spec.target is Target.VALUES else ())]


def statistics(found: Moments, spec: Spec) -> dict[str, list[float]]:
    """Mean and standard deviation of inputs and of values to predict, for `Spec.with_statistics`.

    Without those that the Spec already has.
    """
    mean, std = (list(each) for each in normalisation(found))
    inputs = len(mean) - (spec.outputs if spec.target is Target.VALUES else 0)
    each = {"mean": mean[:inputs], "std": std[:inputs], "target_mean": mean[inputs:], "target_std": std[inputs:]}
    return {name: values for name, values in each.items() if values and not getattr(spec, name)}


def varies(spec: Spec) -> dict[str, Varies]:
    """What a message may say of the statistics that are still to be computed, by its key; the first one counts.

    Empty if there are none.
    """
    if not spec.federated:
        return {}
    nothing = np.zeros(len(names(spec)))
    found = statistics(Moments(nothing, nothing, nothing), spec)
    most = sys.float_info.max
    return {
        f"spec.{name}": Varies("float", -most, most, most_values=len(values), once=True)
        for name, values in found.items()
    }
