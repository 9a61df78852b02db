"""`fedstride stop`, `logs` and `fetch`: what a user does with one run, on this machine or deployed."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..terminal import line, say
from .target import ADDRESS, CONNECTION_OF_A_RUN, INSECURE, ROOT_CERTIFICATES, RUN, folder_of, superlink_of


def stop(
    run: Annotated[str, RUN],
    connection: Annotated[str | None, CONNECTION_OF_A_RUN] = None,
    address: Annotated[str | None, ADDRESS] = None,
    root_certificates: Annotated[Path | None, ROOT_CERTIFICATES] = None,
    insecure: Annotated[bool, INSECURE] = False,
) -> None:
    """Stop a run; its files stay, and it can be resumed. Exit code 1 if it had ended already."""
    from fedstride.errors import RunError

    from ..flower.superlink_requests import control
    from ..results.running_process import interrupt

    folder = folder_of(run)
    if folder is not None:
        process = interrupt(folder)
        line(f"process {process} was asked to stop; resume the run with: fedstride resume {folder}")
        return
    with contextlib.ExitStack() as stack:
        target = superlink_of("stop", run, connection, address, root_certificates, insecure)
        if not stack.enter_context(control(target)).stop(run):
            raise RunError(f"run {run} has ended already: fedstride runs says how")
    line(f"run {run} is stopped; its folder is on the SuperLink's machine: fedstride fetch {run}")


def logs(
    run: Annotated[str, RUN],
    connection: Annotated[str | None, CONNECTION_OF_A_RUN] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more until the run ends.")] = False,
    address: Annotated[str | None, ADDRESS] = None,
    root_certificates: Annotated[Path | None, ROOT_CERTIFICATES] = None,
    insecure: Annotated[bool, INSECURE] = False,
) -> None:
    """Print a run's log: of a deployed run its ServerApp's, of a run on this machine a line for each round."""
    from ..flower import submission
    from ..flower.run_status import PROGRESS, SITE, plain, standing
    from ..flower.superlink_requests import control

    folder = folder_of(run)
    if folder is not None:
        _rounds(folder, follow)
        return
    with contextlib.ExitStack() as stack:
        target = superlink_of("logs", run, connection, address, root_certificates, insecure)
        open_ = stack.enter_context(control(target))
        listed = open_.run(run)
        if follow and not listed.finished:
            console = Console()
            done = submission.follow(target, run, lambda line: say(console, line))
            state, reason = done.state, done.reason
        else:
            lines = open_.log_so_far(listed)
            for log_line in map(plain, lines):
                if not (PROGRESS.search(log_line) or SITE.search(log_line)):
                    line(log_line)
            stands = standing(listed, lines)
            state, reason = stands.state, stands.reason
    line(f"run {run}: {state}" + (f" ({reason})" if reason else ""))


def _rounds(folder: Path, follow: bool) -> None:
    import time

    from server_app.reports.round_line import line as line_of

    from ..results.run_folders import load

    seen = 0
    while True:
        run = load(folder)
        for row in run.rows[seen:]:
            line(line_of(row, run.headline))
        seen = len(run.rows)
        if not follow or run.state != "running":
            break
        time.sleep(1.0)
    line(f"{run.folder.name}: {run.remark or run.state}")


def fetch(
    run: Annotated[str, RUN],
    connection: Annotated[str | None, CONNECTION_OF_A_RUN] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The new folder; by default the run's name in the folder of runs."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="With checkpoints, which a signed resume from this machine needs.")
    ] = False,
    most: Annotated[float, typer.Option(help="Gigabytes that all files together may have.", min=0)] = 16,
    address: Annotated[str | None, ADDRESS] = None,
    root_certificates: Annotated[Path | None, ROOT_CERTIFICATES] = None,
    insecure: Annotated[bool, INSECURE] = False,
) -> None:
    """Copy the folder of a deployed run from the SuperLink's machine to this one, verified by checksums.

    It uses the connection by which runs are submitted. A copy that breaks off leaves nothing.
    """
    from server_app.config.schema import Config
    from server_app.records.run_folder import folder_name, runs_dir

    from ..flower.fetch import fetch as fetch_run
    from ..flower.superlink_requests import control
    from ..results.output_files import refuse_standard_output

    refuse_standard_output(output, "--output", "a folder")
    console = Console()

    def to(name: str) -> Path:
        return output.expanduser().resolve() if output is not None else runs_dir(Config()) / folder_name(name)

    with contextlib.ExitStack() as stack:
        target = superlink_of("fetch", run, connection, address, root_certificates, insecure)
        open_ = stack.enter_context(control(target))
        listed = open_.run(run)
        status = stack.enter_context(console.status("fetching"))
        place, stands = fetch_run(
            open_,
            listed,
            to,
            everything=everything,
            most_bytes=round(most * 1e9),
            progress=lambda received: status.update(f"fetching, {received / 1e6:.1f} MB"),
        )
    say(console, f"run {run}, {stands.state}: {place}")
