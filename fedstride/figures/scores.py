"""Figures of predictions, such as accuracy and AUROC, computed from sums that add over batches and over clients.

A mean of the clients' AUROCs is not the AUROC of all their examples. So a client sends sums over its examples,
divided by their number (rates). The mean of the rates by number of examples is the rate of all examples, and
`finish` computes the figure from it. Accuracy and errors are their own rates. AUROC and average precision have no
such sums: a client sends bins of its scores (`score_bins.py`), and `pool` computes the figure of all from them.

This module needs no torch: `tasks/goals.py` computes the sums and the scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np

from ..errors import ConfigError
from ..parts import METRIC, USER_PARTS, Part
from . import figure, pooled_scores
from .calibration import Calibration, Reliability
from .concordance import CIndex
from .figure import Figure
from .pooled_scores import Pooled

Pool = Callable[[Sequence[Sequence[float]], Sequence[float]], Pooled]
"""(what each client sends, its weight) -> the figure of all clients' examples."""


@dataclass(frozen=True)
class Score:
    """A figure of predictions."""

    about: str
    better: Literal["larger", "smaller"] | None
    finish: Callable[[Sequence[float]], float] | None = None  # the figure, from rates; None: it is the only rate
    percent: bool = False  # how it is displayed
    most: float = math.inf  # largest possible rate; the smallest is 0, or -most if `signed`
    signed: bool = False
    pool: Pool | None = None  # the figure, from bins of scores or from states; without it, from rates
    figure: Figure | None = None  # what computes the states; then nothing else of the above but `about` is given
    unit: str = ""

    @property
    def has_bins(self) -> bool:
        """Whether clients send bins of scores."""
        return self.pool is not None and self.figure is None

    def of(self, rates: Sequence[float]) -> float:
        """The figure, from rates; at most `most`, which sums of rates exceed by rounding."""
        if self.finish is not None:
            value = self.finish(rates)
            return value if math.isnan(value) else min(self.most, max(-self.most, value))
        (rate,) = rates
        return rate


def _root(rates: Sequence[float]) -> float:
    (square,) = rates
    return math.sqrt(square)


def balanced_accuracy(rates: Sequence[float]) -> float:
    """The mean over classes of the share of right predictions; from examples and right ones of each class.

    Classes without examples do not count. NaN without examples.
    """
    examples, right = _split(rates, 2)
    return _mean(r / n for n, r in zip(examples, right, strict=True) if n > 0)


def f1(rates: Sequence[float]) -> float:
    """The mean of F1 = 2 r / (n + p) over classes or labels.

    `rates`: the examples n of each, then the predicted ones p, then the right ones r. Those that have no examples
    and are not predicted do not count. NaN if none does.
    """
    examples, predicted, right = _split(rates, 3)
    counts = zip(examples, predicted, right, strict=True)
    return _mean(2 * r / (n + p) for n, p, r in counts if n + p > 0)


def _of_each(one: Callable[[float, float, float], float]) -> Callable[[Sequence[float]], float]:
    """The mean of `one(examples, predicted, right)` over classes or labels; rates and exceptions as for `f1`."""

    def mean(rates: Sequence[float]) -> float:
        counts = zip(*_split(rates, 3), strict=True)
        return _mean(one(n, p, r) for n, p, r in counts if n + p > 0)

    return mean


precision = _of_each(lambda n, p, r: r / p if p > 0 else 0.0)
recall = _of_each(lambda n, p, r: r / n if n > 0 else 0.0)
jaccard = _of_each(lambda n, p, r: r / (n + p - r))
specificity = _of_each(lambda n, p, r: (1.0 - n - p + r) / (1.0 - n) if n < 1.0 else 0.0)


def cohen_kappa(rates: Sequence[float]) -> float:
    """(a - e) / (1 - e), with the accuracy a and that by chance, e; rates as for `f1`. NaN if e is 1."""
    examples, predicted, right = _split(rates, 3)
    chance = math.fsum(n * p for n, p in zip(examples, predicted, strict=True))
    return (math.fsum(right) - chance) / (1.0 - chance) if chance < 1.0 else math.nan


