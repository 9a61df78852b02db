"""Plot of FedLWS: the shrinking factor gamma and the spread tau of each layer over rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..results.grouping import group
from ..results.run_folders import Run
from .panels import Map, PlotFigure, band_of, by_layer, layers_of, spread_note

SHOWN = {
    "gamma": ("gamma, factor of the weights", "gamma (factor of the weights)"),
    "tau": ("tau, a norm of weights", "tau (norm of weights)"),
}


def fedlws(runs: Sequence[Run], colours: Mapping[str, int]) -> PlotFigure:
    """gamma (left) and tau (right), one row of panels per method and setting."""
    groups = group(runs)
    parts = []
    for run_group in groups:
        name, row = f"{run_group.method}, {run_group.setting}", []
        for symbol, (about, y) in SHOWN.items():
            layers = layers_of(run_group.runs, f"fedlws/{symbol}")
            bands = {layer: band_of(run_group.runs, f"fedlws/{symbol}/{layer}") for layer in layers}
            row.append(by_layer(about, name, y, bands, name, colours[run_group.identity]))
        parts.append(row)
    note = "mean over seeds" if isinstance(parts[0][0], Map) else spread_note(groups)
    return PlotFigure(
        "FedLWS: shrinking factor gamma and spread tau of the clients' updates", [note], parts, (4.6, 2.9)
    )
