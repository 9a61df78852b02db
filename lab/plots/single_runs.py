"""Chooses the runs for plots that show single runs: one per method and setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..results.grouping import group
from ..results.run_folders import Run

LIMIT = 4


def first_of_each(
    runs: Sequence[Run], colours: Mapping[str, int], limit: int = LIMIT
) -> tuple[list[tuple[Run, str, int]], str]:
    """For each method and setting, the run with the lowest seed, its label, its method's colour; and a note."""
    groups = group(runs)
    shown = [
        (
            run_group.runs[0],
            f"{run_group.method}, {run_group.setting}, seed {run_group.config.seed}",
            colours[run_group.identity],
        )
        for run_group in groups
    ]
    note = "single runs: the lowest seed of each method and setting" if len(runs) > len(groups) else "single runs"
    if len(groups) > limit:
        note += f"; the first {limit} of {len(groups)} (name fewer folders to see others)"
    return shown[:limit], note
