"""Finds and reads run folders: each run's configuration, its metrics and how it ended."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from fedstride.errors import ConfigError, printable
from fedstride.figures.metrics import recall
from fedstride.files import bounded_reading
from server_app.config.compose import from_yaml
from server_app.config.keys import label
from server_app.config.schema import Config
from server_app.file_names import CLIENTS, CONFIG, METRICS, STATUS
from server_app.records.line_files import LinesRead, find_lines, read_lines
from server_app.records.row_values import Row
from server_app.records.run_folder import is_locked
from server_app.reports.unmeasured import measured_metric

from .status import read_fetched, read_status

FETCHED = "fetched.json"
"""In a folder that `fedstride fetch` brought: where it comes from, how the run stood, and the files' SHA-256."""


def read_rows(folder: Path) -> list[Row]:
    """The metrics of a run in progress, round 0 first, without damaged lines; empty if there is no file yet."""
    return read_lines(folder / METRICS)


@dataclass(frozen=True)
class Run:
    """One run as read from its folder; it may be completed, failed, interrupted, terminated or still running."""

    folder: Path
    config: Config
    rows: list[Row]  # a row per completed round, round 0 first
    status: dict[str, Any]  # status.json; empty if there is none
    faults: tuple[str, ...] = ()  # what is damaged in its records and therefore not used
    fetched: dict[str, Any] = field(default_factory=dict)  # fetched.json; empty if the run was not fetched
    in_progress: bool = False  # whether a process of this machine wrote to its folder when it was read

    @cached_property
    def clients(self) -> LinesRead:
        """A row per client and round; read on first use, since it is by far the longest file.

        Raises ConfigError if it cannot be read.
        """
        try:
            return find_lines(self.folder / CLIENTS)
        except OSError as error:
            raise ConfigError(f"{self.folder / CLIENTS} cannot be read ({error.strerror})") from error

    @property
    def method(self) -> str:
        """The method's name as in the papers' tables; see `method_of`."""
        return method_of(self.config)

    @property
    def subset(self) -> str:
        """How many of the published examples it had, in words; empty if all, or if nobody says."""
        said = self.status.get("subset")
        return said if isinstance(said, str) else ""

    @property
    def headline(self) -> str:
        """The metric that decides in this run."""
        return self.config.headline

    @cached_property
    def figure(self) -> str:
        """The metric that the run is judged by: that which decides, or the first measured in its place."""
        return measured_metric(self.config, self.rows)

    @cached_property
    def state(self) -> str:
        """completed, failed, interrupted, terminated, running or lost; unknown if there is no status.json.

        A run is lost if its status says `running`, but no process writes to its folder: it was killed. A fetched
        run was running if it ran when it was fetched.
        """
        state = str(self.status.get("state", "unknown"))
        if state != "running" or self.fetched.get("state") == "running" or self.in_progress:
            return state
        return "lost"

    @property
    def completed(self) -> bool:
        """Whether the run reached its end, which includes early stopping."""
        return self.state == "completed"

    @property
    def remark(self) -> str:
        """Why the run is not completed; empty if it is completed."""
        progress = f"{self.rows[-1]['round'] if self.rows else 0} of {self.config.rounds} rounds completed"
        match self.state:
            case "completed":
                return ""
            case "running":
                when = f" (when it was fetched, {self.fetched.get('fetched')})" if self.fetched else ""
                return printable(f"is still running{when}, {progress}")
            case "lost":
                return f"lost (its process was killed, or the machine stopped), {progress}"
            case "unknown":
                return f"has no status.json, {progress}"
            case state:
                return printable(f"{state} ({self.status.get('reason') or 'no reason is recorded'}), {progress}")

    @property
    def started(self) -> float:
        """The time of its start or last resumption, in seconds since 1970."""
        try:
            return datetime.strptime(str(self.status.get("started")), "%Y-%m-%dT%H:%M:%S%z").timestamp()
        except ValueError:
            return (self.folder / CONFIG).stat().st_mtime


