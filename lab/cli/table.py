"""`fedstride table`: compares methods over settings, or our results with a paper's table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..results.formats import TableFormat, write
from ..terminal import block, line

RUNS = typer.Argument(help="Run folders, or folders that contain run folders.", show_default=False)


def table(
    runs: Annotated[list[Path] | None, RUNS] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Metric to compare, a column of the runs' metrics.csv; by default the one that decides (best).",
            show_default=False,
        ),
    ] = None,
    last: Annotated[
        int,
        typer.Option(help="Number of last evaluations to average over; an evaluation is a round with the metric."),
    ] = 1,
    best: Annotated[bool, typer.Option("--best", help="Use the best round instead of the last.")] = False,
    target: Annotated[
        float | None,
        typer.Option(help="Show the number of rounds until this value, as in 0.9.", show_default=False),
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option(
            help="For each method only the runs with the best value of this key, as in client.lr.",
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Choose the value of --tune by this metric, as in local/accuracy; by default by the one shown.",
            show_default=False,
        ),
    ] = None,
    paper: Annotated[
        str | None,
        typer.Option(help="Compare with a paper's table, as in fednnnn/table2.", show_default=False),
    ] = None,
    form: Annotated[
        TableFormat, typer.Option("--format", help="Output format: text, markdown, csv or latex.")
    ] = TableFormat.TEXT,
) -> None:
    """Compare methods over settings: mean and standard deviation over seeds.

    RUNS are run folders, or folders that contain run folders. Runs that are decided by different metrics, as
    accuracy and rmse, get a table each. The notes say who won in each setting, paired by seed.
    """
    from fedstride.errors import ConfigError

    from ..papers import paper_table
    from ..papers.side_by_side import side_by_side
    from ..results.run_folders import find_runs
    from ..results.tables import Statistic, compare_all
    from ..results.who_won import below_tables

    published = None if paper is None else paper_table(paper)
    if published is None and not runs:
        raise ConfigError("name one or more run folders, as in: fedstride table runs")
    if published is not None and any(given is not None for given in (target, metric, tune, by)):
        raise ConfigError(
            f"--paper {paper} has its own metric and settings: remove --metric, --target, --tune and --by"
        )
    all_runs, remarks = find_runs(runs or [])
    statistic = Statistic(last=last, best=best, target=target)
    if published is None:
        comparisons = compare_all(all_runs, metric, statistic, tune, by)
        tables = [(comparison.grid(), comparison.sheet()) for comparison in comparisons]
        more = [remark for comparison in comparisons for remark in comparison.remarks]
        more += below_tables(comparisons, metric, statistic, tune, by)
    else:
        pairs = side_by_side(published, all_runs, statistic if best or last > 1 else None)
        tables, more = [(pairs.grid(), pairs.sheet())], pairs.remarks
    console = Console()
    block(write(tables, form, width=console.width if console.is_terminal else None))
    for remark in dict.fromkeys([*remarks, *more]):
        line(f"note: {remark}", err=True)
