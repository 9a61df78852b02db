"""`fedstride evaluate`: measures trained models on the rows of sites, with intervals; nothing is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..terminal import block, say


def evaluate(
    folders: Annotated[list[Path], typer.Argument(help="Run folders with a model.", show_default=False)],
    files: Annotated[
        str,
        typer.Option(
            help="Sites, as in a.toml,b.csv; by default those of the first run (partition.files).",
            show_default=False,
        ),
    ] = "",
    all_rows: Annotated[
        bool, typer.Option("--all-rows", help="Measure all rows of the sites, not those that the run holds out.")
    ] = False,
    best: Annotated[bool, typer.Option("--best", help="Use the models of the best rounds, not the last.")] = False,
    parts: Annotated[
        Path | None,
        typer.Option(help="The file of parts, if it is not where the run had it.", show_default=False),
    ] = None,
) -> None:
    """Measure models on the rows of sites that are on this machine: figures with intervals, and differences.

    Nothing is trained, and no statistics are computed anew. At the nodes of a deployment, a run with rounds=0 and
    initial=FILE measures a model.
    """
    from dataclasses import replace

    from fedstride.errors import require

    from ..comparison import evaluate as evaluation
    from ..comparison import page
    from ..comparison.site_rows import of_files
    from ..prediction.model import Which, folder_of, load

    which: Which = "best" if best else "last"
    folders = [folder_of(folder, which) for folder in folders]
    called = [folder.absolute().name for folder in folders]
    shown = called if len({*called}) == len(called) else list(map(str, folders))
    models = {name: load(folder, which, parts=parts) for name, folder in zip(shown, folders, strict=True)}
    require(len(models) == len(folders), "FOLDERS", shown, "each folder once")
    first = next(iter(models.values()))
    named = [file.strip() for file in files.split(",") if file.strip()]
    config = first.config
    if named:
        config = replace(config, partition=of_files(named), clients=len(named))
    measured = evaluation.measure(models, config, all_rows=all_rows)
    console = Console()
    width = console.width if console.is_terminal else None
    if all_rows and (known := evaluation.trained_on(models.values(), config)):
        say(console, f"note: {known}")
    for number, figure in enumerate(measured[0].enough):
        block(("\n" if number else "") + page.text_of(measured, figure, width))
        for note in page.notes(measured, figure, [first.config.seed]):
            say(console, note)
