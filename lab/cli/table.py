"""`fedstride table`: methods x settings from run folders, or a paper's table beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..results.formats import Form, write

RUNS = typer.Argument(help="Run folders, or folders with runs below them.", show_default=False)


def table(
    runs: Annotated[list[Path] | None, RUNS] = None,
    metric: Annotated[str, typer.Option(help="What is compared, as in the runs' metrics.csv.")] = "test/accuracy",
    last: Annotated[int, typer.Option(help="Mean of so many last rounds.")] = 1,
    best: Annotated[bool, typer.Option("--best", help="The best round instead of the last.")] = False,
    target: Annotated[
        float | None, typer.Option(help="Rounds to reach this value, as in 0.9.", show_default=False)
    ] = None,
    paper: Annotated[
        str | None,
        typer.Option(help="Beside a paper's table, as in fednnnn/table2.", show_default=False),
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="text, markdown, csv or latex.")] = Form.TEXT,
) -> None:
    """Compare methods over settings: mean and standard deviation over seeds."""
    from fedstride.errors import ConfigError

    from ..papers import paper_table
    from ..papers.side_by_side import beside
    from ..results.runs import find_runs
    from ..results.tables import Statistic, compare

    printed = None if paper is None else paper_table(paper)
    if printed is None and not runs:
        raise ConfigError("name one or more runs' folders, as in: fedstride table runs")
    if printed is not None and (target is not None or metric != "test/accuracy"):
        raise ConfigError(f"--paper {paper} has its own metric: leave out --metric and --target")
    found, remarks = find_runs(runs or [])
    statistic = Statistic(last=last, best=best, target=target)
    if printed is None:
        made = compare(found, metric, statistic)
        grid, sheet, said = made.grid(), made.sheet(), made.remarks
    else:
        pairs = beside(printed, found, statistic if best or last > 1 else None)
        grid, sheet, said = pairs.grid(), pairs.sheet(), pairs.remarks
    console = Console()
    typer.echo(write(grid, sheet, form, width=console.width if console.is_terminal else None))
    for remark in [*remarks, *said]:
        typer.echo(f"note: {remark}", err=True)
