"""What a ServerApp may use on the server: its run's folder, and what the operator and its settings name."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import shlex
import subprocess
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from confinement import support
from fedstride.errors import ConfigError, unknown
from fedstride.files import bounded_reading
from fedstride.messages import wire
from fedstride.plain_numbers import is_whole

RUNS, MODELS = "runs", "models"
METRICS = "FEDSTRIDE_METRICS"
"""The variable that names the folder for Prometheus."""

TASK = "task.json"
"""Beside a model: of which task it is."""

OF_MODELS = ("initial", "against")
"""Settings that name a file with a model."""

NAMING = ("resume", *OF_MODELS)
"""Settings that name what must be on the server."""

LONGEST = 10_000
"""Characters of a line that names a file; a path has at most 4,096."""

CONFIG = "config.yaml"
"""What the folder of a run always has."""


@dataclass(frozen=True)
class Grant:
    """What the ServerApp of one run may use. `folder` contains its run's folder, and is where it works."""

    folder: Path
    scratch: Path
    read: tuple[Path, ...]
    write: tuple[Path, ...]
    ports: tuple[int, ...]
    environment: dict[str, str]


@dataclass(frozen=True)
class ServerFolders:
    """The folders of the server, from the operator's file. All paths are absolute."""

    runs: Path
    models: Path
    home: Path  # for what a ServerApp needs while it lives
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    ports: tuple[int, ...] = ()  # of trackers
    devices: tuple[Path, ...] = ()  # of a graphics card
    passed: tuple[str, ...] = ()  # variables of the environment
    confined: bool = True
    """Whether the kernel confines ServerApps."""

    def grant(self, run_id: int, config: Mapping[str, Any]) -> Grant:
        """What the ServerApp of this run may use; its folders are made. Raises ConfigError for what it may not."""
        named = settings(config)
        folder = self.runs / str(run_id)
        resumed = self._resumed(folder, named.get("resume", ""))
        for path in resumed:
            named = stored_models(path / CONFIG) | named
        models = [path for key in OF_MODELS for path in self._model(folder, key, named.get(key, ""))]
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix=f"{run_id}-", dir=self.home))
            (scratch / "tmp").mkdir()
        except OSError as error:
            raise ConfigError(f"the folder of run {run_id} cannot be made: {error}") from error
        return Grant(
            folder=folder,
            scratch=scratch,
            read=(*self.read, *models),
            write=(folder, scratch, *self.write, *resumed),
            ports=self.ports,
            environment=self._variables(folder, scratch),
        )

    def release(self, grant: Grant) -> None:
        """Remove what the ServerApp needed while it lived."""
        _remove(grant.scratch)

    def tidy(self) -> None:
        """Remove what ServerApps of a SuperLink that was killed have left; those that still end hold a lock."""
        for scratch in self.home.glob("*"):
            with contextlib.suppress(OSError):
                folder = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(scratch)
                finally:
                    os.close(folder)

    def _variables(self, folder: Path, scratch: Path) -> dict[str, str]:
        variables = {
            "HOME": scratch,
            "FLWR_HOME": scratch / "flower",
            "TMPDIR": scratch / "tmp",
            "XDG_CACHE_HOME": scratch / "cache",
            "MPLCONFIGDIR": scratch / "cache",
            "FEDSTRIDE_RUNS": folder,
            "FEDSTRIDE_CACHE": self._cache(scratch),
        }
        return {name: str(path) for name, path in variables.items()}

    def _cache(self, scratch: Path) -> Path:
        """The SuperLink's own cache if the operator lets ServerApps write to it, else one of this ServerApp's."""
        shared = os.environ.get("FEDSTRIDE_CACHE")
        return _absolute(shared) if shared and _absolute(shared) in self.write else scratch / "cache"

    def _resumed(self, folder: Path, name: str) -> list[Path]:
        """The folder that `resume=` names, which must be that of a run here."""
        if not name:
            return []
        path = (folder / name).resolve()  # a ServerApp works in its folder
        if not path.is_relative_to(self.runs) or path == self.runs or not (path / CONFIG).is_file():
            raise ConfigError(
                f"resume = {name!r} is not the folder of a run below {self.runs}: give its whole path, which the "
                "log of the run has"
            )
        return [path]

    def _model(self, folder: Path, key: str, name: str) -> list[Path]:
        """The file that this key names, which must be below the folder of models; and what its task was."""
        if not name:
            return []
        path = (folder / name).resolve()
        if not path.is_relative_to(self.models) or not path.is_file():
            raise ConfigError(
                f"{key} = {name!r} is not a file below {self.models}, the server's folder of models: give its "
                "whole path"
            )
        task = path.with_name(TASK)
        return [path, task] if task.is_file() and not task.is_symlink() else [path]


def _remove(folder: Path) -> None:
    """Remove a folder that may be deep and large, so a program does it."""
    subprocess.run(["rm", "-rf", "--", str(folder)], check=False)


