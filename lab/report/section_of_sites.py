"""The section of a report with a row for each site: rows, figures with intervals, rounds that it attended."""

from __future__ import annotations

from collections.abc import Sequence

from fedstride.figures.metrics import shown
from server_app.evaluation.differences import HEAD, pairs_in
from server_app.evaluation.differences import NOTE as PAIRS_NOTE
from server_app.reports.sites import NO_FIGURE, SiteRecord

from ..results.formats import Grid
from ..results.good_enough import sites_of
from ..results.run_folders import Run
from ..results.tables import NONE
from .page import escape, listed, table

MANY = 30
"""Sites in an open table; more are folded."""

NOTE = (
    "<p class='small'>In brackets: the interval of 95 % by the number of rows that were measured (shares of all "
    "rows: Wilson; AUROC of two classes: Hanley and McNeil), where it is known. Rounds: those in which the reply "
    "was used, of those in which the site was asked.</p>\n"
)


def sites(runs: Sequence[Run]) -> str:
    """A table for each run whose sites were measured or have their own data; empty if there is no such run."""
    of_runs = [(run, sites_of(run)) for run in runs]
    chosen = [(run, of_run) for run, of_run in of_runs if of_run and _is_of_interest(run, of_run)]
    body = "".join(_of_run(run, of_run, folded=len(chosen) > 1) for run, of_run in chosen)
    return body + NOTE if body else ""


def _is_of_interest(run: Run, of_run: Sequence[SiteRecord]) -> bool:
    return run.config.partition.name == "own" or any(site.figures for site in of_run)


def _of_run(run: Run, of_run: Sequence[SiteRecord], *, folded: bool) -> str:
    metrics = list(dict.fromkeys(metric for site in of_run for metric in site.figures))
    metrics.sort(key=lambda metric: metric != run.figure)
    first, others = metrics[:1], metrics[1:]
    head = ["site", *map(shown, first), "rows trained", "rows measured", "rounds", *map(shown, others)]
    rows = [
        [
            site.name,
            *_figures(site, first),
            _count(site.rows),
            _count(site.measured),
            f"{site.attended} of {site.asked}",
            *_figures(site, others),
        ]
        for site in of_run
    ]
    made = table(Grid(f"sites of {run.folder.name}", head, rows))
    made += _of_pairs(run, of_run) if run.config.against else ""
    remarks = [f"{site.name}: {remark}" for site in of_run if (remark := _remark(site, run.figure))]
    made += listed(remarks, "small")
    if not folded and len(rows) <= MANY:
        return made
    return f"<details><summary>{escape(f'{run.folder.name}: {len(rows)} sites')}</summary>{made}</details>\n"


def _of_pairs(run: Run, of_run: Sequence[SiteRecord]) -> str:
    """A table for each figure of two models: a row a site, and one for all of them."""
    every = pairs_in(run.rows[-1]) if run.rows else {}
    by_site = [*((site.name, site.pairs) for site in of_run), ("all", every)]
    made = ""
    for figure in dict.fromkeys(figure for _, pairs in by_site for figure in pairs):
        known = [(name, pair) for name, pairs in by_site if (pair := pairs.get(figure)) is not None]
        title = f"two models at the sites of {run.folder.name}: {known[0][1].name}"
        made += table(Grid(title, ["site", *HEAD], [[name, *pair.cells] for name, pair in known]))
    return made + f"<p class='small'>{escape(PAIRS_NOTE)}</p>\n" if made else ""


def _figures(site: SiteRecord, metrics: Sequence[str]) -> list[str]:
    return [site.figures[metric].text if metric in site.figures else NONE for metric in metrics]


def _remark(site: SiteRecord, metric: str) -> str:
    """Why the site's last reply was not used, or why its figure says little."""
    if site.reason and site.measured != 0:
        return f"its last reply was not used: {site.reason[:200]}"
    if site.figures and metric not in site.figures:
        return f"{NO_FIGURE} of {shown(metric)}"
    little = site.why_it_says_little(metric) if site.evaluated else ""
    return f"too few rows to say: {little}" if little else ""


def _count(rows: int | None) -> str:
    return NONE if rows is None else f"{rows:,}"
