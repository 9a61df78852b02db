"""The page about what sites said of their data: what differs first, then an overview, then column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedstride.tasks.description import PRESENT, Asked, Description

from ..report.page import escape, listed, page, table
from ..results.formats import Grid
from . import words
from .table import grid

LEAD = (
    "What each site says of its own data, before anything is trained. No value is that of a single row: each bin, "
    "class and share has at least as many rows behind it as the site's policy demands (min_rows)."
)
TEST = (
    "A site is said to differ in a column if a chi-square test on common bins, against all other sites together, "
    "says so with at most 5 % of false alarms over all columns and sites. At large sites, small differences are "
    "found too; of a site with few rows, only large ones."
)


def html(
    title: str,
    said: Mapping[str, Description],
    asked: Sequence[Asked],
    lines: Sequence[str],
    reasons: Sequence[str] = (),
) -> str:
    """The page. `lines`: what differs; `reasons`: why sites said nothing."""
    verdict = f"{len(lines)} things differ" if len(lines) != 1 else "one thing differs"
    lead = f'<p class="verdict">{escape(verdict if lines else "Nothing differs")}</p>\n<p>{escape(LEAD)}</p>\n'
    lead += "".join(f'<p class="warning">{escape(reason)}</p>\n' for reason in reasons)
    answered = {site: each for site, each in said.items() if not each.few}
    columns = "".join(_column(at, column, answered) for at, column in enumerate(asked)) if answered else ""
    return page(
        title,
        lead,
        [
            ("What differs", listed(lines) + f'<p class="small">{escape(TEST)}</p>\n' if said else ""),
            ("All sites", table(grid(said, asked)) if said else ""),
            ("Column by column", columns),
        ],
    )


def _column(at: int, column: Asked, said: Mapping[str, Description]) -> str:
    """A table of one column with a row for each site."""
    name = f"{column.name} (predicted)" if column.predicted else column.name
    if column.categories:
        head = ["site", *column.categories, "missing"]
        rows = [
            [
                site,
                *(words.of_category(place, each.columns[at], each) for place in range(len(column.categories))),
                words.missing(each.columns[at], each),
            ]
            for site, each in said.items()
        ]
        return table(Grid(name, head, rows))
    head = ["site", "mean ± deviation", "near the 5th percentile", "near the 95th percentile", "missing"]
    rows = [
        [
            site,
            words.moments(told) if told.state == PRESENT else words.state(told),
            words.percentile(told, 0.05),
            words.percentile(told, 0.95),
            words.missing(told, each),
        ]
        for site, each in said.items()
        for told in (each.columns[at],)
    ]
    return table(Grid(name, head, rows))
