"""What a comparison has found, as Python has it: figures and paired differences as tables."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

from fedstride.tasks.evaluation.comparison import At, ComparedFigure

from ..comparison import page
from ..comparison.whole_comparison import WholeComparison
from .run_result import as_html, lines_html

FIGURES = ("site", "rows", "column", "figure", "value", "low", "high", "spread", "enough")
DIFFERENCES = ("site", "rows", "column", "against", "figure", "value", "low", "high", "spread", "enough")


class Comparison:
    """Federations, each site alone, and all rows at one place, on the same rows. A notebook shows the table.

    `folder` has the page, the picture, all numbers and the runs; `notes` say what the user should know.
    """

    def __init__(self, made: WholeComparison) -> None:
        self._made = made
        self.page: Path = made.page
        self.folder: Path = made.page.parent
        self.notes: tuple[str, ...] = tuple(made.notes)

    @property
    def figures(self) -> pd.DataFrame:
        """A row for each site and `all`, kind of model (`column`) and figure.

        `value` is the mean over the seeds of training; `low` and `high` are the ends of its 95 % interval, by the
        measured rows; `spread` is the standard deviation over the seeds; `enough` is False where too few
        rows were measured to say anything, and there `low` and `high` are NaN. So they are for a number that does
        not move with the rows. Sites with too few rows do not count in `all`. Shares, not percent. NaN where there
        is no number.
        """
        rows = [
            (at_site.site, at_site.rows, column, *of_one)
            for at_site in self._made.measured
            for column, cells in at_site.figures.items()
            for of_one in _cells(at_site, cells)
        ]
        return pd.DataFrame(rows, columns=list(FIGURES))

    @property
    def differences(self) -> pd.DataFrame:
        """The same of paired differences: of `column` less `against`, on the same rows."""
        rows = [
            (at_site.site, at_site.rows, *pair, *of_one)
            for at_site in self._made.measured
            for pair, cells in at_site.differences.items()
            for of_one in _cells(at_site, cells)
        ]
        return pd.DataFrame(rows, columns=list(DIFFERENCES))

    def __repr__(self) -> str:
        return "\n".join([page.text_of(self._made.measured, self._made.main, None), *self.notes])

    def _repr_html_(self) -> str:
        grid = page.grid(self._made.measured, self._made.main)
        head = f"<p><b>{html.escape(grid.title)}</b></p>{as_html(grid.head, grid.rows)}"
        return f"{head}<p><code>{html.escape(str(self.page))}</code></p>{lines_html(self.notes)}"


def _cells(at: At, cells: Mapping[str, ComparedFigure]) -> Iterator[tuple[str, float, float, float, float, bool]]:
    for figure, cell in cells.items():
        low, high = cell.interval
        yield figure, cell.value, low, high, cell.spread, at.enough[figure]
