"""The HTML report about a set of runs: tables, plots, differences, failures, and how to repeat each run.

`sections.py` writes the sections, `page.py` the HTML around them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..results.grouping import group, newest
from ..results.runs import Run
from . import sections
from .page import escape, page

TARGET = 0.9


def report(runs: Sequence[Run], remarks: Sequence[str] = (), *, target: float = TARGET) -> str:
    """The page as HTML; `remarks`: about folders that were skipped when the runs were searched."""
    kept, repeated = newest(runs)
    return page(
        f"fedstride: {_count(len({run.method for run in kept}), 'method')}, {_count(len(runs), 'run')}",
        _lead(kept),
        [
            ("Results", sections.results(kept, target)),
            ("Accuracy", sections.curves(kept)),
            ("Diagnostics of the methods", sections.diagnostics(kept)),
            ("Differences between configurations", sections.differences(kept)),
            ("Failures", sections.failures(runs, [*remarks, *repeated])),
            ("Runs", sections.overview(runs)),
            ("Versions and hardware", sections.machines(runs)),
            ("How to repeat each run", sections.commands(runs)),
        ],
    )


def _lead(runs: Sequence[Run]) -> str:
    groups = group(runs)
    methods = ", ".join(dict.fromkeys(run.method for each in groups for run in each.runs))
    settings = "; ".join(dict.fromkeys(each.setting for each in groups))
    seeds = ", ".join(map(str, sorted({run.config.seed for run in runs})))
    created = time.strftime("%Y-%m-%d %H:%M")
    return f"<p>{escape(methods)}<br>{escape(settings)}<br>seeds {seeds}; page created {created}</p>"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
