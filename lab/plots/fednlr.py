"""Plot of FedNLR: the smallest, mean and largest learning rate of each layer's neurons over rounds."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from ..results.grouping import Group, group
from ..results.run_folders import Run
from .panels import LinePanel, PlotFigure, band_of, layers_of, left_out, looks_of_parts, some, spread_note

LINES = {"max": "largest rate", "mean": "mean rate", "min": "smallest rate"}
COLUMNS, LAYERS = 4, 12


def fednlr(runs: Sequence[Run], colours: Mapping[str, int]) -> PlotFigure:
    """A panel per layer, method and setting; all panels share their axes; the rate axis is logarithmic."""
    groups, layers = group(runs), layers_of(runs, "fednlr/rate_mean")
    shown = some(layers, LAYERS)
    columns = min(COLUMNS, len(shown))
    parts = []
    for run_group in groups:
        panels = [_of_layer(run_group, layer, len(groups) > 1 and layer is shown[0], colours) for layer in shown]
        parts += [panels[start : start + columns] for start in range(0, len(panels), columns)]
    notes = ["averaged over clients", *left_out(shown, layers, "layers"), spread_note(groups)]
    return PlotFigure("FedNLR: learning rates of the neurons", notes, parts, (2.6, 2.4), sharex=True, sharey=True)


def _of_layer(run_group: Group, layer: str, is_named: bool, colours: Mapping[str, int]) -> LinePanel:
    name = f"{run_group.method}, {run_group.setting}"
    bands = {label: band_of(run_group.runs, f"fednlr/rate_{end}/{layer}") for end, label in LINES.items()}
    looks = looks_of_parts(bands, colours[run_group.identity])
    y = "learning rate"
    if is_named:
        y = textwrap.fill(name.replace("+", "+ "), 34).replace("+ ", "+") + f"\n\n{y}"
    return LinePanel(f"rates in {layer}", name, y, bands, title=layer, log=True, looks=looks)
