"""`fedstride partition`: shows and saves how the examples are divided among the clients."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from .listing import FORMAT, Format
from .run import OVERRIDES, title


def partition(
    overrides: Annotated[list[str] | None, OVERRIDES] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also plot it into this PNG, SVG or PDF file.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write each client's examples into this folder, as client-0.npz, ...")
    ] = None,
    form: Annotated[Format, FORMAT] = Format.TEXT,
) -> None:
    """Print, plot or save the partition: how many examples of each class each client holds.

    A node whose node-config has data=FILE reads a file that --save wrote. OVERRIDES are Hydra overrides, as in
    partition.alpha=0.5 clients=20 seed=2.
    """
    import numpy as np

    from fedstride.tasks import data, partitions
    from server_app.config.compose import compose
    from server_app.config.variables import with_variables

    config = compose(with_variables(overrides or [], os.environ))
    source = data.load(config.task)
    parts = partitions.partition(config.partition, source.train_y, config.clients, config.seed)
    counts = [np.bincount(source.train_y[part], minlength=source.classes).tolist() for part in parts]
    if form is Format.JSON:
        typer.echo(json.dumps({"counts": counts}))
    else:
        table = Table(
            title=f"examples per class and client, partition {config.partition.name}, seed {config.seed}"
        )
        for column in ["client", *map(str, range(source.classes)), "total"]:
            table.add_column(column, justify="right")
        for client, row in enumerate(counts):
            table.add_row(str(client), *(str(count) if count else "·" for count in row), str(sum(row)))
        Console().print(table)
    if save is not None:
        from ..deployment.client_files import save_partition

        for path in save_partition(save, source, parts):
            typer.echo(f"examples {path}", err=form is Format.JSON)
    if output is not None:
        from ..plots.labels import draw_labels

        draw_labels(parts, source.train_y, source.classes, output, title(config))
        typer.echo(f"plot {output.resolve()}", err=form is Format.JSON)
