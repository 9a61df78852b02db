"""Which runs stand for many where a picture shows single runs."""

from __future__ import annotations

from collections.abc import Sequence

from ..results.alike import group
from ..results.runs import Run

LIMIT = 4


def first_of_each(runs: Sequence[Run], limit: int = LIMIT) -> tuple[list[tuple[Run, str]], str]:
    """(run, its label) of the lowest seed of each method and setting, and a sentence that says so."""
    groups = group(runs)
    shown = [(each.runs[0], f"{each.method}, {each.setting}, seed {each.runs[0].config.seed}") for each in groups]
    said = "single runs: the lowest seed of each method and setting" if len(runs) > len(groups) else "single runs"
    if len(groups) > limit:
        said += f"; the first {limit} of {len(groups)}, name fewer folders for others"
    return shown[:limit], said