def settings(config: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a run as submitted that name files here; the last of several applies."""
    try:
        overrides = shlex.split(str(config.get(wire.OVERRIDES, "")))
    except ValueError:  # the ServerApp refuses it
        overrides = []
    named = {key: str(config[key]) for key in NAMING if config.get(key)}
    for text in overrides:
        key, equals, value = text.partition("=")
        if equals and key.lstrip("+") in NAMING:
            named[key.lstrip("+")] = _unquoted(value)
    return {key: value for key, value in named.items() if value not in ("", "null")}


def stored_models(config: Path) -> dict[str, str]:
    """The files with models that the configuration of a resumed run names.

    A ServerApp wrote it: what it names may be used only if the run's submission may name it.
    """
    try:
        lines = bounded_reading.text(config).splitlines()
    except (OSError, ValueError):  # the ServerApp refuses it
        return {}
    found: dict[str, str] = {}
    for key in OF_MODELS:
        start = next((number for number, line in enumerate(lines) if line.startswith(f"{key}:")), len(lines))
        rest = itertools.takewhile(lambda line: line.startswith(" "), lines[start + 1 :])  # of a long value
        text = "\n".join([*lines[start : start + 1], *rest])
        with contextlib.suppress(yaml.YAMLError, ValueError, RecursionError):  # whatever it wrote
            read = yaml.safe_load(text) if len(text) <= LONGEST else None
            value = read.get(key) if isinstance(read, dict) else None
            found |= {key: value} if isinstance(value, str) else {}
    return found


def _unquoted(value: str) -> str:
    value = value.strip(" \t")
    quote = value[:1]
    if quote not in ("'", '"') or not value.endswith(quote) or len(value) < 2:
        return value
    return re.sub(rf"(\\+)({quote}|\Z)", lambda match: "\\" * (len(match[1]) // 2) + match[2], value[1:-1])


def read(path: Path | None, home: Path, environment: Mapping[str, str] = os.environ) -> ServerFolders:
    """The operator's file; without one, runs and models are in the working directory. Raises ConfigError."""
    table = {} if path is None else _table(path)
    metrics = [environment[METRICS]] if environment.get(METRICS) else []
    runs = str(table.get(RUNS) or environment.get("FEDSTRIDE_RUNS") or RUNS)
    return ServerFolders(
        runs=_absolute(runs),
        models=_absolute(str(table.get(MODELS, MODELS))),
        home=home,
        read=_present("read", table.get("read", [])),
        write=_present("write", [*table.get("write", []), *metrics]),
        ports=tuple(table.get("ports", [])),
        passed=tuple(table.get("environment", [])),
        devices=_present("devices", table.get("devices", [])),
        confined=_is_confined(str(table.get("confine", IF_POSSIBLE))),
    )


DEMANDED, IF_POSSIBLE, OFF = WAYS = ("demanded", "if-possible", "off")

FORMS = {
    RUNS: "a path",
    MODELS: "a path",
    "read": "a list of paths",
    "write": "a list of paths",
    "ports": "a list of ports",
    "environment": "a list of names",
    "devices": "a list of paths",
    "confine": f"one of {', '.join(WAYS)}",
}


def _table(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.expanduser().read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--serverapp-config {path} cannot be read: {str(error).splitlines()[0]}") from error
    for key, value in table.items():
        if key not in FORMS:
            raise ConfigError(f"--serverapp-config {path}: {unknown('key', key, FORMS)}")
        if not _has_form(value, FORMS[key]):
            raise ConfigError(f"--serverapp-config {path}: {key} = {value!r} must be {FORMS[key]}")
    return table


def _has_form(value: Any, form: str) -> bool:
    if form.startswith("one of"):
        return value in WAYS
    if form == "a path":
        return isinstance(value, str) and bool(value)
    if not isinstance(value, list):
        return False
    if form == "a list of ports":
        return all(is_whole(port) and 0 < port < 65536 for port in value)
    return all(isinstance(text, str) for text in value)


def _present(key: str, paths: Sequence[str]) -> tuple[Path, ...]:
    absolute = tuple(map(_absolute, paths))
    for path in absolute:
        if not path.exists():
            raise ConfigError(
                f"{path} does not exist, and ServerApps may use it ({key}): make it, or leave it out"
            )
    return absolute


def _is_confined(way: str) -> bool:
    """Whether ServerApps are confined. Raises ConfigError if it is demanded, and this machine cannot do it."""
    available = support()
    if way == DEMANDED and not available.possible:
        raise ConfigError(
            f"confine = {DEMANDED!r}, but ServerApps cannot be confined on this machine; missing: "
            f"{', '.join(available.missing())}"
        )
    return way != OFF and available.possible


def _absolute(text: str) -> Path:
    return Path(text).expanduser().resolve()
