"""`fedstride run`: train one federation in this process."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from fedstride.schema import Config
    from lab.engine.beside import Beside
    from server_app.rounds import Row

OVERRIDES = typer.Argument(
    help="Hydra overrides, as in strategy=fedlws strategy.beta=0.05 client=fednlr rounds=5 seed=2.",
    show_default=False,
)


def run(
    overrides: Annotated[list[str] | None, OVERRIDES] = None,
    compare: Annotated[
        bool, typer.Option(help="Run FedAvg beside it, with the same seed and budget, in a second process.")
    ] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")] = False,
) -> None:
    """Train one federation in this process and leave its folder (experiment quickstart if none is named)."""
    from fedstride.config import compose

    config = compose(overrides or [])
    console = Console()
    if not quiet:
        console.print(title(config), highlight=False, soft_wrap=True)
    train(config, console, compare=compare, quiet=quiet)


def train(config: Config, console: Console, *, compare: bool, quiet: bool) -> None:
    """Run in this process, with the view, Ctrl-C and the last lines."""
    from client_app.app import app
    from lab.engine.beside import Beside, counterpart
    from lab.engine.local import LocalGrid
    from lab.interrupt import GentleInterrupt
    from lab.live import LiveView
    from server_app import session

    logging.getLogger("flwr").setLevel(logging.WARNING)
    prepared = session.prepare(config)
    for note in prepared.notes:
        console.print(f"note: {note}", highlight=False, soft_wrap=True)
    beside: list[Beside] = []
    folders: list[Path] = []

    def on_folder(folder: Path) -> None:
        folders.append(folder)
        other = counterpart(config, folder) if compare else None
        if other is not None:
            beside.append(Beside(other))

    try:
        with GentleInterrupt() as interrupt, LiveView(console, rounds=config.rounds, quiet=quiet) as view:
            outcome = session.run(
                LocalGrid(app, config.clients), prepared, observers=[view, interrupt], on_folder=on_folder
            )
        if outcome.stopped:
            console.print(f"stopped early: {outcome.stopped}", highlight=False, soft_wrap=True)
        _report(console, config, outcome.folder, outcome.rows, beside)
    except KeyboardInterrupt:
        for folder in folders:
            console.print(f"stopped; go on with: fedstride resume {folder}", highlight=False, soft_wrap=True)
        raise
    finally:
        for process in beside:
            process.stop()


def title(config: Config) -> str:
    """One line that says what runs."""
    from server_app.build import label

    return (
        f"{config.experiment}: {label(config)}, client {config.client.name}, {config.clients} clients "
        f"({config.cohort_size} a round), {config.rounds} rounds, seed {config.seed}"
    )


def _report(console: Console, config: Config, folder: Path, rows: list[Row], beside: list[Beside]) -> None:
    """The last lines: final accuracy, FedAvg's, the folder."""
    from server_app.build import label
    from server_app.curve import draw

    final = rows[-1]["test/accuracy"]
    name = label(config) + ("" if config.client.name == "sgd" else f" with {config.client.name}")
    lines = [f"{name:<28} final test accuracy {100 * final:6.2f} %"]
    for other in beside:
        completed = other.wait()
        other_rows = other.rows()
        if not completed:
            lines.append(f"fedavg: the run beside it failed; see {other.folder / 'status.json'}")
            continue
        fedavg = other_rows[-1]["test/accuracy"]
        lines.append(
            f"{'fedavg':<28} final test accuracy {100 * fedavg:6.2f} %   (run beside it: same seed, same budget)"
        )
        lines.append(f"{'difference':<28} {'':>19}{100 * (final - fedavg):+7.2f} points")
        draw([(name, rows), ("fedavg", other_rows)], folder / "curve.png", title=title(config))
    lines.append(f"{'picture':<28} {folder / 'curve.png'}")
    lines.append(f"{'folder':<28} {folder}")
    for text in lines:
        console.print(text, highlight=False, soft_wrap=True)
