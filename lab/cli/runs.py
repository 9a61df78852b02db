"""`fedstride runs`: lists runs on this machine and at SuperLinks, each with its exact state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ..terminal import block, line
from .listing import FORMAT, Format
from .target import ADDRESS, INSECURE, ROOT_CERTIFICATES, select

if TYPE_CHECKING:
    from ..flower.superlink_choice import ChosenSuperLink
    from ..results.run_folders import Run

WHERE = typer.Argument(
    help="Folders with runs, and connections in Flower's config.toml; by default the folder of runs, and all "
    "connections.",
    show_default=False,
)


@dataclass(frozen=True)
class Entry:
    """A line of the list; `rounds` are completed rounds, `by` is who started or submitted the run."""

    run: str
    place: str  # "here", or the name of the connection
    state: str
    rounds: str
    figure: str
    by: str
    since: str
    what: str
    reason: str = ""


def runs(
    where: Annotated[list[str] | None, WHERE] = None,
    address: Annotated[str | None, ADDRESS] = None,
    root_certificates: Annotated[Path | None, ROOT_CERTIFICATES] = None,
    insecure: Annotated[bool, INSECURE] = False,
    limit: Annotated[int, typer.Option(help="How many runs of each place, the newest.", min=1)] = 20,
    form: Annotated[Format, FORMAT] = Format.TEXT,
) -> None:
    """List runs, local and deployed: state, rounds, figure, who, since when; and why a run is not completed.

    WHERE are folders with runs, and connections in Flower's config.toml.
    """
    from fedstride.errors import RunError

    entries: list[Entry] = []
    folders, targets = _places(where, address, root_certificates, insecure)
    for folder in folders:
        entries += list(_local(folder))[:limit]
    for target in targets:
        try:
            entries += _deployed(target, limit)
        except RunError as error:
            if where or address:
                raise
            line(f"note: {target.name or target.address}: {error}", err=True)
    if form is Format.JSON:
        block(json.dumps([asdict(entry) for entry in entries], indent=2))
    else:
        _print(entries)


def _places(
    where: list[str] | None,
    address: str | None,
    root_certificates: Path | None,
    insecure: bool,
) -> tuple[list[Path], list[ChosenSuperLink]]:
    from server_app.config.schema import Config
    from server_app.records.run_folder import runs_dir

    from ..flower.superlink_choice import deployed, named

    folders = [Path(text).expanduser() for text in where or [] if Path(text).expanduser().is_dir()]
    targets = [named(text) for text in where or [] if not Path(text).expanduser().is_dir()]
    if address is not None:
        targets.append(select("runs", None, address, root_certificates, insecure))
    if not where and address is None:
        targets = [named(name) for name in deployed()]
        here = runs_dir(Config())
        folders = [here] if here.is_dir() else []
    return folders, targets


def _local(folder: Path) -> Iterator[Entry]:
    from fedstride.errors import ConfigError

    from ..results.run_folders import find_runs

    try:
        all_runs, remarks = find_runs([folder])
    except ConfigError:
        return  # no runs there
    for remark in remarks:
        line(f"note: {remark}", err=True)
    for run in sorted(all_runs, key=lambda run: run.started, reverse=True):
        yield _here(run)


def _here(run: Run) -> Entry:
    from datetime import datetime

    from fedstride.figures.metrics import as_text, shown

    from ..results.tables import Statistic

    value = Statistic().of(run.rows, run.figure)
    return Entry(
        run=str(run.folder),
        place="here",
        state=run.state,
        rounds=f"{run.rows[-1]['round'] if run.rows else 0} of {run.config.rounds}",
        figure="" if value is None else f"{shown(run.figure)} {as_text(run.figure, value)}",
        by=_owner(run.folder),
        since=datetime.fromtimestamp(run.started).astimezone().isoformat(timespec="seconds"),
        what=f"{run.method}, {run.config.task.name}, seed {run.config.seed}",
        reason="" if run.state in ("completed", "running") else run.remark,
    )


def _owner(folder: Path) -> str:
    try:
        return folder.owner()
    except (KeyError, OSError):
        return ""


def _deployed(target: ChosenSuperLink, limit: int) -> Iterator[Entry]:
    from ..flower.run_status import standing
    from ..flower.superlink_requests import control

    with control(target) as connection:
        for run in connection.runs(limit):
            stands = standing(run, connection.log_so_far(run))
            yield Entry(
                run=run.run_id,
                place=target.name or target.address,
                state=stands.state,
                rounds="" if stands.round is None else str(stands.round),
                figure=stands.figure,
                by=run.submission.partition(" ")[0],
                since=run.since,
                what=run.overrides,
                reason=stands.reason,
            )


def _print(entries: list[Entry]) -> None:
    from ..results.formats import Grid, text

    head = ["run", "place", "state", "rounds", "figure", "who", "since", "what"]
    rows = [
        [
            Path(entry.run).name if entry.place == "here" else entry.run,
            entry.place,
            entry.state,
            entry.rounds,
            entry.figure,
            entry.by,
            entry.since[:16].replace("T", " "),
            entry.what,
        ]
        for entry in entries
    ]
    console = Console()
    width = console.width if console.is_terminal else None
    block(text(Grid(f"{len(rows)} runs", head, rows, words=len(head)), width))
    for entry in entries:
        if entry.reason:
            name = Path(entry.run).name if entry.place == "here" else entry.run
            line(f"{name}: {entry.reason}")
