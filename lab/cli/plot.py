"""`fedstride plot`: a picture from run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .table import RUNS


def plot(
    picture: Annotated[str, typer.Argument(metavar="KIND", help="Which picture.", show_default=False)],
    runs: Annotated[list[Path] | None, RUNS] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="PNG, SVG or PDF file; KIND.png by default.")
    ] = None,
) -> None:
    """Draw a picture with a band over seeds.

    KIND is accuracy or seconds (accuracy against rounds or seconds), norms (N, E, step), a method's own
    figures (fedlws, fedalr, two_d_lrd, fednlr), or labels (who holds which classes).
    """
    from fedstride.errors import ConfigError

    from ..plots import draw, kind
    from ..plots.canvas import check_target, save
    from ..results.alike import newest
    from ..results.runs import find_runs

    chosen = kind(picture)
    if not runs:
        raise ConfigError(f"name one or more runs' folders, as in: fedstride plot {picture} runs")
    path = output or Path(f"{picture}.png")
    check_target(path)
    found, remarks = find_runs(runs)
    kept, repeated = newest(found)
    save(draw(picture, kept), path)
    shown = chosen.shown(kept)
    typer.echo(f"{picture}: {chosen.about}, {len(shown)} of {len(kept)} runs, {path.resolve()}")
    marked = [f"marked in the picture: {run.folder} {run.remark}" for run in shown if not run.completed]
    for remark in [*remarks, *repeated, *marked]:
        typer.echo(f"note: {remark}", err=True)
