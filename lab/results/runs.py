"""Run folders, read: what a run was, how it ended, what it measured.

Knows the files of a run; does not know how they came about nor what is made of them.
"""

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

from fedstride.errors import ConfigError
from server_app.config.compose import from_yaml
from server_app.config.schema import Config, label
from server_app.lines import read_lines
from server_app.rows import Row

DAMAGE = (ValueError, OSError, yaml.YAMLError, AttributeError, TypeError)
"""What reading a file that is not ours may raise; ConfigError is a ValueError."""


def read_rows(folder: Path) -> list[Row]:
    """The metrics of the rounds that are over, round 0 first; none where there is no run yet."""
    return read_lines(folder / "metrics.jsonl")


@dataclass(frozen=True)
class Run:
    """One run as its folder tells it, whether it was completed, failed, was stopped or still goes on."""

    folder: Path
    config: Config
    rows: list[Row]  # a row a round that is over, round 0 first
    status: dict[str, Any]  # status.json; empty where there is none

    @cached_property
    def clients(self) -> list[Row]:
        """A row a client and round; read when asked for, since it is by far the longest file."""
        return read_lines(self.folder / "clients.jsonl")

    @property
    def method(self) -> str:
        """The method as the papers' tables write it; see `method_of`."""
        return method_of(self.config)

    @property
    def state(self) -> str:
        """completed, failed, interrupted, running; unknown where the folder does not say."""
        return str(self.status.get("state", "unknown"))

    @property
    def completed(self) -> bool:
        """Whether the run came to its end (early stop included)."""
        return self.state == "completed"

    @property
    def remark(self) -> str:
        """Why a run that is not completed is not; empty for one that is."""
        over = f"{self.rows[-1]['round'] if self.rows else 0} of {self.config.rounds} rounds are over"
        match self.state:
            case "completed":
                return ""
            case "running":
                return f"still runs or was killed, {over}"
            case "unknown":
                return f"has no status.json, {over}"
            case state:
                return f"{state} ({self.status.get('reason') or 'no reason is recorded'}), {over}"

    @property
    def started(self) -> float:
        """When it was started (or resumed last), in seconds since 1970."""
        try:
            return datetime.strptime(str(self.status.get("started")), "%Y-%m-%dT%H:%M:%S%z").timestamp()
        except ValueError:
            return (self.folder / "config.yaml").stat().st_mtime


def method_of(config: Config) -> str:
    """Base first, then what is added to it: `fedavg+fedlws`, `fedavg+fednlr`, `fedprox`, `fednnnn+fedprox`.

    An objective of its own names the base where the server only averages, as in the papers.
    """
    base, *wrappers = label(config).split("+")
    objective, rule = config.objective.name, config.client.name
    if objective != "plain":
        base = objective if base == "fedavg" else f"{base}+{objective}"
    return "+".join([base, *wrappers, *([] if rule == "sgd" else [rule])])


def is_run(folder: Path) -> bool:
    """Whether a run left its files here."""
    return (folder / "config.yaml").is_file() and any(
        (folder / name).is_file() for name in ("status.json", "metrics.jsonl")
    )


def load(folder: Path) -> Run:
    """Read one run. Raises ConfigError, naming the file, where it is not ours or is damaged."""
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
    """The runs in these folders, each a run's own or any above runs; and remarks on runs passed over.

    A run inside another run's folder (FedAvg, run beside it) counts only if it is named itself.
    Raises ConfigError for a path that is no run and holds none, or names a run that cannot be read.
    """
    found: dict[Path, Run] = {}
    remarks = []
    for path in paths:
        if is_run(path):
            found.setdefault(path.resolve(), load(path))
            continue
        folders = list(_below(path))
        if not folders:
            raise ConfigError(_why_no_run(path))
        for folder in folders:
            try:
                found.setdefault(folder.resolve(), load(folder))
            except ConfigError as error:
                remarks.append(f"passed over: {error}")
    return [run for _, run in sorted(found.items())], remarks


def _below(path: Path) -> Iterator[Path]:
    for folder, names, _ in os.walk(path):
        if is_run(Path(folder)):
            names.clear()
            yield Path(folder)


def _why_no_run(path: Path) -> str:
    if not path.exists():
        return f"{path} does not exist: name a run's folder, or one with runs below it"
    if not path.is_dir():
        parent = path.resolve().parent
        return f"{path} is a file: name a run's folder" + (f", {parent}" if is_run(parent) else "")
    return (
        f"{path} is no run and holds none (a run's folder has config.yaml and metrics.jsonl): "
        "name another folder, or make a run with fedstride run"
    )
