"""Writes what a reproduction shows: the table beside the paper's, a picture, and what differs from the paper."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

from fedstride.errors import FedstrideError
from fedstride.files import atomic
from fedstride.processes.cores import cores
from fedstride.settings import Influence
from server_app.config.presets.computed_settings import preset
from server_app.config.presets.facts_of_papers import PaperSource, experiment
from server_app.config.schema import TABLES

from ..papers import paper_table, table_names
from ..papers.side_by_side import SideBySide, side_by_side, statistic_of, subsets
from ..plots import draw
from ..plots.canvas import save
from ..results.formats import markdown
from ..results.grouping import method_values, plain
from ..results.run_folders import Run
from ..results.tables import Statistic, compare_all
from ..results.who_won import verdicts
from .cells import Cell
from .running import CellRun

PAGE, PICTURE = "README.md", "accuracy.png"


def write_page(
    out: Path, target: str, command: str, done: Sequence[CellRun], left: Sequence[CellRun], absent: Sequence[str]
) -> Path:
    """Write README.md and the picture below `out`; the path of the page."""
    complete = [(place.cell, run) for place in done if place.is_complete() and (run := place.run) is not None]
    runs = [run for _, run in complete]
    beside = side_by_side(paper_table(target), runs) if target in table_names() else None
    parts = [_head(target, command), *_tables(beside, complete)]
    if runs:
        try:
            save(draw("accuracy", runs), out / PICTURE)
            parts.append(f"![Against rounds, mean and range over seeds]({PICTURE})")
        except FedstrideError as error:  # a plot is never worth a run
            parts.append(f"No picture: {error}")
    parts += _differences(beside, runs, done)
    missing = [f"{place.cell}: not complete" for place in done if not place.is_complete()]
    missing += [*(f"{place.cell}: not within the budget" for place in left), *absent]
    if missing:
        parts += ["## Not run to the end", "\n".join(f"- {remark}" for remark in missing)]
    path = out / PAGE
    atomic.write(path, ("\n\n".join(parts) + "\n").encode())
    return path


def _head(target: str, command: str) -> str:
    import torch

    caption = f": {paper_table(target).caption}" if target in table_names() else ""
    machine = (
        f"{cores()} cores, {platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"
    )
    return f"# {target}{caption}\n\n```bash\n{command}\n```\n\n{time.strftime('%Y-%m-%d')}, {machine}."


def _tables(beside: SideBySide | None, complete: Sequence[tuple[Cell, Run]]) -> list[str]:
    """Beside the paper's figures, if its table is known; and between the methods, by the paper's own statistic."""
    parts = [] if beside is None else [markdown(beside.grid())]
    by_statistic: dict[Statistic, list[tuple[Cell, Run]]] = {}
    for cell, run in complete:
        by_statistic.setdefault(statistic_of(experiment(cell.experiment)), []).append((cell, run))
    for statistic, group in by_statistic.items():
        runs = [run for _, run in group]
        parts += [markdown(comparison.grid()) for comparison in compare_all(runs, statistic=statistic)]
        parts += [f"- {verdict.text}" for verdict in verdicts(runs, statistic=statistic)]
        two = [run for cell, run in group if cell.decides]
        if len(two) < len(runs):
            alone = [f"- {verdict.text}" for verdict in verdicts(two, statistic=statistic)]
            parts += ["The paper's method and plain averaging alone:", *alone] if alone else []
    return parts


def _differences(beside: SideBySide | None, runs: Sequence[Run], done: Sequence[CellRun]) -> list[str]:
    """What runs have otherwise than the paper, and what we chose for their methods where it is silent."""
    remarks = [*([] if beside is None else beside.remarks), *subsets(runs)]
    seeds = sorted({place.cell.seed for place in done})
    remarks.append(f"seeds {', '.join(map(str, seeds))}")
    others = _METHODS - {key.split(".")[0] for place in done for key in method_values(place.config)}
    for name in dict.fromkeys(place.cell.experiment for place in done):
        for key, value in preset(name).values.items():
            if value.source is not PaperSource.PAPER and key.split(".")[0] not in others:
                why = f": {value.why}" if value.why else ""
                remarks.append(f"{key} = {plain(value.value)} ({value.source}){why}")
    lines = "\n".join(f"- {remark}" for remark in dict.fromkeys(remarks))
    return ["## What differs from the paper, and what it leaves open", lines] if done else []


_METHODS = {name for table in TABLES.values() if table.kind is Influence.METHOD for name in table}
"""The names of all parts of methods."""


def shown(path: Path) -> str:
    """A path from here, if that is shorter."""
    return min(os.path.relpath(path), str(path), key=len)
