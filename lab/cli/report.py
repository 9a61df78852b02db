"""`fedstride report`: writes one self-contained HTML page about a set of runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ..terminal import content, line
from .table import RUNS


def report(
    runs: Annotated[list[Path] | None, RUNS] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file; - prints it.")] = Path(
        "report.html"
    ),
    target: Annotated[
        float | None,
        typer.Option(
            help="Value of the metric that decides; a table shows after how many rounds it is reached. "
            "By default 0.9 for a metric in percent, such as accuracy.",
            show_default=False,
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Write the page again until all runs have ended; browsers reload it.")
    ] = False,
    every: Annotated[int, typer.Option(help="With --live: seconds between two pages.", min=1)] = 10,
) -> None:
    """Write one HTML page: who won, charts, tables, differences, failures, and how to repeat each run.

    RUNS are run folders, or folders that contain run folders.
    """
    from fedstride.errors import ConfigError, counted

    from ..report import report as html
    from ..report.page import check_target, save
    from ..results.output_files import STANDARD_OUTPUT, refuse_standard_output
    from ..results.run_folders import find_runs

    if not runs:
        raise ConfigError("name one or more run folders, as in: fedstride report runs")
    if live:
        refuse_standard_output(output, "--output", "a page that is written again and again")
    prints_page = output == STANDARD_OUTPUT
    if not prints_page:
        check_target(output)
    all_runs, remarks = find_runs(runs)
    while live and any(run.state == "running" for run in all_runs):
        save(html(all_runs, remarks, target=target, refresh=every), output)
        time.sleep(every)
        all_runs, remarks = find_runs(runs)
    if not all_runs:
        raise ConfigError(f"no run can be read: {'; '.join(remarks)}")
    page = html(all_runs, remarks, target=target)
    if prints_page:
        content(page)
    else:
        save(page, output)
        line(f"{counted(len(all_runs), 'run')}, {output.resolve()}")
    for remark in remarks:
        line(f"note: {remark}", err=True)
