"""The picture that a run leaves: test accuracy and training loss against rounds.

Knows rows of metrics; does not know where they come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Series = tuple[str, Sequence[Mapping[str, Any]]]

# Told apart in grey too: by lightness, line and mark.
_STYLES = (
    {"color": "#0b3c5d", "linestyle": "-", "marker": "o"},
    {"color": "#d9822b", "linestyle": "--", "marker": "s"},
    {"color": "#3a7d44", "linestyle": "-.", "marker": "^"},
    {"color": "#8e44ad", "linestyle": ":", "marker": "D"},
)


def draw(series: Sequence[Series], path: Path, *, title: str) -> None:
    """Draw the accuracy and loss curves of one or more runs, `(label, rows)` each, into a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.8), layout="constrained", dpi=130)
    FigureCanvasAgg(figure)
    accuracy, loss = figure.subplots(1, 2)
    for number, (label, rows) in enumerate(series):
        style: dict[str, Any] = dict(_STYLES[number % len(_STYLES)], markersize=3.5, linewidth=1.6)
        _line(accuracy, rows, "test/accuracy", label, style, percent=True)
        _line(loss, rows, "train/loss", label, style)
    accuracy.set_ylabel("test accuracy (%)")
    loss.set_ylabel("training loss (cross-entropy)")
    for axes in (accuracy, loss):
        axes.set_xlabel("round")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path)


def _line(
    axes: Any,
    rows: Sequence[Mapping[str, Any]],
    key: str,
    label: str,
    style: dict[str, Any],
    percent: bool = False,
) -> None:
    points = [(row["round"], row[key]) for row in rows if row.get(key) is not None]
    if not points:
        return
    x, y = zip(*points, strict=True)
    last = f"{100 * y[-1]:.1f} %" if percent else f"{y[-1]:.3f}"
    axes.plot(x, [100 * value for value in y] if percent else y, label=f"{label}: {last}", **style)
