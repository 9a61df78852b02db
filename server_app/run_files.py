"""Writes the files in a run's folder: configuration, metrics, models, checkpoints, status and plot.

Lines are appended after each round, so the files of a killed run are readable up to its last round.
"""

from __future__ import annotations

import copy
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from logging import WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from safetensors.numpy import save

from fedstride.arrays.named import Arrays, to_record, views
from fedstride.errors import RunError
from fedstride.files import atomic
from fedstride.files.chained_lines import chained, digest_of
from fedstride.flower.logs import log
from fedstride.processes.unix_signals import held
from fedstride.tasks import data
from fedstride.tasks.spec import Spec
from strategies.norm_analysis import NormAnalysis

from .config.compose import digest, to_yaml
from .config.keys import label
from .config.schema import Config
from .file_names import BEST, CARD, CLIENTS, CONFIG, CSV, CURVE, METRICS, MODEL, STATUS, TASK
from .records import completed_run, medians_file
from .records.checkpoint import FOLDER, KEPT, Checkpoint, set_aside_newer, valid_checkpoints, write_checkpoint
from .records.line_files import LineFile
from .records.restored_lines import copy_of_metrics, restored_clients, restored_metrics
from .records.row_values import Row, plain
from .records.run_folder import default_name, free, lock, remove_temporary_files
from .records.spreadsheet import Spreadsheet
from .reports.model_card import Card
from .reports.status_file import status
from .rounds import Round
from .stopping import Decision

CHECKPOINT = "the checkpoint"


