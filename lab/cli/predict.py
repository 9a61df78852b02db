"""`fedstride predict`: writes what a run's model predicts for a table, images, texts or recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal import content, line

BEST = typer.Option("--best", help="Use the model of the best round, not the last.")
PARTS = typer.Option(
    help="The file of parts with the network, if it is not where the run had it.", show_default=False
)


def predict(
    folder: Annotated[Path, typer.Argument(help="The run folder.", show_default=False)],
    source: Annotated[
        Path,
        typer.Argument(
            help="A table (.csv, .csv.gz, .parquet), an .npz file, a file of one example or a folder of them.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The CSV file to write; - prints it.")] = Path(
        "predictions.csv"
    ),
    best: Annotated[bool, BEST] = False,
    parts: Annotated[Path | None, PARTS] = None,
) -> None:
    """Write predictions of a run's model, with probabilities, as a CSV file: a row for each example, in order.

    The columns of a table are found by name; the target and other columns are ignored. The data of the task are
    not needed, and nothing is sent.
    """
    from fedstride.errors import ConfigError
    from fedstride.files import atomic
    from server_app.records.spreadsheet import inert

    from ..prediction.model import load
    from ..results.output_files import STANDARD_OUTPUT

    if output != STANDARD_OUTPUT and output.exists():
        raise ConfigError(f"{output} exists and is not overwritten: choose another file with --output")
    model = load(folder, "best" if best else "last", parts=parts)
    table = model.predict(source)
    safe = table.set_axis([inert(name) for name in table.columns], axis=1)
    words = safe.select_dtypes(exclude="number").columns
    safe[words] = safe[words].map(inert)
    safe.index = safe.index.map(inert)
    if output == STANDARD_OUTPUT:
        content(safe.to_csv())
        return
    try:
        atomic.create(output, safe.to_csv().encode())
    except OSError as error:
        raise ConfigError(f"{output} cannot be written ({error.strerror}): choose another file") from error
    line(f"{len(table)} predictions of the model in {folder}: {output.resolve()}")
