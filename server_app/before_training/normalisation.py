"""Mean, deviation and median of each column of data that stay on the nodes, from what each client reports.

A client reports the number, the mean and the squared deviations of its values, and bins of them for a
median (`moments.py` and `medians.py` in `fedstride/tasks/statistics/`). This module checks the reports against
each other and combines them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedstride.errors import ReplyError, RunError
from fedstride.tasks.spec import Spec
from fedstride.tasks.statistics.medians import LEAST, Median, median
from fedstride.tasks.statistics.moments import Moments, is_coarse, normalisation, pooled
from fedstride.tasks.statistics.over_sites import Report, fill, medians_of, names, statistics

TOO_FAR = 1000.0
"""How often the usual spread of a column, a client's mean may be away from the median of the clients' means."""


class PooledStatistics(NamedTuple):
    """The statistics for `spec.with_statistics`, and warnings.

    `warnings`: a line for each client whose report is not used, and for each column that is coarse in float32.

    `medians`: a line for each, which says how far it can be from that of the cells themselves.
    """

    statistics: dict[str, list[float]]
    warnings: list[str]
    medians: list[str]


def pool(
    spec: Spec, reports: Mapping[int, Mapping[str, Any]], names_of: Mapping[int, str] | None = None
) -> PooledStatistics:
    """The statistics of all clients' examples together.

    `names_of`: the names of clients, by id, for these lines.
    `reports`: the facts of each client that replied to the roll call, by id. Not used are invalid reports, and
    those with a column whose mean or standard deviation is more than 1000 times as far away as usual (see `_far`):
    its unit is probably another one. Raises RunError if no report can be used.
    """
    columns, known_as = names(spec), names_of or {}
    usable: dict[int, Report] = {}
    lines = []
    for client, report in sorted(reports.items()):
        try:
            usable[client] = Report.unflatten(report, spec)
        except ReplyError as error:
            lines.append(f"client {known_as.get(client, client)}: its statistics are not used: {error}")
    for client, column in _far({client: report.moments for client, report in usable.items()}).items():
        mean = usable.pop(client).moments.mean[column]
        lines.append(
            f"client {known_as.get(client, client)}: its statistics are not used: column {columns[column]!r} "
            f"has the mean {mean:.6g}, far from those of the other clients; is its unit the same?"
        )
    if not usable:
        raise RunError(
            f"no client reported statistics of its examples that can be used ({'; '.join(lines[:3])}); give "
            "task.mean and task.std, one number for each column"
        )
    together = pooled([report.moments for report in usable.values()])
    of = statistics(together, spec)
    lines += _coarse(together, columns) if "mean" in of or "target_mean" in of else []
    return _with_medians(PooledStatistics(of, lines, []), together, list(usable.values()), spec)


def _coarse(total: Moments, columns: Sequence[str]) -> list[str]:
    """A line for each column whose differences are too small for its mean."""
    return [
        f"column {columns[at]!r} has the mean {total.mean[at]:.6g}, where numbers of float32 are about "
        f"{np.spacing(np.float32(abs(total.mean[at]))):.3g} apart, so its differences are lost or coarse; "
        "subtract the same number at every site: offset of the column in the data file, or days_since for a date"
        for at in np.flatnonzero(is_coarse(total)).tolist()
    ]


def _with_medians(
    of: PooledStatistics, together: Moments, reports: Sequence[Report], spec: Spec
) -> PooledStatistics:
    """The same with what replaces missing numbers; the mean where no median is known."""
    known = spec.with_statistics(of.statistics)
    columns = {
        name: median([report.bins[at] for report in reports]) if not spec.fill else None
        for at, name in enumerate(medians_of(spec))
    }
    medians = {name: column.value for name, column in columns.items() if column is not None}
    filled = fill(medians, known.mean or normalisation(together)[0][: spec.inputs.shape[0]], spec)
    return of._replace(
        statistics=of.statistics | filled,
        medians=[_line(name, column) for name, column in columns.items()] if filled else [],
    )


def _line(name: str, known: Median | None) -> str:
    """What is known of the median of a column."""
    if known is None:
        return (
            f"no median of column {name!r} is known, because no client has two bins of at least {LEAST} cells; "
            "its missing cells become the mean"
        )
    far = f"at most {known.error:.3g}" if math.isfinite(known.error) else "how far is not known"
    return (
        f"the median of column {name!r} is {known.value:.6g} (from bins; its distance to that of the cells: {far})"
    )


def _far(moments: Mapping[int, Moments]) -> dict[int, int]:
    """The clients that are too far from the others, each with the first column where it is.

    The usual spread of a column is s + d: the median over clients of the standard deviation, and the median
    distance of the clients' means from their median. A column is not compared if it is constant at most clients.
    Of two clients none is too far, because no majority says what is usual.
    """
    if not moments:
        return {}
    mean = np.array([of_client.mean for of_client in moments.values()])
    std = np.array(
        [np.sqrt(of_client.squares / np.maximum(of_client.count, 1.0)) for of_client in moments.values()]
    )
    distance = np.abs(mean - np.median(mean, axis=0))
    usual = np.median(std, axis=0)
    spread = usual + np.median(distance, axis=0)
    far = (usual > 0) & ((distance > TOO_FAR * spread) | (std > TOO_FAR * spread))
    return {client: int(row.argmax()) for client, row in zip(moments, far, strict=True) if row.any()}
