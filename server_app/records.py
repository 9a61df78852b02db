"""Writes the files in a run's folder: configuration, metrics, models, checkpoints, status and plot.

Lines are appended after each round, so the files of a killed run are readable up to its last round.
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

from .checkpoint import FOLDER, KEPT, Checkpoint, valid_checkpoints, write_checkpoint
from .config.compose import digest, to_yaml
from .config.schema import Config, label
from .folder import default_name, lock, remove_temporary_files, write
from .lines import Lines, read_lines
from .machine import hardware, versions
from .rounds import Round
from .rows import Row
from .stopping import best_round

NO_MODEL = "the model could not be written"


class Records:
    """Writes the files of one run. It is an observer of the run's rounds.

    A disk that is temporarily full or read-only does not end a run. In each round a warning names the files that
    could not be written; lines are kept in memory, and the checkpoint is skipped.

    `resume`: the checkpoint from which a run is resumed. Lines of later rounds are removed, because these rounds
    will be repeated. Raises ConfigError if another process writes to the folder, CheckpointError if lines of
    earlier rounds are missing.
    """

    def __init__(
        self, config: Config, folder: Path, strategy: NormAnalysis, *, resume: Checkpoint | None = None
    ) -> None:
        self.config = config
        self.folder = folder
        self.rows: list[Row] = []
        self.last: Round | None = None  # the last completed round
        self._strategy = strategy
        self._checkpointed = 0  # round of the newest checkpoint
        self._accepted: list[Mapping[int, int]] = []  # `accepted` of the kept checkpoints, newest first
        self.run = secrets.token_hex(8) if resume is None else resume.run
        self._started = time.time()
        self._columns: list[str] = []
        self._lock = lock(folder)
        if resume is not None:
            self._restore(resume)
        self._metrics = Lines(folder / "metrics.jsonl")
        self._clients = Lines(folder / "clients.jsonl")
        self._csv = Lines(folder / "metrics.csv")
        write(folder / "config.yaml", to_yaml(config).encode())
        self._status("running", None)

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Return to the state of the checkpoint: remove incomplete files, and lines of later rounds."""
        for folder in (self.folder, self.folder / FOLDER):
            remove_temporary_files(folder)
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
                f"{self.folder / 'metrics.jsonl'} has no lines for some rounds before the checkpoint of round "
                f"{server_round}: the run cannot be resumed; start it again"
            )
        self.last = Round(
            server_round,
            to_record(checkpoint.model),
            self.rows[-1],
            accepted=checkpoint.accepted,
            owners=checkpoint.owners,
        )
        self._accepted = [each.accepted for each in valid_checkpoints(self.folder)]
        self._checkpointed = server_round

    # -------------------------------------------------------- observer

    def replied(self, server_round: int, done: int, total: int) -> None:
        """Do nothing: replies are recorded when the round is over."""

    def round_done(self, done: Round) -> None:
        """Append the round's lines; write the model if it is the best so far, and a checkpoint if one is due."""
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
        """Call `act`, which writes something that the run can continue without. If it fails, log a warning.

        Returns whether it succeeded.
        """
        try:
            act()
        except OSError as error:
            number = int(self.rows[-1]["round"]) if self.rows else 0
            reason = error.strerror or str(error)
            log(WARNING, "round %d: %s in %s cannot be written (%s)", number, what, self.folder, reason)
            return False
        return True

    def _checkpoint(self, done: Round) -> None:
        """Write everything that is needed to resume the run after this round."""
        self._clients.append([])  # a checkpoint needs the lines of its rounds, so pending lines are written first
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
                owners=done.owners,
            ),
        )
        self._checkpointed = done.number
        self._accepted = [done.accepted, *self._accepted][:KEPT]

    def oldest_round(self, client: int) -> int | None:
        """The oldest round whose state of this client a kept checkpoint needs; None if there is no checkpoint."""
        return min((accepted.get(client, 0) for accepted in self._accepted), default=None)

    # -------------------------------------------------------- the end

    def close(self, state: str, reason: str | None = None) -> None:
        """Write the last files, regardless of how the run ended: checkpoint, model, plot, status.

        Raises RunError if the model of a completed run cannot be written.
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
                f"the run is completed, but its model cannot be written to {self.folder}; free disk space and run "
                f"fedstride resume {self.folder}"
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
    """Write the model as safetensors, with its round in the metadata. An existing file is replaced atomically."""
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
    """Replace the values that JSON does not have: NaN and infinity become None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
