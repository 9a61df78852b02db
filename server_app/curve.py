"""The picture that a run leaves: test accuracy and training loss against rounds.

Knows rows of metrics and how all our pictures look; does not know where the rows come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Series = tuple[str, Sequence[Mapping[str, Any]]]

# Told apart in grey too: by lightness, line and mark.
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#0b3c5d", "linestyle": "-", "marker": "o"},
    {"color": "#d9822b", "linestyle": "--", "marker": "s"},
    {"color": "#3a7d44", "linestyle": "-.", "marker": "^"},
    {"color": "#8e44ad", "linestyle": ":", "marker": "D"},
    {"color": "#b03a2e", "linestyle": (0, (8, 2)), "marker": "v"},
    {"color": "#5dade2", "linestyle": "-", "marker": "P"},
    {"color": "#222222", "linestyle": (0, (1, 1)), "marker": "X"},
    {"color": "#9aa51d", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "<"},
)


def style(number: int, points: int = 0) -> dict[str, Any]:
    """The look of line `number`; with so many points that marks would touch, only some are marked.

    Beyond the eighth line colours come again, with another mark.
    """
    look = STYLES[number % len(STYLES)]
    turn = number // len(STYLES)
    marker = STYLES[(number + 3 * turn) % len(STYLES)]["marker"]
    every = max(1, points // 20)
    return {**look, "marker": marker, "markersize": 4.2, "linewidth": 1.6, "markevery": every}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, drawn by Agg: no window, no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", dpi=130)
    FigureCanvasAgg(figure)
    return figure


def against_rounds(axes: Axes) -> None:
    """Whole rounds along x, and a light grid."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))
    axes.grid(alpha=0.3)


def draw(series: Sequence[Series], path: Path, *, title: str) -> None:
    """Draw the accuracy and loss curves of one or more runs, `(label, rows)` each, into a PNG file."""
    figure = new_figure(9.0, 3.8)
    accuracy, loss = figure.subplots(1, 2)
    for number, (label, rows) in enumerate(series):
        _line(accuracy, rows, "test/accuracy", label, number, percent=True)
        _line(loss, rows, "train/loss", label, number)
    accuracy.set_ylabel("test accuracy (%)")
    loss.set_ylabel("training loss (cross-entropy)")
    for axes in (accuracy, loss):
        against_rounds(axes)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path)


def _line(
    axes: Axes,
    rows: Sequence[Mapping[str, Any]],
    key: str,
    label: str,
    number: int,
    percent: bool = False,
) -> None:
    points = [(row["round"], row[key]) for row in rows if row.get(key) is not None]
    if not points:
        return
    x, y = zip(*points, strict=True)
    last = f"{100 * y[-1]:.1f} %" if percent else f"{y[-1]:.3f}"
    axes.plot(
        x, [100 * value for value in y] if percent else y, label=f"{label}: {last}", **style(number, len(points))
    )
