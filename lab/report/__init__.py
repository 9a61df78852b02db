"""The HTML report about a set of runs: tables, plots, differences, failures, and how to repeat each run.

`sections.py` and `section_of_sites.py` write the sections, `page.py` the HTML around them; the first lines are
those of `lab/results/who_won.py`, or of `lab/results/good_enough.py` if there is nothing to compare. `charts.py`
and `diagnostics.py` choose the panels, which are described as those of the plots are (`lab/plots/`);
`drawing.js` draws them in the browser, with uPlot (`uplot/`, MIT License).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from fedstride.errors import counted
from fedstride.figures.metrics import fact

from ..plots import numbers_of_methods
from ..results.grouping import group, newest
from ..results.run_folders import Run, by_headline
from ..results.tables import Statistic, several_metrics
from . import section_of_sites, sections
from .charts import charts
from .diagnostics import diagnostics
from .page import escape, page

TARGET = 0.9
"""The default target of a metric that is displayed in percent. Other metrics have none."""


def report(
    runs: Sequence[Run], remarks: Sequence[str] = (), *, target: float | None = None, refresh: int = 0
) -> str:
    """The page as HTML; `remarks`: about folders that were skipped when the runs were searched.

    `refresh`: after so many seconds the browser loads the page again; 0: never.

    `target`: of the metric that decides; a table has the rounds until it is reached. Raises ConfigError if it does
    not fit the metric, or if runs are decided by different metrics.
    """
    kept, repeated = newest(runs)
    targets = _targets(kept, target)
    colours = numbers_of_methods(kept)
    made, parts = charts(kept, colours), diagnostics(kept, colours)
    first = [("Results", sections.results(kept, targets)), ("Sites", section_of_sites.sites(kept))]
    return page(
        f"fedstride: {counted(len({run.method for run in kept}), 'method')}, {counted(len(runs), 'run')}",
        sections.verdict(kept, target) + _lead(kept),
        [
            *(first if len(kept) > 1 else reversed(first)),
            ("Curves", sections.curves(made)),
            ("Diagnostics of the methods", sections.measured(parts, len(made))),
            ("Differences between configurations", sections.differences(kept)),
            ("Failures", sections.failures(runs, [*remarks, *repeated])),
            ("Runs", sections.overview(runs)),
            ("Versions and hardware", sections.machines(runs)),
            ("How to repeat each run", sections.commands(runs)),
            ("Papers", sections.papers(runs)),
        ],
        [*made, *(drawing for part in parts for drawing in (*part.drawings, *part.folded))],
        refresh=refresh,
    )


def _targets(runs: Sequence[Run], target: float | None) -> dict[str, float]:
    """The target of each metric that decides, if it has one."""
    metrics = list(by_headline(runs))
    if target is None:
        return {metric: TARGET for metric in metrics if fact(metric).unit == "%"}
    if len(metrics) > 1:
        raise several_metrics(target, runs)
    for metric in metrics:
        Statistic(target=target).check(metric)
    return dict.fromkeys(metrics, target)


def _lead(runs: Sequence[Run]) -> str:
    groups = group(runs)
    methods = ", ".join(dict.fromkeys(run.method for run_group in groups for run in run_group.runs))
    settings = "; ".join(dict.fromkeys(run_group.setting for run_group in groups))
    seeds = ", ".join(map(str, sorted({run.config.seed for run in runs})))
    created = time.strftime("%Y-%m-%d %H:%M")
    return f"<p>{escape(methods)}<br>{escape(settings)}<br>seeds {seeds}; page created {created}</p>"
