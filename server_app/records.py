"""What a run leaves in its folder.

Knows files and their forms; does not know how a round goes. Lines are appended as rounds end, so a run
that was killed still reads; nothing that is there is overwritten.
"""

from __future__ import annotations

import csv
import io
import json
import secrets
import time
from collections.abc import Callable, Mapping
from logging import WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from safetensors.numpy import save

from fedstride.arrays import to_record, views
from fedstride.errors import CheckpointError, RunError
from fedstride.flower import log
from strategies.norms import NormAnalysis

from .checkpoint import FOLDER, KEPT, Checkpoint, retained, write_checkpoint
from .config.compose import digest, to_yaml
from .config.schema import Config, label
from .folder import default_name, lock, sweep, write
from .lines import Lines, read_lines
from .machine import hardware, versions
from .rounds import Round
from .rows import Row
from .stopping import best_round

NO_MODEL = "the model could not be written"


class Records:
    """Writes the files of one run; an observer of its rounds.

    A disk that is full or read-only for a while does not end a run: each round says what could not be
    written, lines wait in memory, a checkpoint is left out.

    `resume`: the checkpoint from which a run goes on; lines of later rounds, which will be played again,
    are dropped. Raises ConfigError where another process writes to the folder, CheckpointError
    where the records of earlier rounds are missing.
    """

    def __init__(
        self, config: Config, folder: Path, strategy: NormAnalysis, *, resume: Checkpoint | None = None
    ) -> None:
        self.config = config
        self.folder = folder
        self.rows: list[Row] = []
        self.last: Round | None = None  # the round after which the run stands
        self._strategy = strategy
        self._checkpointed = 0  # round of the newest checkpoint
        self._named: list[Mapping[int, int]] = []  # by the checkpoints that are kept, newest first
        self.run = secrets.token_hex(8) if resume is None else resume.run
        self._started = time.time()
        self._columns: list[str] = []
        self._lock = lock(folder)
        if resume is not None:
            self._take_up(resume)
        self._metrics = Lines(folder / "metrics.jsonl")
        self._clients = Lines(folder / "clients.jsonl")
        self._csv = Lines(folder / "metrics.csv")
        write(folder / "config.yaml", to_yaml(config).encode())
        self._status("running", None)

    def _take_up(self, checkpoint: Checkpoint) -> None:
        """Stand where the checkpoint stands: drop what a killed run wrote after it, or half."""
        for folder in (self.folder, self.folder / FOLDER):
            sweep(folder)
        server_round = checkpoint.server_round
        for name in ("metrics.jsonl", "clients.jsonl"):
            lines = [row for row in read_lines(self.folder / name) if row["round"] <= server_round]
            text = "".join(json.dumps(row) + "\n" for row in lines)
            write(self.folder / name, text.encode())
            if name == "metrics.jsonl":
                self.rows = lines
        self.rows.sort(key=lambda row: row["round"])
        if [row["round"] for row in self.rows] != list(range(server_round + 1)):
            raise CheckpointError(
                f"{self.folder / 'metrics.jsonl'} lacks rounds before the checkpoint of round {server_round}: "
                "the run cannot go on; start it again"
            )
        self.last = Round(server_round, to_record(checkpoint.model), self.rows[-1], accepted=checkpoint.accepted)
        self._named = [each.accepted for each in retained(self.folder)]
        self._checkpointed = server_round

    # -------------------------------------------------------- observer

    def replied(self, server_round: int, done: int, total: int) -> None:
        """Nothing is kept of single replies before the round is over."""

    def round_done(self, done: Round) -> None:
        """Append the round's lines and keep the model if it is the best so far."""
        self.rows.append(done.row)
        self.last = done
        clients = [json.dumps(_plain(client)) for client in done.clients]
        self._try("clients.jsonl", lambda: self._clients.append(clients))
        self._try("metrics.jsonl", lambda: self._metrics.append([json.dumps(_plain(done.row))]))
        self._try("metrics.csv", lambda: self._append_csv(done.row))
        best = best_round(self.rows, self.config.best)
        if best is not None and best[0] == done.number:
            path = self.folder / "best.safetensors"
            self._try("best.safetensors", lambda: save_model(path, done.arrays, done.number))
        every = self.config.checkpoint_every
        if every and done.number and (done.number % every == 0 or done.number == self.config.rounds):
            self._try("the checkpoint", lambda: self._checkpoint(done))

    def _try(self, what: str, act: Callable[[], None]) -> bool:
        """Write something that the run can do without for now; says so where it cannot be written."""
        try:
            act()
        except OSError as error:
            number = int(self.rows[-1]["round"]) if self.rows else 0
            reason = error.strerror or str(error)
            log(WARNING, "round %d: %s in %s cannot be written (%s)", number, what, self.folder, reason)
            return False
        return True

    def _checkpoint(self, done: Round) -> None:
        """Keep all that is needed to go on after this round."""
        self._clients.append([])  # what waits must be there before the checkpoint counts on it
        self._metrics.append([])
        self._clients.sync()
        self._metrics.sync()
        write_checkpoint(
            self.folder,
            Checkpoint(
                server_round=done.number,
                model=views(done.arrays),
                strategy=self._strategy.state_dict(),
                accepted=done.accepted,
                run=self.run,
                config=digest(self.config),
            ),
        )
        self._checkpointed = done.number
        self._named = [done.accepted, *self._named][:KEPT]

    def oldest(self, client: int) -> int | None:
        """The oldest round that a kept checkpoint names for a client; None where there is no checkpoint."""
        return min((accepted.get(client, 0) for accepted in self._named), default=None)

    # -------------------------------------------------------- the end

    def close(self, state: str, reason: str | None = None) -> None:
        """Write what belongs to the end, however the run ended: checkpoint, model, picture, status.

        Raises RunError where the model of a completed run cannot be written.
        """
        last = self.last
        if last is not None:
            path = self.folder / "model.safetensors"
            if not self._try("model.safetensors", lambda: save_model(path, last.arrays, last.number)):
                state, reason = "failed", reason or NO_MODEL
            if self.config.checkpoint_every and last.number and self._checkpointed != last.number:
                self._try("the checkpoint", lambda: self._checkpoint(last))
        self._try("curve.png", self._draw)
        self._try("status.json", lambda: self._status(state, reason))
        self._lock.close()
        if reason == NO_MODEL:
            raise RunError(
                f"the run is over, but its model cannot be written to {self.folder}: make room there and go on "
                f"with fedstride resume {self.folder}"
            )

    def _draw(self) -> None:
        if len(self.rows) > 1:
            from .figures.curve import draw

            draw([(label(self.config), self.rows)], self.folder / "curve.png", title=default_name(self.config))

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
            "versions": versions(),
            "hardware": hardware(),
        }
        write(self.folder / "status.json", (json.dumps(_plain(status), indent=2) + "\n").encode())

    def _append_csv(self, row: Row) -> None:
        if set(row) <= set(self._columns):
            self._csv.append([_csv([_cell(row.get(column)) for column in self._columns])])
            return
        columns = list(dict.fromkeys(key for row in self.rows for key in row))
        cells = [columns, *([_cell(row.get(column)) for column in columns] for row in self.rows)]
        write(self.folder / "metrics.csv", "".join(_csv(line) + "\n" for line in cells).encode())
        self._csv, self._columns = Lines(self.folder / "metrics.csv"), columns


def save_model(path: Path, arrays: ArrayRecord, server_round: int) -> None:
    """The model as safetensors, with the round it is of; replaces the file in one step."""
    tensors = {name: np.asarray(array, order="C") for name, array in views(arrays).items()}
    write(path, save(tensors, metadata={"round": str(server_round)}))


def _csv(cells: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


def _cell(value: Any) -> Any:
    value = _plain(value)
    return json.dumps(value) if isinstance(value, list) else ("" if value is None else value)


def _plain(value: Any) -> Any:
    """Without what JSON lacks: NaN and infinities become None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
