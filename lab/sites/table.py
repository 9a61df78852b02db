"""One table of what sites said: a column for each site, a row for each thing that they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from fedstride.tasks.statistics.description import DescribedColumn, Description, Told

from ..results.formats import Grid
from . import words

TITLE = (
    "what the sites say of their data: mean ± deviation, and the edges nearest to the 5th and 95th percentile, "
    "each with the share of values below it"
)


Answers = Mapping[str, Description | None]
"""What each site said, by its name; None: nothing."""


def grid(said: Answers, asked: Sequence[DescribedColumn]) -> Grid:
    """The table. Of a site without an answer, or with too few rows, only that is in it."""
    rows = [list(row) for row in zip(("rows", "all can be read"), *map(rows_of, said.values()), strict=True)]
    for at, column in sorted(enumerate(asked), key=lambda pair: not pair[1].predicted):
        rows += _of_column(at, column, list(said.values()))
    has_no_mean = any(cell.startswith(words.NO_MEAN) for row in rows for cell in row[1:])
    title = f"{TITLE}; {words.WHY_NO_MEAN}" if has_no_mean else TITLE
    return Grid(title, ["", *said], rows)


def rows_of(said: Description | None) -> tuple[str, str]:
    """How many rows a site has, and whether a run can read all of them."""
    if said is None:
        return "no answer", "no"
    return (f"below {said.min_rows}", "") if said.few else (str(said.rows), "yes" if said.readable else "no")


def _of_column(at: int, column: DescribedColumn, said: Sequence[Description | None]) -> list[list[str]]:
    def row(name: str, cell: Callable[[Told, Description], str]) -> list[str]:
        return [
            name,
            *(
                cell(description.columns[at], description) if description and not description.few else ""
                for description in said
            ),
        ]

    name = f"{column.name} (predicted)" if column.predicted else column.name
    if not column.categories:
        return [row(name, partial(words.of_number, column))]
    rows = [
        row(f"{name} = {category}", partial(words.of_category, place))
        for place, category in enumerate(column.categories)
    ]
    missing = row(f"{name}: missing", words.missing)
    return [*rows, missing] if set(missing[1:]) - {"", words.NONE} else rows
