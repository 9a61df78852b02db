"""Chooses the runs for plots that show single runs: one per method and setting."""

from __future__ import annotations

from collections.abc import Sequence

from ..results.grouping import group
from ..results.runs import Run

LIMIT = 4


def first_of_each(runs: Sequence[Run], limit: int = LIMIT) -> tuple[list[tuple[Run, str]], str]:
    """For each method and setting, the run with the lowest seed and its label; and a note for the title."""
    groups = group(runs)
    shown = [(each.runs[0], f"{each.method}, {each.setting}, seed {each.runs[0].config.seed}") for each in groups]
    note = "single runs: the lowest seed of each method and setting" if len(runs) > len(groups) else "single runs"
    if len(groups) > limit:
        note += f"; the first {limit} of {len(groups)} (name fewer folders to see others)"
    return shown[:limit], note
