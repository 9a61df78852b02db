"""`fedstride plot`: draws a plot from run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal import line
from .table import RUNS


def plot(
    name: Annotated[str, typer.Argument(metavar="KIND", help="Kind of the plot.", show_default=False)],
    runs: Annotated[list[Path] | None, RUNS] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="PNG, SVG or PDF file; KIND.png by default.")
    ] = None,
) -> None:
    """Draw a plot from run folders, with a band over seeds.

    KIND is accuracy or seconds (the metric that decides, against rounds or seconds), norms (N, E, step), the
    quantities of one method (fedlws, fedalr, two_d_lrd, fednlr), reliability (of predicted probabilities), or
    labels (examples of each class at each client).
    RUNS are run folders, or folders that contain run folders.
    """
    from fedstride.errors import ConfigError

    from ..plots import draw, kind
    from ..plots.canvas import check_target, save
    from ..results.grouping import newest
    from ..results.output_files import refuse_standard_output
    from ..results.run_folders import find_runs

    chosen = kind(name)
    if not runs:
        raise ConfigError(f"name one or more run folders, as in: fedstride plot {name} runs")
    refuse_standard_output(output, "--output", "a plot")
    path = output or Path(f"{name}.png")
    check_target(path)
    all_runs, remarks = find_runs(runs)
    kept, repeated = newest(all_runs)
    save(draw(name, kept), path)
    shown = chosen.shown(kept)
    line(f"{name}: {chosen.title(shown)}, {len(shown)} of {len(kept)} runs, {path.resolve()}")
    marked = [f"marked in the plot: {run.folder} {run.remark}" for run in shown if not run.completed]
    for remark in [*remarks, *repeated, *marked]:
        line(f"note: {remark}", err=True)