def by_headline(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs by the metric that decides, in order of first appearance.

    If none of the runs with this metric has a value of it, by the first figure that each has in its place.
    """
    measured = {run.headline for run in runs if run.figure == run.headline}
    by_metric: dict[str, list[Run]] = {}
    for run in runs:
        by_metric.setdefault(run.headline if run.headline in measured else run.figure, []).append(run)
    return by_metric


def method_of(config: Config) -> str:
    """The base method and its add-ons: `fedavg+fedlws`, `fedavg+fednlr`, `fedprox`, `fednnnn+fedprox`.

    If the server only averages (FedAvg), an objective other than `plain` becomes the base, as in the papers.
    """
    base, *wrappers = label(config).split("+")
    objective, rule = config.objective.name, config.client.name
    if objective != "plain":
        base = objective if base == "fedavg" else f"{base}+{objective}"
    return "+".join([base, *wrappers, *([] if rule == "sgd" else [rule])])


def is_run(folder: Path) -> bool:
    """Whether the folder contains the files of a run. False if it cannot be read."""
    try:
        return (folder / CONFIG).is_file() and any((folder / name).is_file() for name in (STATUS, METRICS))
    except OSError:
        return False


def load(folder: Path) -> Run:
    """Read one run; lines of its records that do not verify are left out, and named in `faults`.

    Raises ConfigError, which names the file, if a file cannot be read, is damaged or not from fedstride.
    """
    name = CONFIG
    try:
        config = from_yaml(bounded_reading.text(folder / name), execute=False)
        if config.best is None:
            raise ValueError("it has no metric `best`, which every run has")
        # A run may end meanwhile: it writes its last metrics, then its status, and then releases the lock.
        in_progress = is_locked(folder)
        name = STATUS
        status = read_status(folder / name)
        recall(status.get("figures") or {})
        name = METRICS
        metrics = find_lines(folder / name)
        if metrics.damaged and not metrics.lines:
            raise ValueError("no line has its digest: it is damaged, or from another version of fedstride")
        name = FETCHED
        fetched = read_fetched(folder / name)
    except (ValueError, OSError) as error:  # ConfigError is a ValueError
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise ConfigError(f"{folder} cannot be read: {name}: {reason}") from error
    faults = _faults(folder, metrics, status)
    return Run(folder.resolve(), config, metrics.rows, status, faults, fetched, in_progress)


def _faults(folder: Path, metrics: LinesRead, status: dict[str, Any]) -> tuple[str, ...]:
    """What is damaged in the metrics, what happens with it, and what to do; empty if nothing is."""
    last = metrics.rows[-1]["round"] if metrics.lines else -1
    end = last if status.get("state") == "running" else status.get("rounds", last)
    fault = metrics.fault
    if fault is None and last != end:
        fault = f"{metrics.path} is damaged: it ends with round {last}, but the run with round {end}"
    if fault is None:
        return ()
    then = f"; restore them with: fedstride resume {folder}" if (folder / "checkpoint").is_dir() else ""
    return (f"{fault}; these lines are not used{then}",)


def find_runs(paths: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """The runs in these folders (run folders, or folders that contain some), and remarks on skipped runs.

    A run inside a run folder (the FedAvg comparison run) counts only if its own folder is given. Raises
    ConfigError for a path without runs, and for a given run folder that cannot be read.
    """
    by_folder: dict[Path, Run] = {}
    remarks = []
    for path in paths:
        if is_run(path):
            by_folder.setdefault(path.resolve(), load(path))
            continue
        unreadable: list[OSError] = []
        folders = list(_below(path, unreadable))
        skipped = [f"{error.filename} cannot be read ({error.strerror})" for error in unreadable]
        if not folders:
            raise ConfigError("; ".join([_no_run(path), *skipped]) if path.is_dir() else _no_run(path))
        remarks += [f"skipped: {text}" for text in skipped]
        for folder in folders:
            try:
                by_folder.setdefault(folder.resolve(), load(folder))
            except ConfigError as error:
                remarks.append(f"skipped: {error}")
    runs = [run for _, run in sorted(by_folder.items())]
    return runs, [*remarks, *(fault for run in runs for fault in run.faults)]


def _below(path: Path, unreadable: list[OSError]) -> Iterator[Path]:
    for folder, names, _ in os.walk(path, onerror=unreadable.append):
        if is_run(Path(folder)):
            names.clear()
            yield Path(folder)


def _no_run(path: Path) -> str:
    if not path.exists():
        return f"{path} does not exist: name a run folder, or a folder that contains run folders"
    if not path.is_dir():
        parent = path.resolve().parent
        return f"{path} is a file: name a run folder" + (f", {parent}" if is_run(parent) else "")
    return (
        f"{path} is not a run folder and contains no run folders (files of a run: config.yaml, metrics.jsonl): "
        "name another folder, or create a run with fedstride run"
    )
