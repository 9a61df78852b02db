"""Writes a comparison: a table for each figure, a picture of the first, and all numbers."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedstride.figures.intervals import DRAWS, FEWEST, LEVEL, Interval
from fedstride.figures.intervals_by_counts import LISTS
from fedstride.figures.metrics import Metric, fact
from fedstride.figures.scores import EXACT
from fedstride.files import atomic
from fedstride.messages import wire
from fedstride.tasks.evaluation.comparison import At, ComparedFigure
from server_app.reports.plot_style import LONGEST_LABEL, legend_label, new_figure, save_figure, shown, style

from ..results.formats import Grid, markdown, text
from .comparison_figures import ALL
from .comparison_runs import ALONE

PAGE, PICTURE, NUMBERS = "README.md", "comparison.png", "comparison.json"

NOTHING = "–"

TOGETHER = (
    f"{ALL}: the rows of all sites are ranked together, also in the difference; that over all sites of a run with "
    "against=FILE is the mean of the sites' differences by rows"
)


def grid(measured: Sequence[At], figure: str) -> Grid:
    """The table of one figure: a row a site, and one for all; figures with intervals, then differences."""
    known = fact(f"{wire.LOCAL}/{figure}")
    columns, pairs = list(measured[0].figures), list(measured[0].differences)
    head = ["site", "rows", *columns, *(f"{one} − {other}" for one, other in pairs)]
    rows = [
        [
            at_site.site + ("" if at_site.enough[figure] else " *"),
            str(at_site.rows),
            *(_with_interval(at_site.figures[column][figure], known, "") for column in columns),
            *(_with_interval(at_site.differences[pair][figure], known, "+") for pair in pairs),
        ]
        for at_site in measured
    ]
    unit = f", {known.unit}" if known.unit else ""
    return Grid(f"{figure.replace('_', ' ')}{unit}, with {LEVEL:.0%} intervals", head, rows)


def notes(measured: Sequence[At], figure: str, seeds: Sequence[int]) -> list[str]:
    """What a reader must know of this table."""
    few = [at_site.site for at_site in measured if not at_site.enough[figure]]
    lines = []
    if few:
        kinds = f", or fewer than {FEWEST} of one class," if figure in {*EXACT, *LISTS} else ""
        lines.append(f"* {', '.join(few)}: fewer than {FEWEST} rows{kinds} were measured, which says too little")
    lines += _over_all(measured[-1]) + _unmoved(measured, figure)
    if figure in EXACT and measured[-1].site == ALL and measured[-1].differences:
        lines.append(TOGETHER)
    if len(seeds) > 1:
        spreads = {column: cells[figure].spread for column, cells in measured[-1].figures.items()}
        known = fact(f"{wire.LOCAL}/{figure}")
        lines.append(
            f"figures are means over seeds {', '.join(map(str, seeds))}; standard deviations over all sites: "
            + ", ".join(f"{_number(known, spread)} ({column})" for column, spread in spreads.items())
        )
    if figure in EXACT and ALONE in measured[0].figures:
        lines.append(
            f"of {ALONE} over all sites, scores of different models are ranked together; compare it at each site"
        )
    return lines


def _over_all(together: At) -> list[str]:
    """Which sites do not count over all, and why."""
    if not together.left_out:
        return []
    few = ", ".join(together.left_out)
    return [f"{together.site}: without {few}, where fewer than {FEWEST} rows were measured"]


def _unmoved(measured: Sequence[At], figure: str) -> list[str]:
    """Where there is no interval, though there are enough rows."""
    where = [
        at_site.site
        for at_site in measured
        if at_site.enough[figure]
        and any(
            not math.isnan(cells[figure].value) and not cells[figure].interval.known
            for cells in (*at_site.figures.values(), *at_site.differences.values())
        )
    ]
    if not where:
        return []
    why = "the number is the same in all draws of rows, or too many draws have none"
    return [f"no interval at {', '.join(where)}: {why}"]


def text_of(measured: Sequence[At], figure: str, width: int | None) -> str:
    """The table of one figure for a terminal of this width."""
    return text(grid(measured, figure), width)


HOW = (
    "All models are measured on the same rows of each site, on which none was trained. Intervals are of these "
    f"rows alone: of an AUROC of two classes at a site by DeLong's method, else by a bootstrap of {DRAWS} draws "
    f"within each site. Fewer than {FEWEST} rows, or in figures by class fewer of one class, have none, nor has a "
    f"number that does not move with the draws. A site with fewer than {FEWEST} rows does not count over all. A "
    "difference is of the same rows; it is clear where its interval does not include 0. Intervals say nothing of "
    "another training, whose spread over the seeds is given beside them."
)


def write(out: Path, measured: Sequence[At], *, command: str, seeds: Sequence[int], what: Sequence[str]) -> Path:
    """Write the page, the picture and the numbers into `out`; the path of the page. `what`: said of the runs."""
    names = list(measured[0].enough)
    parts = ["# One model for all sites, one of each site, and one of all rows", f"```bash\n{command}\n```"]
    parts += ["\n".join(f"- {remark}" for remark in what), HOW, f"![{names[0]} at each site]({PICTURE})"]
    for figure in names:
        parts.append(markdown(grid(measured, figure)))
        parts += [f"{note}." for note in notes(measured, figure, seeds)]
    atomic.write(out / PICTURE, drawn(measured, names[0]))
    atomic.write(out / NUMBERS, json.dumps(_plain(measured), indent=1, allow_nan=False).encode())
    atomic.write(out / PAGE, ("\n\n".join(part.rstrip() for part in parts) + "\n").encode())
    return out / PAGE


def drawn(measured: Sequence[At], figure: str) -> bytes:
    """A picture of one figure, PNG: a line of each kind of model at each site, as wide as its interval."""
    known, columns = fact(f"{wire.LOCAL}/{figure}"), list(measured[0].figures)
    step = 0.8 / len(columns)
    made = new_figure(7.0, 1.4 + 0.24 * len(measured) * (len(columns) + 1))
    axes = made.subplots()
    for number, column in enumerate(columns):
        look = style(number)
        for place, at_site in enumerate(measured):
            value, interval, *_ = at_site.figures[column][figure]
            at = place + (number - (len(columns) - 1) / 2) * step
            label = legend_label(shown(column, LONGEST_LABEL)) if place == 0 else None
            low, high = interval if interval.known else (value, value)
            faint = 1.0 if at_site.enough[figure] else 0.4
            axes.plot(
                [known.factor * low, known.factor * high],
                [at, at],
                color=look["color"],
                alpha=faint,
                linewidth=2.0,
            )
            axes.plot(
                [known.factor * value], [at], color=look["color"], marker=look["marker"], linestyle="",
                markersize=6.0, alpha=faint, label=label,
            )  # fmt: skip
    axes.set_yticks(range(len(measured)))
    axes.set_yticklabels([f"{at_site.site}, {at_site.rows} rows" for at_site in measured])
    axes.invert_yaxis()
    axes.set_xlabel(figure.replace("_", " ") + (f" [{known.unit}]" if known.unit else ""))
    axes.grid(axis="x", alpha=0.3)
    made.legend(frameon=False, loc="outside upper center", ncols=len(columns))
    content = io.BytesIO()
    save_figure(made, content, format="png")
    return content.getvalue()


def _with_interval(cell: ComparedFigure, known: Metric, sign: str) -> str:
    if math.isnan(cell.value):
        return NOTHING
    value = _number(known, cell.value, sign)
    if not cell.interval.known:
        return f"{value} (no interval)"
    low, high = (_number(known, end, sign) for end in cell.interval)
    return f"{value} ({low} to {high})"


def _number(known: Metric, value: float, sign: str = "") -> str:
    digits = 1 if known.unit == "%" else 3 if known.most == 1.0 else 4
    kind = "f" if known.most == 1.0 else "g"
    return f"{known.factor * value:{sign}.{digits}{kind}}".replace("-", "−")


def _plain(measured: Sequence[At]) -> list[dict[str, Any]]:
    return [
        {
            "site": at_site.site,
            "rows": at_site.rows,
            "enough": dict(at_site.enough),
            "left_out": list(at_site.left_out),
            "figures": {column: _cells(cells) for column, cells in at_site.figures.items()},
            "differences": {
                f"{one} - {other}": _cells(cells) for (one, other), cells in at_site.differences.items()
            },
        }
        for at_site in measured
    ]


def _cells(cells: Mapping[str, ComparedFigure]) -> dict[str, dict[str, float | None]]:
    return {name: _cell(cell.value, cell.interval, cell.spread) for name, cell in cells.items()}


def _cell(value: float, interval: Interval, spread: float) -> dict[str, float | None]:
    numbers = {"value": value, "low": interval.low, "high": interval.high, "spread": spread}
    return {key: number if math.isfinite(number) else None for key, number in numbers.items()}
