"""The plot in a run's folder: test accuracy and training loss against rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .style import LONGEST_LABEL, against_rounds, legend_label, new_figure, save_figure, shown, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Series = tuple[str, Sequence[Mapping[str, Any]]]


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
    save_figure(figure, path)


def points(rows: Sequence[Mapping[str, Any]], key: str) -> list[tuple[int, Any]]:
    """(round, value) of the rows that have the metric."""
    return [(row["round"], row[key]) for row in rows if row.get(key) is not None]


def _line(
    axes: Axes,
    rows: Sequence[Mapping[str, Any]],
    key: str,
    label: str,
    number: int,
    percent: bool = False,
) -> None:
    found = points(rows, key)
    if not found:
        return
    x, y = zip(*found, strict=True)
    last = f"{100 * y[-1]:.1f} %" if percent else f"{y[-1]:.3f}"
    axes.plot(
        x,
        [100 * value for value in y] if percent else y,
        label=legend_label(f"{shown(label, LONGEST_LABEL)}: {last}"),
        **style(number, len(found)),
    )
