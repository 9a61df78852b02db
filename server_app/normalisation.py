"""Mean and standard deviation of each column of data that stay on the nodes, from what each client reports.

A client reports the number, the mean and the squared deviations of its values (`fedstride/tasks/moments.py`). This
module checks the reports against each other and combines them. It does not know how they arrived.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedstride.errors import ReplyError, RunError
from fedstride.tasks.moments import Moments, pooled
from fedstride.tasks.spec import Spec
from fedstride.tasks.statistics import names, statistics

TOO_FAR = 1000.0
"""How often the usual spread of a column, a client's mean may be away from the median of the clients' means."""


def pool(
    spec: Spec, reports: Mapping[int, Mapping[str, Any]], names_of: Mapping[int, str] | None = None
) -> tuple[dict[str, list[float]], list[str]]:
    """The statistics for `spec.with_statistics`, and one line for each client whose report is not used.

    `names_of`: the names of clients, by id, for these lines.
    `reports`: the facts of each client that replied to the roll call, by id. Not used are invalid reports, and
    those with a column whose mean or standard deviation is more than 1000 times as far away as usual (see `_far`):
    its unit is probably another one. Raises RunError if no report can be used.
    """
    columns, known_as = names(spec), names_of or {}
    found: dict[int, Moments] = {}
    lines = []
    for client, report in sorted(reports.items()):
        try:
            found[client] = Moments.unflatten(report, len(columns))
        except ReplyError as error:
            lines.append(f"client {known_as.get(client, client)}: its statistics are not used: {error}")
    for client, column in _far(found).items():
        mean = found.pop(client).mean[column]
        lines.append(
            f"client {known_as.get(client, client)}: its statistics are not used: column {columns[column]!r} "
            f"has the mean {mean:.6g}, far from those of the other clients; is its unit the same?"
        )
    if not found:
        raise RunError(
            f"no client reported statistics of its examples that can be used ({'; '.join(lines[:3])}); give "
            "task.mean and task.std, one number for each column"
        )
    return statistics(pooled(list(found.values())), spec), lines


def _far(found: Mapping[int, Moments]) -> dict[int, int]:
    """The clients that are too far from the others, each with the first column where it is.

    The usual spread of a column is s + d: the median over clients of the standard deviation, and the median
    distance of the clients' means from their median. A column is not compared if it is constant at most clients.
    Of two clients none is too far, because no majority says what is usual.
    """
    if not found:
        return {}
    mean = np.array([each.mean for each in found.values()])
    std = np.array([np.sqrt(each.squares / np.maximum(each.count, 1.0)) for each in found.values()])
    distance = np.abs(mean - np.median(mean, axis=0))
    usual = np.median(std, axis=0)
    spread = usual + np.median(distance, axis=0)
    far = (usual > 0) & ((distance > TOO_FAR * spread) | (std > TOO_FAR * spread))
    return {client: int(row.argmax()) for client, row in zip(found, far, strict=True) if row.any()}
