"""Finds and reads run folders: each run's configuration, its metrics and how it ended."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from fedstride.errors import ConfigError, printable
from server_app.config.compose import from_yaml
from server_app.config.schema import Config, label
from server_app.lines import read_lines
from server_app.rows import Row

DAMAGE = (ValueError, OSError, yaml.YAMLError, AttributeError, TypeError)
"""Exceptions of reading a damaged or foreign file (ConfigError is a ValueError)."""


def read_rows(folder: Path) -> list[Row]:
    """The metrics of the completed rounds, round 0 first; empty if there is no file yet."""
    return read_lines(folder / "metrics.jsonl")


@dataclass(frozen=True)
class Run:
    """One run as read from its folder; it may be completed, failed, interrupted, terminated or still running."""

    folder: Path
    config: Config
    rows: list[Row]  # a row per completed round, round 0 first
    status: dict[str, Any]  # status.json; empty if there is none

    @cached_property
    def clients(self) -> list[Row]:
        """A row per client and round; read on first use, since it is by far the longest file."""
        return read_lines(self.folder / "clients.jsonl")

    @property
    def method(self) -> str:
        """The method's name as in the papers' tables; see `method_of`."""
        return method_of(self.config)

    @property
    def state(self) -> str:
        """completed, failed, interrupted, terminated or running; unknown if there is no status.json."""
        return str(self.status.get("state", "unknown"))

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
                return f"is still running or was killed, {progress}"
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
            return (self.folder / "config.yaml").stat().st_mtime


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
    """Whether the folder contains the files of a run."""
    return (folder / "config.yaml").is_file() and any(
        (folder / name).is_file() for name in ("status.json", "metrics.jsonl")
    )


def load(folder: Path) -> Run:
    """Read one run. Raises ConfigError, which names the file, if a file is damaged or not from fedstride."""
    name = "config.yaml"
    try:
        config = from_yaml((folder / name).read_text(encoding="utf-8"), execute=False)
        name = "metrics.jsonl"
        rows = read_rows(folder)
        name = "status.json"
        status = json.loads((folder / name).read_text(encoding="utf-8")) if (folder / name).is_file() else {}
    except DAMAGE as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise ConfigError(f"{folder} cannot be read: {name}: {reason}") from error
    return Run(folder.resolve(), config, rows, status)


def find_runs(paths: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """The runs in these folders (run folders, or folders that contain some), and remarks on skipped runs.

    A run inside a run folder (the FedAvg comparison run) counts only if its own folder is given. Raises
    ConfigError for a path without runs, and for a given run folder that cannot be read.
    """
    found: dict[Path, Run] = {}
    remarks = []
    for path in paths:
        if is_run(path):
            found.setdefault(path.resolve(), load(path))
            continue
        folders = list(_below(path))
        if not folders:
            raise ConfigError(_no_run(path))
        for folder in folders:
            try:
                found.setdefault(folder.resolve(), load(folder))
            except ConfigError as error:
                remarks.append(f"skipped: {error}")
    return [run for _, run in sorted(found.items())], remarks


def _below(path: Path) -> Iterator[Path]:
    for folder, names, _ in os.walk(path):
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
