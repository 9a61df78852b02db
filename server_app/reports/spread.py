"""How far the figures of a federated evaluation are apart: over the clients, and by the number of their rows."""

from __future__ import annotations

import numpy as np

from fedstride.figures.intervals_by_counts import deviation_from_bins
from fedstride.figures.metrics import DEVIATION, SMALLEST, fact
from fedstride.messages import wire
from strategies.replies.cohort import Cohort

from ..evaluation import differences
from ..records.row_values import Row
from .client_rows import AREA, counts_by_kind


def spread(evaluation: Cohort) -> Row:
    """How far the clients' figures of a federated evaluation are apart: the worst one, and the 10th percentile.

    The percentile is counted from the worst client, as `local/accuracy/p10`, with linear interpolation. Only for
    figures with a better direction that at least two clients have. Also, of differences of two models, the
    intervals over all clients.
    """
    row: Row = {}
    for name in evaluation.selections:
        better = fact(name).better
        values = sorted(evaluation.numbers(name).values(), reverse=better == "smaller")  # the worst first
        if better is None or len(values) < 2 or not name.startswith(f"{wire.LOCAL}/"):
            continue
        row |= {
            f"{name}/worst": values[0],
            f"{name}/p10": float(np.quantile(values, 0.9 if better == "smaller" else 0.1)),
        }
    return row | _deviation(evaluation) | _smallest(evaluation) | differences.of_all(evaluation)


def _smallest(evaluation: Cohort) -> Row:
    """Of each figure by class or label, how many rows of all clients the one with fewest has."""
    counts = {name: counts_by_kind(evaluation, name).values() for name in evaluation.selections}
    return {f"{name}/{SMALLEST}": min(map(sum, zip(*each, strict=True))) for name, each in counts.items() if each}


def _deviation(evaluation: Cohort) -> Row:
    """The standard deviation of the AUROC of all clients, if it is one of two classes."""
    if AREA not in evaluation.pooled:
        return {}
    used = [value for value in evaluation.selections[AREA].used.values() if isinstance(value, list)]
    area = evaluation.pooled[AREA].value
    deviation = None if isinstance(area, list) else deviation_from_bins(area, used)
    return {} if deviation is None else {f"{AREA}/{DEVIATION}": deviation}
