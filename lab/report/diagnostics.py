"""What the methods measured, for the browser: the figures of `lab/plots/` that are not in the comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedstride.errors import FedstrideError

from ..plots import KINDS
from ..plots.panels import Panel, PlotFigure
from ..results.run_folders import Run

IN_THE_COMPARISON = {"accuracy", "seconds"}


@dataclass
class Shown:
    """The panels of one kind of plot. `folded`: those that a reader opens. `fault`: why there are none."""

    title: str
    caption: str
    drawings: list[Panel] = field(default_factory=list)
    folded: list[Panel] = field(default_factory=list)
    fault: str = ""


def diagnostics(runs: Sequence[Run], colours: Mapping[str, int]) -> list[Shown]:
    """For each kind of plot the panels of the runs that have its metrics."""
    parts = []
    for name, kind in KINDS.items():
        shown = kind.shown(runs)
        if not shown or name in IN_THE_COMPARISON:
            continue
        count = f"{len(shown)} of {len(runs)} runs" if len(shown) < len(runs) else f"all {len(runs)} runs"
        part = Shown(kind.title(shown), count)
        try:
            _fill(part, kind.figure(shown, colours))
        except FedstrideError as error:  # a partition is drawn again from the data, which may be missing here
            part.fault = f"not available on this machine: {error}"
        parts.append(part)
    return parts


def _fill(part: Shown, figure: PlotFigure) -> None:
    part.caption = "; ".join([part.caption, *figure.notes]) + "."
    for number, panels in enumerate(figure.parts):
        place = part.drawings if figure.folded is None or number < figure.folded else part.folded
        place += [panel for panel in panels if not panel.is_empty]
