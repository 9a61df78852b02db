"""The page about what sites said of their data: what differs first, then an overview, then column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedstride.tasks.statistics.description import DescribedColumn, Description, Told

from ..report.page import escape, listed, page, table
from ..results.formats import Grid
from . import words
from .differing_sites import Outlier
from .table import Answers, rows_of

TITLE = "What the sites say of their data"
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
    told: Answers,
    asked: Sequence[DescribedColumn],
    outliers: Sequence[Outlier],
    lines: Sequence[str],
    reasons: Sequence[str] = (),
) -> str:
    """The page.

    `told`: what each site said; None: nothing. `outliers`: sites that differ in a column; `lines`: all that
    differs; `reasons`: of silent ones.
    """
    said = {site: description for site, description in told.items() if description is not None}
    differ = f"{len(lines)} things differ" if len(lines) != 1 else "One thing differs"
    lead = f'<p class="verdict">{escape(differ if lines else words.verdict(told))}</p>\n'
    lead += f"<p>{escape(LEAD)}</p>\n"
    lead += "".join(f'<p class="warning">{escape(reason)}</p>\n' for reason in reasons)
    answered = {site: description for site, description in said.items() if not description.few}
    columns = [_column(at, column, answered, outliers) for at, column in enumerate(asked)] if answered else []
    return page(
        TITLE,
        lead,
        [
            ("What differs", listed(lines) + f'<p class="small">{escape(TEST)}</p>\n' if said else ""),
            ("All sites", table(_overview(told, asked)) if told else ""),
            ("Column by column", "".join(columns)),
        ],
    )


def _overview(told: Answers, asked: Sequence[DescribedColumn]) -> Grid:
    """A row for each site: its rows, whether all can be read, and its classes."""
    classes = [(at, column) for at, column in enumerate(asked) if column.predicted and column.categories]
    head = ["site", "rows", "all can be read"]
    head += [f"{column.name} = {category}" for _, column in classes for category in column.categories]
    rows = [
        [
            site,
            *rows_of(description),
            *(cell for at, column in classes for cell in _categories(at, column, description)),
        ]
        for site, description in told.items()
    ]
    return Grid("rows and classes", head, rows)


def _categories(at: int, column: DescribedColumn, said: Description | None) -> list[str]:
    places = range(len(column.categories))
    if said is None or said.few:
        return ["" for _ in places]
    return [words.of_category(place, said.columns[at], said) for place in places]


def _column(at: int, column: DescribedColumn, said: Mapping[str, Description], outliers: Sequence[Outlier]) -> str:
    """A table of one column with a row for each site."""
    name = f"{column.name} (predicted)" if column.predicted else column.name
    differs = {outlier.site: f"p = {outlier.p:.1g}" for outlier in outliers if outlier.column == at}
    head = [*column.categories] or ["mean ± deviation", "near the 5th percentile", "near the 95th percentile"]
    rows = []
    for site, description in said.items():
        told = description.columns[at]
        values = _categories(at, column, description) if column.categories else _numbers(column, told)
        rows.append(
            [site, *values, words.missing(told, description), *([differs.get(site, "")] if differs else [])]
        )
    return table(Grid(name, ["site", *head, "missing", *(["differs"] if differs else [])], rows))


def _numbers(column: DescribedColumn, told: Told) -> list[str]:
    edges = [words.percentile(told, share) for share in (0.05, 0.95)]
    moments = words.state(told) or words.moments(column, told)
    return [words.WHY_NO_MEAN if moments == words.NO_MEAN else moments, *edges]