def matthews(rates: Sequence[float]) -> float:
    """Matthews' correlation of classes and predictions, in [-1, 1]; rates as for `f1`. NaN if one is constant."""
    examples, predicted, right = _split(rates, 3)
    together = math.fsum(right) - math.fsum(n * p for n, p in zip(examples, predicted, strict=True))
    varied = [1.0 - math.fsum(share * share for share in shares) for shares in (examples, predicted)]
    return together / math.sqrt(varied[0] * varied[1]) if min(varied) > 0 else math.nan


def exact_auroc(scores: np.ndarray, positive: np.ndarray) -> float:
    """The area under the ROC curve from all scores: a pair with equal scores counts half.

    `scores`: float64 (n, k), a column for each class or label; `positive`: bool (n, k). The mean over columns;
    those without negative or without positive examples do not count. NaN if none does.
    """
    return _mean(_exact_area(*column) for column in _columns(scores, positive))


def exact_average_precision(scores: np.ndarray, positive: np.ndarray) -> float:
    """The sum over distinct scores of (rise of the recall) x precision, from all scores; else as `exact_auroc`."""
    return _mean(_exact_precision(*column) for column in _columns(scores, positive))


def exact_sensitivity(percent: int) -> Callable[[np.ndarray, np.ndarray], float]:
    """The function for the sensitivity at a specificity of so many percent; else as `exact_auroc`.

    It is the largest share of positive examples with a score of at least t, over all t for which so many percent
    of the negative examples have a score below t.
    """

    def at(scores: np.ndarray, positive: np.ndarray) -> float:
        return _mean(_exact_detected(percent, *column) for column in _columns(scores, positive))

    return at


SPECIFICITIES: Final = (80, 85, 90, 95, 98, 99)
"""The specificities, in percent, at which there is a figure of the sensitivity."""

SENSITIVITIES: Final = {f"sensitivity_at_{percent}": percent for percent in SPECIFICITIES}

EXACT: Final[Mapping[str, Callable[[np.ndarray, np.ndarray], float]]] = {
    "auroc": exact_auroc,
    "average_precision": exact_average_precision,
    **{name: exact_sensitivity(percent) for name, percent in SENSITIVITIES.items()},
}
"""The figures that are exact where the scores themselves are; clients send bins of them."""


