"""The plot in a run's folder: the metric that decides, and training loss, against rounds."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from logging import WARNING
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedstride.figures.metrics import fact, with_unit
from fedstride.files import atomic
from fedstride.flower.logs import log

from ..records.row_values import number
from .plot_style import LONGEST_LABEL, against_rounds, legend_label, new_figure, save_figure, shown, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Series = tuple[str, Sequence[Mapping[str, Any]]]


def drawn(series: Sequence[Series], path: Path, *, title: str, metric: str) -> bool:
    """Call `draw`. If it fails, log a warning: a plot is not worth a run. Returns whether it succeeded."""
    try:
        draw(series, path, title=title, metric=metric)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        log(
            WARNING,
            "%s was not drawn (%s); to draw it later: fedstride plot accuracy %s",
            path.name,
            reason[:300],
            path.parent,
        )
        return False
    return True


def draw(series: Sequence[Series], path: Path, *, title: str, metric: str) -> None:
    """Draw `metric` and the training loss of one or more runs, `(label, rows)` each, into a PNG file."""
    figure = new_figure(9.0, 3.8)
    left, loss = figure.subplots(1, 2)
    for place, (label, rows) in enumerate(series):
        _line(left, rows, metric, label, place)
        _line(loss, rows, "train/loss", label, place)
    left.set_ylabel(with_unit(metric))
    loss.set_ylabel("training loss")
    for axes in (left, loss):
        against_rounds(axes)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False)
    figure.suptitle(title, fontsize=10)
    content = io.BytesIO()
    save_figure(figure, content, format="png")
    atomic.write(path, content.getvalue())


def points(rows: Sequence[Mapping[str, Any]], key: str) -> list[tuple[int, float]]:
    """(round, value) of the rows that have a number as this metric."""
    pairs = ((row["round"], number(row, key)) for row in rows)
    return [(at, value) for at, value in pairs if value is not None]


def _line(
    axes: Axes,
    rows: Sequence[Mapping[str, Any]],
    key: str,
    label: str,
    place: int,
) -> None:
    pairs = points(rows, key)
    if not pairs:
        return
    x, y = zip(*pairs, strict=True)
    known = fact(key)
    last = f"{known.factor * y[-1]:.1f} %" if known.unit == "%" else f"{y[-1]:.3f}"
    axes.plot(
        x,
        [known.factor * value for value in y],
        label=legend_label(f"{shown(label, LONGEST_LABEL)}: {last}"),
        **style(place, len(pairs)),
    )
