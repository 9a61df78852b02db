"""`fedstride report`: one self-contained page about a set of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .table import RUNS


def report(
    runs: Annotated[list[Path] | None, RUNS] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.")] = Path("report.html"),
    target: Annotated[float, typer.Option(help="The accuracy of `rounds until`, as a share.")] = 0.9,
) -> None:
    """Write one HTML page: tables, pictures, differences, failures, how to repeat each run."""
    from fedstride.errors import ConfigError

    from ..report import report as made
    from ..report.page import check_target, save
    from ..results.runs import find_runs

    if not runs:
        raise ConfigError("name one or more runs' folders, as in: fedstride report runs")
    if not 0.0 < target <= 1.0:
        raise ConfigError(f"target = {target:g} is not allowed: it is an accuracy in (0, 1], as 0.9 for 90 %")
    check_target(output)
    found, remarks = find_runs(runs)
    save(made(found, remarks, target=target), output)
    typer.echo(f"{len(found)} runs, {output.resolve()}")
    for remark in remarks:
        typer.echo(f"note: {remark}", err=True)
