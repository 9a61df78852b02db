"""What a client does not say because only a few of its examples would be behind it.

`least` is the smallest number of examples of which a site says something (`min_rows` of its policy); with 1,
nothing is withheld. A number that is left out must not follow from what is said beside it. So counts are not left
out: they are rounded, or given to another class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from fedstride.errors import ConfigError, DataError
from fedstride.figures.scores import SCORES
from fedstride.tasks.evaluation.measuring import Evaluation
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.spec import Target
from fedstride.tasks.statistics.class_moments import ClassMoments

Step = tuple[np.ndarray, float]
"""The positions of a mini-batch, and its rate."""


def figures(evaluation: Evaluation, examples: Examples, least: int) -> dict[str, float | list[float]]:
    """The figures of these examples that may leave.

    A figure that is made from counts of classes or labels leaves only if each one that has examples, and of labels
    each one that some examples do not have, has at least `least`; and so for each count. Each
    bin of scores has as many, negative and positive examples together, and the outermost bins are open
    (`score_bins.py`). A state leaves as its figure says (`Figure.discreet`). Loss, accuracy and the Brier score
    leave as they are: of models made for that, they say more.
    """
    reported = evaluation.reported(least)
    if least <= 1 or examples.spec.target in (Target.VALUES, Target.SURVIVAL):
        return reported
    few = any(0 < count < least for count in _sizes(examples))
    kept = dict(reported)
    for name, value in reported.items():
        if not isinstance(value, list):
            continue
        if few or (
            name not in evaluation.states and not _has_bins(name) and _has_few(value, len(examples), least)
        ):
            del kept[name]
    return kept


def _has_bins(name: str) -> bool:
    return name in SCORES and SCORES[name].has_bins


def _has_few(rates: list[float], count: int, least: int) -> bool:
    """Whether one of these shares of `count` examples is of fewer than `least`, and not of none."""
    return any(0 < round(rate * count) < least for rate in rates)


def label_counts(counts: np.ndarray, least: int) -> np.ndarray:
    """Counts of classes, in which the examples of classes with fewer than `least` belong to the largest class."""
    few = (counts > 0) & (counts < least)
    merged = np.where(few, 0, counts)
    merged[np.argmax(counts)] += counts[few].sum()
    return merged


def class_moments(moments: ClassMoments, least: int) -> ClassMoments:
    """The moments of the classes with at least `least` examples; counts are rounded down to a multiple of it.

    Raises ConfigError if there is no such class.
    """
    enough = moments.counts >= least
    if not enough.any():
        raise ConfigError(
            f"no class has min_rows = {least} examples at this node, so it reports no moments of classes; set "
            "calibration=none"
        )
    counts = moments.counts[enough] // least * least
    return ClassMoments(moments.classes[enough], counts, moments.means[enough], moments.covariances[enough])


def check_size(count: int, least: int, purpose: str) -> None:
    """Raise DataError if a client would `purpose` (train, measure) on fewer than `least` examples.

    A node looks at this before it starts the client; this is the second look.
    """
    if count < least and least > 1:
        raise DataError(f"this client would {purpose} on {count} examples; its node demands min_rows = {least}")


def of_enough(steps: Iterable[Step], least: int) -> Iterator[Step]:
    """The same steps, each of at least `least` examples: a smaller one is joined to the one before it.

    Otherwise the model after a step could be made to say what a few examples contain. Raises ConfigError if all
    steps together have fewer.
    """
    held: Step | None = None
    for positions, rate in steps:
        if held is None:
            held = positions, rate
        elif min(len(positions), len(held[0])) < least:
            held = np.concatenate([held[0], positions]), held[1]
        else:
            yield held
            held = positions, rate
    if held is None:
        return
    if len(held[0]) < least:
        raise ConfigError(
            f"the update would be of {len(held[0])} examples, and this node demands min_rows = {least}; use "
            "larger batches or more steps",
            key="client.batch_size",
        )
    yield held


def _sizes(examples: Examples) -> list[int]:
    """The number of examples of each class; of each label, those that have it and those that have it not."""
    if examples.spec.target is Target.CLASS:
        return list(map(int, examples.class_counts()))
    have = examples.y[examples.members].astype(np.int64).sum(0)
    return [*map(int, have), *map(int, len(examples) - have)]