class Records:
    """Writes the files of one run. It is an observer of the run's rounds.

    A disk that is full or read-only for a while does not end a run. In each round a warning names the files that
    are not written; lines stay in memory, the checkpoint is skipped. What is missing at the end fails the run.

    `frozen`: arrays that are not trained; models are written with them, checkpoints without. `resume`: of the run
    that is resumed. Lines of later rounds are removed; damaged ones are restored, see `restored_lines.py`.
    Raises ConfigError if another process writes to the folder, RunError if it cannot be written.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        strategy: NormAnalysis,
        *,
        frozen: Arrays | None = None,
        resume: Checkpoint | None = None,
        word: str | None = None,  # of a new run
    ) -> None:
        self.config = config
        self.folder = folder
        self.rows: list[Row] = []
        self.decision = Decision(config.headline)  # of `rows`
        self.last: Round | None = None  # the last completed round
        self._strategy = strategy
        self._frozen = to_record(frozen or {})
        self._checkpointed = 0  # round of the newest checkpoint
        self._state: dict[str, Any] | None = None  # the strategy's, after a round without a checkpoint
        self._accepted: list[Mapping[int, int]] = []  # `accepted` of the kept checkpoints, newest first
        self.run = (word or secrets.token_hex(8)) if resume is None else resume.run
        self._started = time.time()
        self._digests = {METRICS: "", CLIENTS: ""}  # of the last line of each file
        self._unsaved_best: Round | None = None
        self.card = Card(config, folder.name)
        self._unwritten: dict[str, str] = {}  # what is not written at present, and why
        self._completed: Mapping[str, bytes] = {}  # of the completed run that is resumed, until a new round
        try:
            self._lock = lock(folder)
            if resume is not None:
                self._completed = completed_run.kept(folder, resume.server_round)
                self._restore(resume)
            self._metrics = LineFile(folder / METRICS)
            self._copy = LineFile(copy_of_metrics(folder))
            self._clients = LineFile(folder / CLIENTS)
            self._csv = Spreadsheet(folder / CSV)
            atomic.write(folder / CONFIG, to_yaml(config).encode())
            self._status("running", None)
        except OSError as error:
            raise RunError(
                f"the run's folder {folder} cannot be written ({error.strerror or error}); "
                "make it writable, or free disk space"
            ) from error

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Return to the state of the checkpoint: remove incomplete files, and lines of later rounds."""
        for folder in (self.folder, self.folder / FOLDER):
            remove_temporary_files(folder)
        metrics = restored_metrics(self.folder, checkpoint)
        for restored in (metrics, restored_clients(self.folder, checkpoint)):
            self._digests[restored.path.name] = restored.write()
        self.card.add(restored_clients(self.folder, checkpoint).rows)
        self.card.medians = medians_file.read(self.folder)
        if metrics.damaged and len(metrics.rows) <= checkpoint.server_round and (self.folder / CSV).exists():
            # It has the figures of the rows that are lost, and is written again from the others.
            atomic.write(free(self.folder / f"{CSV}.before"), (self.folder / CSV).read_bytes())
        set_aside_newer(self.folder, checkpoint.server_round)
        self.rows = metrics.rows
        self.decision = self.decision.after(*self.rows)
        self.last = Round(
            checkpoint.server_round,
            to_record(checkpoint.model),
            self.rows[-1],
            accepted=checkpoint.accepted,
            owners=checkpoint.owners,
            statistics=checkpoint.statistics,
        )
        self._accepted = [saved.accepted for saved in valid_checkpoints(self.folder)]
        self._checkpointed = checkpoint.server_round

    # -------------------------------------------------------- observer

    def replied(self, server_round: int, done: int, total: int) -> None:
        """Do nothing: replies are recorded when the round is over."""

    @held()
    def round_done(self, done: Round) -> None:
        """Append the round's lines; write the model if it is the best so far, and a checkpoint if one is due."""
        self._completed = {}
        self.rows.append(done.row)
        self.decision = self.decision.after(done.row)
        self.last, self._state = done, None
        self.card.add(done.clients)
        clients = self._lines_of(CLIENTS, done.clients)
        metrics = self._lines_of(METRICS, [done.row])
        every = self.config.checkpoint_every
        self._try(CLIENTS, lambda: self._clients.append(clients))
        self._try(METRICS, lambda: self._metrics.append(metrics))
        self._try(CSV, lambda: self._csv.write(self.rows))
        if every:
            self._try(f"{FOLDER}/{METRICS}", lambda: self._append_to_copy(metrics))
        best = self.decision.best
        if best is not None and best[0] == done.number:
            self._unsaved_best = done
        self._save_best()
        if every and done.number and (done.number % every == 0 or done.number == self.config.rounds):
            self._try(CHECKPOINT, lambda: self._checkpoint(done))
        if every and done.number and self._checkpointed != done.number:
            # If the run ends within the next round, the strategy may have gone on by then.
            self._state = copy.deepcopy(self._strategy.state_dict())

    def _lines_of(self, name: str, rows: Sequence[Row]) -> list[str]:
        lines = chained(map(plain, rows), self._digests[name])
        if lines:
            self._digests[name] = digest_of(lines[-1])
        return lines

    def _append_to_copy(self, lines: Sequence[str]) -> None:
        self._copy.path.parent.mkdir(mode=0o700, exist_ok=True)
        self._copy.append(lines)

    def _save_best(self) -> None:
        """Write the best model, if that is not done yet."""
        best = self._unsaved_best
        if best is not None and self._try(BEST, lambda: self._save(BEST, best)):
            self._unsaved_best = None

    def _save(self, name: str, done: Round) -> None:
        """Write the whole model of a round."""
        save_model(self.folder / name, ArrayRecord({**self._frozen, **done.arrays}), done.number)

    def _try(self, what: str, act: Callable[[], None]) -> bool:
        """Call `act`, which writes something that the run can continue without. If it fails, log a warning.

        Returns whether it succeeded.
        """
        try:
            act()
        except OSError as error:
            number = int(self.rows[-1]["round"]) if self.rows else 0
            reason = error.strerror or str(error)
            self._unwritten[what] = reason
            log(WARNING, "round %d: %s in %s cannot be written (%s)", number, what, self.folder, reason)
            return False
        self._unwritten.pop(what, None)
        return True

    def _checkpoint(self, done: Round) -> None:
        """Write everything that is needed to resume the run after this round."""
        for lines in (self._clients, self._metrics):
            lines.append([])  # a checkpoint needs the lines of its rounds, so pending lines are written first
            lines.sync()
        self._append_to_copy([])
        self._copy.sync()
        write_checkpoint(
            self.folder,
            Checkpoint(
                server_round=done.number,
                model=views(done.arrays),
                strategy=self._strategy.state_dict() if self._state is None else self._state,
                accepted=done.accepted,
                run=self.run,
                config=digest(self.config),
                row=plain(done.row),
                records=dict(self._digests),
                owners=done.owners,
                data=data.digest(self.config.task),
                statistics=done.statistics,
            ),
        )
        self._checkpointed, self._state = done.number, None
        self._accepted = [done.accepted, *self._accepted][:KEPT]

    def write_task(self, spec: Spec) -> None:
        """Write how an example is prepared for the model: form, normalisation, classes."""
        self.card.spec = spec
        self._try(TASK, lambda: atomic.write_json(self.folder / TASK, spec.flatten()))

    def write_medians(self, lines: Sequence[str]) -> None:
        """Write what is known of the medians that replace missing cells, a line for each column."""
        self.card.medians = lines
        self._try(medians_file.NAME, lambda: medians_file.write(self.folder, lines))

    def oldest_round(self, client: int) -> int | None:
        """The oldest round whose state of this client a kept checkpoint needs; None if there is no checkpoint."""
        return min((accepted.get(client, 0) for accepted in self._accepted), default=None)

    # -------------------------------------------------------- the end

    @held()
    def close(self, state: str, reason: str | None = None) -> None:
        """Write the last files, regardless of how the run ended: lines, checkpoint, model, status, plot.

        A completed run that is resumed, and ends without another round, stays as it was if it has its files.
        Raises RunError if a completed run could not write all but the plot; `status.json` then says `failed`.
        """
        is_whole = all((self.folder / name).exists() for name in (MODEL, CARD, CSV))
        if self._completed and (is_whole or state != "completed"):
            self._try(STATUS, lambda: completed_run.put_back(self.folder, self._completed))
            self._lock.close()
            if self._unwritten and state == "completed":
                raise RunError(self._and_unwritten("the run was completed before"))
            return
        if self.last is not None:
            self._write_last(self.last, state)
        completed = state == "completed"
        ended = "failed" if completed and self._unwritten else state
        why = self._and_unwritten(reason) if self._unwritten else reason
        self._try(STATUS, lambda: self._status(ended, why))
        self._draw()
        self._lock.close()
        if completed and self._unwritten:
            raise RunError(self._and_unwritten(reason))

    def _write_last(self, last: Round, state: str) -> None:
        """Write the model of the last round, and what could not be written in a round."""
        self._try(CLIENTS, lambda: self._clients.append([]))
        self._try(METRICS, lambda: self._metrics.append([]))
        self._try(CSV, lambda: self._csv.write(self.rows))
        self._save_best()
        self._try(MODEL, lambda: self._save(MODEL, last))
        whole = ArrayRecord({**self._frozen, **last.arrays})
        self._try(CARD, lambda: atomic.write(self.folder / CARD, self.card.text(last.row, whole, state).encode()))
        if self.config.checkpoint_every:
            self._try(f"{FOLDER}/{METRICS}", lambda: self._append_to_copy([]))
            if last.number and self._checkpointed != last.number:
                self._try(CHECKPOINT, lambda: self._checkpoint(last))

    def _and_unwritten(self, reason: str | None) -> str:
        """The reason for the end, what could not be written and why, and how to continue."""
        what = ", ".join(self._unwritten)
        why = "; ".join(dict.fromkeys(self._unwritten.values()))
        if self._checkpointed:
            then = f"the newest checkpoint is that of round {self._checkpointed}: fedstride resume {self.folder}"
        else:
            then = "there is no checkpoint: start the run again"
        missing = f"{what} cannot be written to {self.folder} ({why}); free disk space or make the folder writable"
        return f"{reason or 'the run is completed'}, but {missing}; {then}"

    def _draw(self) -> None:
        if len(self.rows) > 1:
            from .reports.curve import drawn

            drawn(
                [(label(self.config), self.rows)],
                self.folder / CURVE,
                title=default_name(self.config),
                metric=self.config.headline,
            )

    def _status(self, state: str, reason: str | None) -> None:
        trained_on = sum(site.rows or 0 for site in self.card.sites)
        content = status(self.config, self.rows, state, reason, started=self._started, trained_on=trained_on)
        atomic.write_json(self.folder / STATUS, content)


def save_model(path: Path, arrays: ArrayRecord, server_round: int) -> None:
    """Write the model as safetensors, with its round in the metadata. An existing file is replaced atomically."""
    tensors = {name: np.asarray(array, order="C") for name, array in views(arrays).items()}
    atomic.write(path, save(tensors, metadata={"round": str(server_round)}))
