"""`fedstride partition`: shows and saves how the examples are divided among the clients."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..terminal import line
from .listing import FORMAT, Format
from .run import OVERRIDES

MOST_COLUMNS = 20
"""Above this number of classes or groups, a line of the table shows only the largest ones."""
LARGEST = 5


def partition(
    overrides: Annotated[list[str] | None, OVERRIDES] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also plot it into this PNG, SVG or PDF file.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(help="Write each client's examples into this folder, as client-0.npz and client-0.toml, ..."),
    ] = None,
    form: Annotated[Format, FORMAT] = Format.TEXT,
) -> None:
    """Print, plot or save the partition: how many examples of each class (and group) each client holds.

    A node whose node-config has data=FILE.toml reads what --save wrote. OVERRIDES are Hydra overrides, as in
    partition.alpha=0.5 clients=20 seed=2.
    """
    import numpy as np

    from fedstride.tasks import data
    from fedstride.tasks.partitions import schemes
    from server_app.config.compose import compose
    from server_app.config.overrides import parse
    from server_app.config.variables import with_variables

    from ..plots.partition_labels import maps_of
    from ..results.output_files import refuse_standard_output

    refuse_standard_output(output, "--output", "a plot")
    refuse_standard_output(save, "--save", "a folder")
    config = compose(with_variables(parse(overrides or []), os.environ))
    source = data.load(config.task)
    parts = schemes.partition(config.partition, source.divisible, config.clients, config.seed)
    counts = {heat_map.rows: heat_map.counts.T.tolist() for heat_map in maps_of(parts, source)}
    if form is Format.JSON:
        names = {"class": "counts", "group": "groups"}
        line(
            json.dumps(
                {names[rows]: table for rows, table in counts.items() if rows in names}
                | {"examples": [len(part) for part in parts]}
            )
        )
    else:
        for rows, table in counts.items():
            Console().print(
                _table(table, f"{rows} and client, partition {config.partition.name}, seed {config.seed}")
            )
        unused = len(source.divisible) - len(np.unique(np.concatenate(parts)))
        if unused:
            line(f"{unused} of {len(source.divisible)} training examples belong to no client")
    if save is not None:
        from ..deployment.client_files import save_partition

        for path in save_partition(save, source, parts):
            line(f"examples {path}", err=form is Format.JSON)
    if output is not None:
        from ..plots.partition_labels import draw_labels

        title = f"{config.task.name}, {config.partition.name}, {config.clients} clients, seed {config.seed}"
        draw_labels(parts, source, output, title)
        line(f"plot {output.resolve()}", err=form is Format.JSON)


def _table(counts: list[list[int]], what: str) -> Table:
    """A row for each client: all numbers, or for many classes or groups their number and the largest ones."""
    wide = len(counts[0]) > MOST_COLUMNS
    table = Table(title=f"examples per {what}")
    for column in ["client", *(["held", "largest"] if wide else map(str, range(len(counts[0])))), "total"]:
        table.add_column(column, justify="right")
    for client, row in enumerate(counts):
        held = sorted((number for number, count in enumerate(row) if count), key=lambda number: -row[number])
        if wide:
            largest = ", ".join(f"{number}: {row[number]}" for number in held[:LARGEST])
            cells = [f"{len(held)} of {len(row)}", largest]
        else:
            cells = [str(count) if count else "·" for count in row]
        table.add_row(str(client), *cells, str(sum(row)))
    return table