def _columns(scores: np.ndarray, positive: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each column: the negative and the positive examples with each distinct score, in rising order."""
    for k in range(scores.shape[1]):
        hits = positive[:, k]
        if 0 < np.count_nonzero(hits) < len(hits):
            _, place = np.unique(scores[:, k], return_inverse=True)
            counts = [np.bincount(place[chosen], minlength=place.max() + 1) for chosen in (~hits, hits)]
            yield counts[0], counts[1]


def _exact_area(negative: np.ndarray, positive: np.ndarray) -> float:
    """Whole numbers, twice the pairs, so that the only rounding is that of the division."""
    below = np.cumsum(negative) - negative
    twice = int(np.add.reduce(positive * (2 * below + negative)))  # int64: exact up to 10^9 examples
    return twice / (2 * int(negative.sum()) * int(positive.sum()))


def _exact_precision(negative: np.ndarray, positive: np.ndarray) -> float:
    right, above = np.cumsum(positive[::-1]), np.cumsum((negative + positive)[::-1])
    return math.fsum((positive[::-1] * (right / above)).tolist()) / int(right[-1])


def _exact_detected(percent: int, negative: np.ndarray, positive: np.ndarray) -> float:
    below = np.cumsum(negative) - negative  # below each distinct score
    enough = np.flatnonzero(100 * below >= percent * negative.sum())
    return int(positive[enough[0] :].sum()) / int(positive.sum()) if len(enough) else 0.0


def r2(rates: Sequence[float]) -> float:
    """1 - (mean squared error) / variance, the mean over outputs; from squared errors, values and their squares.

    Outputs that do not vary do not count. NaN if none does.
    """
    errors, values, squares = _split(rates, 3)
    outputs = ((e, s - v * v) for e, v, s in zip(errors, values, squares, strict=True))
    return _mean(1.0 - e / variance for e, variance in outputs if variance > 0)


def of_figure(name: str, state_figure: Figure, about: str = "") -> Score:
    """The properties of a figure that is computed from states."""

    def pool(clients: Sequence[Sequence[float]], weights: Sequence[float]) -> Pooled:
        return figure.pooled(state_figure, name, clients, weights)

    line = about or next(iter((type(state_figure).__doc__ or name).splitlines()))
    return Score(
        line,
        state_figure.better,
        percent=state_figure.unit == "%",
        pool=pool,
        figure=state_figure,
        unit=state_figure.unit,
    )


SCORES: Final[Mapping[str, Score]] = {
    "accuracy": Score("share of right predictions", "larger", percent=True, most=1.0),
    "balanced_accuracy": Score("mean over classes of the accuracy", "larger", balanced_accuracy, True, 1.0),
    "top5_accuracy": Score(
        "share of examples with their class among the five largest outputs", "larger", None, True, 1.0
    ),
    "f1": Score("mean over classes or labels of F1", "larger", f1, True, 1.0),
    "precision": Score("mean over classes or labels of the precision", "larger", precision, True, 1.0),
    "recall": Score("mean over classes or labels of the recall", "larger", recall, True, 1.0),
    "specificity": Score("mean over classes or labels of the specificity", "larger", specificity, True, 1.0),
    "jaccard": Score("mean over classes or labels of the Jaccard index", "larger", jaccard, True, 1.0),
    "cohen_kappa": Score("Cohen's kappa", "larger", cohen_kappa, most=1.0),
    "matthews": Score("Matthews' correlation coefficient", "larger", matthews, most=1.0),
    "auroc": Score("area under the ROC curve", "larger", most=1.0, pool=pooled_scores.auroc),
    "average_precision": Score(
        "area under the precision-recall curve", "larger", most=1.0, pool=pooled_scores.average_precision
    ),
    **{
        name: Score(
            f"sensitivity at a specificity of {percent} %",
            "larger",
            percent=True,
            most=1.0,
            pool=pooled_scores.sensitivity(percent),
        )
        for name, percent in SENSITIVITIES.items()
    },
    "brier": Score("mean squared error of probabilities", "smaller", most=2.0),
    **{
        name: of_figure(name, state_figure)
        for name, state_figure in (
            ("calibration", Calibration()),
            ("reliability", Reliability()),
            ("c_index", CIndex()),
        )
    },
    "rmse": Score("root of the mean squared error", "smaller", _root),
    "mae": Score("mean absolute error", "smaller"),
    "r2": Score("share of explained variance", "larger", r2, signed=True),
}
"""All built-in figures by name; `Target` says which a task can have (tasks/goals.py)."""


def score_of(name: str) -> Score | None:
    """The built-in figure of this name, or the user-defined one of a loaded file; None if there is none."""
    if name in SCORES:
        return SCORES[name]
    part = USER_PARTS.get(METRIC, {}).get(name)
    return None if part is None else _own(part)


@lru_cache(maxsize=64)
def _own(part: Part) -> Score:
    return of_figure(part.name, own_figure(part), part.about)


def own_figure(part: Part) -> Figure:
    """The figure of a user-defined part. Raises ConfigError if it is none."""
    if not (isinstance(part.place, type) and issubclass(part.place, Figure)):
        raise ConfigError(
            f"metric = {part.name!r} is not a class derived from Figure (from fedstride import Figure)"
        )
    missing = [method for method in ("state", "value") if getattr(part.place, method) is getattr(Figure, method)]
    if missing:
        raise ConfigError(
            f"metric = {part.name!r} has no {' and no '.join(missing)}; write it, as fedstride.Figure says"
        )
    if part.place.better not in ("larger", "smaller", None):
        raise ConfigError(
            f"metric = {part.name!r}: better = {part.place.better!r} must be 'larger', 'smaller' or None"
        )
    state_figure: Figure = part.place()
    return state_figure


def _split(rates: Sequence[float], count: int) -> list[Sequence[float]]:
    length = len(rates) // count
    return [rates[i * length : (i + 1) * length] for i in range(count)]


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else math.nan
