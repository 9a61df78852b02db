"""Plot of the norm-based divergence analysis: N, E and step, of the whole model and of every layer.

N is the norm of the averaged update of the clients, E the mean norm of the clients' updates, step the norm of
the update that the server applied; all in the units of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..results.grouping import group
from ..results.run_folders import Run
from .panels import LinePanel, PlotFigure, band_of, layers_of, left_out, looks_of, some, spread_note

MEANING = {"N": "N, norm of the averaged update", "E": "E, mean norm of updates", "step": "step of the server"}
ROWS = 11  # layers shown at most


def norms(runs: Sequence[Run], colours: Mapping[str, int]) -> PlotFigure:
    """Columns N, E and step; a row for the whole model and one per layer; a line per method and setting."""
    groups, layers = group(runs), layers_of(runs, "norms/N")
    shown = some(layers, ROWS)
    if len({run_group.setting for run_group in groups}) > 1:
        names = {f"{run_group.method}, {run_group.setting}": run_group for run_group in groups}
    else:
        names = {run_group.method: run_group for run_group in groups}
    parts = [
        [
            LinePanel(
                meaning,
                layer or "whole model",
                f"{symbol} ({layer or 'whole model'})",
                {name: band_of(run_group.runs, _key(symbol, layer)) for name, run_group in names.items()},
                title="" if layer else meaning,
                looks=looks_of(names, colours),
                least=0.0,
            )
            for symbol, meaning in MEANING.items()
        ]
        for layer in (None, *shown)
    ]
    notes = ["in the units of the weights", *left_out(shown, layers, "layers"), spread_note(groups)]
    return PlotFigure("norms of the updates in each round", notes, parts, (3.3, 2.1), sharex=True, folded=1)


def _key(symbol: str, layer: str | None) -> str:
    return f"norms/{symbol}" + (f"/{layer}" if layer else "")
