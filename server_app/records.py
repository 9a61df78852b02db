"""What a run leaves in its folder (design, section 7).

Knows files and their forms; does not know how a round goes. Lines are appended as rounds end, so a run
that was killed still reads; nothing that is there is overwritten.
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from safetensors.numpy import save

from fedstride.arrays import views
from fedstride.config import to_yaml
from fedstride.errors import ConfigError, RunError
from fedstride.schema import Config
from server_app.build import label
from server_app.rounds import Round, Row

PACKAGES = ("fedstride", "flwr", "torch", "numpy", "hydra-core", "flwr-datasets", "mlxtend")


def runs_dir(config: Config) -> Path:
    """Where runs go: `out`, else FEDSTRIDE_RUNS, else `runs` below the working directory; absolute."""
    return Path(config.out or os.environ.get("FEDSTRIDE_RUNS") or "runs").expanduser().resolve()


def default_name(config: Config) -> str:
    """A run's name from its choices, as in `quickstart-fednnnn-sgd-seed1`."""
    objective = [] if config.objective.name == "plain" else [config.objective.name]
    return "-".join([config.experiment, label(config), config.client.name, *objective, f"seed{config.seed}"])


def new_folder(config: Config) -> Path:
    """A folder for a new run; a default name that is taken gets a number.

    Raises ConfigError where a name that was asked for is taken, RunError where it cannot be made.
    """
    root = runs_dir(config)
    name = config.name or default_name(config)
    for number in range(1, 100_000):
        folder = root / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            if config.name is not None:
                raise ConfigError(
                    f"name = {name!r} is taken: {folder} exists and is not overwritten; choose another name"
                ) from None
        except OSError as error:
            raise RunError(
                f"the run's folder {folder} cannot be made ({error.strerror}); choose another with out=FOLDER"
            ) from error
    raise RunError(f"no free name for {name!r} in {root}")


class Records:
    """Writes the files of one run; an observer of its rounds."""

    def __init__(self, config: Config, folder: Path) -> None:
        self.config = config
        self.folder = folder
        self.rows: list[Row] = []
        self.best: tuple[float, int] | None = None  # (test accuracy, round)
        self._arrays: ArrayRecord | None = None
        self._started = time.time()
        self._columns: list[str] = []
        write(folder / "config.yaml", to_yaml(config).encode())
        self._status("running", None, {})

    # -------------------------------------------------------- observer

    def replied(self, server_round: int, done: int, total: int) -> None:
        """Nothing is kept of single replies before the round is over."""

    def round_done(self, done: Round) -> None:
        """Append the round's lines and keep the model if it is the best so far."""
        self.rows.append(done.row)
        self._arrays = done.arrays
        _append(self.folder / "metrics.jsonl", json.dumps(_plain(done.row)))
        for client in done.clients:
            _append(self.folder / "clients.jsonl", json.dumps(_plain(client)))
        self._append_csv(done.row)
        accuracy = done.row.get("test/accuracy")
        if accuracy is not None and done.number > 0 and (self.best is None or accuracy > self.best[0]):
            self.best = (accuracy, done.number)
            save_model(self.folder / "best.safetensors", done.arrays, done.number)

    # -------------------------------------------------------- the end

    def close(self, state: str, reason: str | None = None, facts: Mapping[str, Any] | None = None) -> None:
        """Write what belongs to the end, however the run ended: model, picture, status."""
        if self._arrays is not None:
            save_model(self.folder / "model.safetensors", self._arrays, int(self.rows[-1]["round"]))
        if len(self.rows) > 1:
            from server_app.curve import draw

            draw([(label(self.config), self.rows)], self.folder / "curve.png", title=default_name(self.config))
        self._status(state, reason, facts or {})

    def _status(self, state: str, reason: str | None, facts: Mapping[str, Any]) -> None:
        seconds = {
            phase: sum(row.get(f"seconds/{phase}", 0.0) for row in self.rows)
            for phase in ("train", "aggregate", "evaluate")
        }
        status = {
            "state": state,  # running, completed, failed, interrupted
            "reason": reason,
            "rounds": int(self.rows[-1]["round"]) if self.rows else 0,
            "final": {k: v for k, v in (self.rows[-1] if self.rows else {}).items() if k.startswith("test/")},
            "best": None if self.best is None else {"test/accuracy": self.best[0], "round": self.best[1]},
            "seed": self.config.seed,
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(self._started)),
            "seconds": {"total": time.time() - self._started, **seconds},
            "versions": _versions(),
            "hardware": _hardware(),
            **facts,
        }
        write(self.folder / "status.json", (json.dumps(_plain(status), indent=2) + "\n").encode())

    def _append_csv(self, row: Row) -> None:
        path = self.folder / "metrics.csv"
        new = [key for key in row if key not in self._columns]
        if new:
            self._columns += new
            write(path, _csv([self._columns, *([_cell(r.get(c)) for c in self._columns] for r in self.rows)]))
        else:
            _append(path, _csv([[_cell(row.get(column)) for column in self._columns]]).decode().rstrip("\n"))


def save_model(path: Path, arrays: ArrayRecord, server_round: int) -> None:
    """The model as safetensors, with the round it is of; replaces the file in one step."""
    tensors = {name: np.ascontiguousarray(array) for name, array in views(arrays).items()}
    write(path, save(tensors, metadata={"round": str(server_round)}))


def write(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def _csv(rows: list[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    return json.dumps(_plain(value)) if isinstance(value, list) else ("" if value is None else value)


def _plain(value: Any) -> Any:
    """Without what JSON lacks: NaN and infinities become None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _hardware() -> dict[str, Any]:
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "torch threads": torch.get_num_threads(),
        "gpus": gpus,
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return platform.processor()
    return platform.processor()
