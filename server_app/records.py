"""What a run leaves in its folder (design, section 7).

Knows files and their forms; does not know how a round goes. Lines are appended as rounds end, so a run
that was killed still reads; nothing that is there is overwritten.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import platform
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import numpy as np
from flwr.app import ArrayRecord
from safetensors.numpy import save

from fedstride.arrays import views
from fedstride.config import digest, to_yaml
from fedstride.errors import CheckpointError, ConfigError, RunError
from fedstride.schema import Config
from server_app.build import label
from server_app.checkpoint import Checkpoint, write_checkpoint
from server_app.rounds import Round, Row
from server_app.stopping import best_round
from strategies.norms import NormAnalysis

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
    """Writes the files of one run; an observer of its rounds.

    `resume_after`: the round after which a run goes on; lines of later rounds, which will be played
    again, are dropped. Raises ConfigError where another process writes to the folder, CheckpointError
    where the records of earlier rounds are missing.
    """

    def __init__(
        self, config: Config, folder: Path, strategy: NormAnalysis, *, resume_after: int | None = None
    ) -> None:
        self.config = config
        self.folder = folder
        self.rows: list[Row] = []
        self._strategy = strategy
        self._last: Round | None = None
        self._checkpointed = resume_after
        self._started = time.time()
        self._columns: list[str] = []
        self._lock = _lock(folder)
        if resume_after is not None:
            self._take_up(resume_after)
        write(folder / "config.yaml", to_yaml(config).encode())
        self._status("running", None)

    def _take_up(self, server_round: int) -> None:
        """Keep the lines up to a round, and drop what a killed run wrote after it."""
        for name in ("metrics.jsonl", "clients.jsonl"):
            lines = [row for row in read_lines(self.folder / name) if row["round"] <= server_round]
            text = "".join(json.dumps(row) + "\n" for row in lines)
            write(self.folder / name, text.encode())
            if name == "metrics.jsonl":
                self.rows = lines
        if [row["round"] for row in self.rows] != list(range(server_round + 1)):
            raise CheckpointError(
                f"{self.folder / 'metrics.jsonl'} lacks rounds before the checkpoint of round {server_round}: "
                "the run cannot go on; start it again"
            )
        self._write_csv()

    # -------------------------------------------------------- observer

    def replied(self, server_round: int, done: int, total: int) -> None:
        """Nothing is kept of single replies before the round is over."""

    def round_done(self, done: Round) -> None:
        """Append the round's lines and keep the model if it is the best so far."""
        self.rows.append(done.row)
        self._last = done
        _append(self.folder / "clients.jsonl", [json.dumps(_plain(client)) for client in done.clients])
        _append(self.folder / "metrics.jsonl", [json.dumps(_plain(done.row))])
        self._append_csv(done.row)
        best = best_round(self.rows, self.config.best)
        if best is not None and best[0] == done.number:
            save_model(self.folder / "best.safetensors", done.arrays, done.number)
        every = self.config.checkpoint_every
        if every and done.number and (done.number % every == 0 or done.number == self.config.rounds):
            self._checkpoint(done)

    def _checkpoint(self, done: Round) -> None:
        """Keep all that is needed to go on after this round."""
        _sync(self.folder / "metrics.jsonl", self.folder / "clients.jsonl")
        write_checkpoint(
            self.folder,
            Checkpoint(
                server_round=done.number,
                model=views(done.arrays),
                strategy=self._strategy.state_dict(),
                clients=done.states,
                config=digest(self.config),
            ),
        )
        self._checkpointed = done.number

    # -------------------------------------------------------- the end

    def close(self, state: str, reason: str | None = None) -> None:
        """Write what belongs to the end, however the run ended: checkpoint, model, picture, status."""
        last = self._last
        if last is not None:
            save_model(self.folder / "model.safetensors", last.arrays, last.number)
            if self.config.checkpoint_every and last.number and self._checkpointed != last.number:
                self._checkpoint(last)
        if len(self.rows) > 1:
            from server_app.curve import draw

            draw([(label(self.config), self.rows)], self.folder / "curve.png", title=default_name(self.config))
        self._status(state, reason)
        self._lock.close()

    def _status(self, state: str, reason: str | None) -> None:
        best = best_round(self.rows, self.config.best)
        seconds = {
            phase: sum(row.get(f"seconds/{phase}", 0.0) for row in self.rows)
            for phase in ("train", "aggregate", "evaluate")
        }
        status = {
            "state": state,  # running, completed, failed, interrupted
            "reason": reason,
            "rounds": int(self.rows[-1]["round"]) if self.rows else 0,
            "final": {k: v for k, v in (self.rows[-1] if self.rows else {}).items() if k.startswith("test/")},
            "best": None if best is None else {self.config.best: best[1], "round": best[0]},
            "seed": self.config.seed,
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(self._started)),
            "seconds": {"total": time.time() - self._started, **seconds},
            "versions": _versions(),
            "hardware": _hardware(),
        }
        write(self.folder / "status.json", (json.dumps(_plain(status), indent=2) + "\n").encode())

    def _append_csv(self, row: Row) -> None:
        if set(row) <= set(self._columns):
            line = _csv([[_cell(row.get(column)) for column in self._columns]])
            _append(self.folder / "metrics.csv", [line.decode().rstrip("\n")])
        else:
            self._write_csv()

    def _write_csv(self) -> None:
        self._columns = list(dict.fromkeys(key for row in self.rows for key in row))
        cells = ([_cell(row.get(column)) for column in self._columns] for row in self.rows)
        write(self.folder / "metrics.csv", _csv([self._columns, *cells]))


def save_model(path: Path, arrays: ArrayRecord, server_round: int) -> None:
    """The model as safetensors, with the round it is of; replaces the file in one step."""
    tensors = {name: np.asarray(array, order="C") for name, array in views(arrays).items()}
    write(path, save(tensors, metadata={"round": str(server_round)}))


def write(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def read_lines(path: Path) -> list[Row]:
    """The rows of a .jsonl file; none where there is none.

    A run may be writing, or was killed while it wrote: what follows the last line break is no line yet.
    """
    if not path.is_file():
        return []
    return [json.loads(text) for text in path.read_text(encoding="utf-8").split("\n")[:-1]]


def _append(path: Path, lines: list[str]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in lines))


def _sync(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _lock(folder: Path) -> IO[str]:
    """Held while the run goes on; the system releases it when the process ends, however it ends."""
    file = (folder / ".lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise ConfigError(f"{folder} belongs to a run that still goes on: wait for its end, or stop it") from error
    return file


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
