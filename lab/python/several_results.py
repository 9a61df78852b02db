"""Several runs, as Python has them: compared in a table, or drawn in one plot."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

import pandas as pd

from fedstride import user_parts
from fedstride.errors import ConfigError

from ..results.formats import TableFormat, write
from ..results.grouping import newest
from ..results.tables import Statistic, TableComparison, compare_all
from ..results.who_won import below_tables
from .run_result import Result, as_html, lines_html, plotted

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Results(Sequence[Result]):
    """Runs, in order. A notebook shows their table.

    `notes`: what the user should know, a line each. `failed`: why each run is not completed, by the name of its
    folder, or by its settings if it has none.
    """

    def __init__(
        self, runs: Sequence[Result], notes: Sequence[str] = (), failed: dict[str, str] | None = None
    ) -> None:
        self._runs = list(runs)
        remarks = {result.folder.name: result.run.remark for result in runs if result.run.remark}
        self.notes, self.failed = tuple(notes), {**remarks, **(failed or {})}

    @overload
    def __getitem__(self, at: int) -> Result: ...
    @overload
    def __getitem__(self, at: slice) -> Results: ...
    def __getitem__(self, at: int | slice) -> Result | Results:
        return Results(self._runs[at]) if isinstance(at, slice) else self._runs[at]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Result]:
        return iter(self._runs)

    @property
    def folders(self) -> list[Path]:
        """The runs' folders, absolute."""
        return [result.folder for result in self]

    def table(
        self,
        metric: str | None = None,
        *,
        last: int = 1,
        best: bool = False,
        target: float | None = None,
        tune: str | None = None,
        by: str | None = None,
    ) -> pd.DataFrame:
        """The table of `fedstride table`: a row for each method and setting.

        Columns: method, setting, metric, statistic, mean, std, n, runs, and with `tune` the chosen value. Values
        are as in the records: shares, not percent. `attrs["notes"]` of the table has the command's notes: who won,
        and what cannot be compared. The arguments are the command's options. Raises ConfigError as it does.
        """
        tables, notes = self._compared(metric, Statistic(last, best, target), tune, by)
        sheets = [table.sheet() for table in tables]
        made = pd.DataFrame([row for sheet in sheets for row in sheet.rows], columns=list(sheets[0].head))
        made.attrs["notes"] = notes
        return made

    def plot(self, kind: str = "accuracy") -> Figure:
        """The plot of `fedstride plot KIND`, with a band over seeds; see `Result.plot`."""
        return plotted(kind, newest([result.run for result in self])[0])

    @user_parts.alone()
    def _compared(
        self, metric: str | None, statistic: Statistic, tune: str | None = None, by: str | None = None
    ) -> tuple[list[TableComparison], list[str]]:
        """The tables, and the command's notes on them."""
        tables = compare_all([result.run for result in self], metric, statistic, tune, by)
        remarks = [remark for table in tables for remark in table.remarks]
        return tables, list(dict.fromkeys([*remarks, *below_tables(tables, metric, statistic, tune, by)]))

    def _shown(self) -> tuple[list[TableComparison], list[str]]:
        """The tables, and the remarks; none if no run is completed."""
        why = [f"{name}: {reason}" for name, reason in self.failed.items()]
        try:
            tables, remarks = self._compared(None, Statistic())
        except ConfigError:
            return [], [*self.notes, *why]
        return tables, list(dict.fromkeys([*self.notes, *remarks, *why]))

    def __repr__(self) -> str:
        tables, notes = self._shown()
        text = write([(table.grid(), table.sheet()) for table in tables], TableFormat.TEXT) if tables else ""
        return "\n".join([text or f"<{len(self)} runs, none completed>", *(f"note: {note}" for note in notes)])

    def _repr_html_(self) -> str:
        tables, notes = self._shown()
        grids = [table.grid() for table in tables]
        blocks = [f"<p><b>{html.escape(grid.title)}</b></p>{as_html(grid.head, grid.rows)}" for grid in grids]
        return "".join(blocks or [f"<p><b>{len(self)} runs, none completed</b></p>"]) + lines_html(notes)
