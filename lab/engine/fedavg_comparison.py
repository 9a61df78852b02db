"""The comparison run: FedAvg beside the run itself, with the same seed, budget, weights and workers."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any, cast

from client_app.registry import OBJECTIVES, RULES, Training
from fedstride.errors import counted
from fedstride.processes.unix_signals import STOPPED
from fedstride.settings import fields_of
from server_app import preparation, session
from server_app.build import build_strategy
from server_app.config.keys import mini_batches
from server_app.config.schema import Config
from server_app.preparation import Prepared
from server_app.records.row_values import Row
from server_app.rounds import Round
from strategies.registry import STRATEGIES

from ..results.run_folders import is_run, load
from .engine import Engine

NAME = "fedavg"  # its folder, inside the run's


def counterpart(config: Config, folder: Path) -> Config | None:
    """The same run with FedAvg and local SGD, to be written into `folder`; None if it is
    FedAvg already, or trains nothing.

    The budget is the same: if the strategy counts mini-batches (2D-LRD), FedAvg gets the same number. (After
    2D-LRD's switch to one mini-batch a round, FedAvg trains more than it.) The weights of clients are those of
    the run's innermost rule.
    """
    weighting: dict[str, Any] = {"weighting": build_strategy(config).weighting}
    other = dataclasses.replace(
        config,
        strategy=STRATEGIES.config("fedavg")(**weighting),
        client=local_sgd(config),
        objective=OBJECTIVES.config("plain")(),
        out=str(folder),
        name=NAME,
    )
    same = (other.strategy, other.client, other.objective) == (config.strategy, config.client, config.objective)
    return None if same or not config.rounds else other


def left_behind(folder: Path, rounds: int) -> str:
    """What to do about the comparison run of a run that was resumed, if it has fewer rounds; else empty."""
    other = folder / NAME
    done = load(other).config.rounds if is_run(other) else rounds
    if done >= rounds:
        return ""
    return (
        f"the comparison run has {counted(done, 'round')}: fedstride resume {other} rounds={rounds}; both in one "
        f"picture: fedstride plot accuracy {folder} {other}"
    )


def local_sgd(config: Config) -> Training:
    """Local SGD with what all client rules share, and with as many mini-batches as the run has."""
    shared = {name: getattr(config.client, name) for name in fields_of(Training)}
    shared["local_steps"] = mini_batches(config)
    return cast(Training, RULES.config("sgd")(**shared))


class ComparisonRun:
    """A run in a second thread, with the workers of the run beside it, which come to that run's clients first.

    Without workers it starts when it is waited for. `config` is that of `counterpart`, and `prepared` the run
    beside it, with which it shares the evaluation: task, network and test set are the same.
    """

    def __init__(self, engine: Engine, config: Config, prepared: Prepared) -> None:
        self.folder = Path(config.out or "") / (config.name or "")
        self.rows: list[Row] = []
        self._engine = engine
        self._prepared = preparation.prepare(config, evaluation=prepared.evaluation)
        self._stop = _Stop()
        self._completed = False
        self._thread = threading.Thread(target=self._run, name="comparison", daemon=True)
        if engine.workers:
            self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end, at most so long; True if it has ended."""
        if self._engine.workers:
            self._thread.join(seconds)
            return not self._thread.is_alive()
        if not (self.rows or self._stop.error):
            self._run()
        return True

    @property
    def completed(self) -> bool:
        """Whether it ended as it should."""
        return self._completed

    def stop(self, error: type[BaseException] = KeyboardInterrupt) -> None:
        """End it at the next reply, as this exception ends a run: KeyboardInterrupt or Terminated.

        The replies that it waits for arrive at the latest when the engine is closed.
        """
        self._stop.error = self._stop.error or error

    def _run(self) -> None:
        grid = self._engine.grid(self._prepared, priority=1)
        grid.repeat()
        try:
            session.run(
                grid,
                self._prepared,
                evaluate=self._engine.evaluate(priority=1),
                observers=[self, self._stop],
                on_folder=grid.keep_client_states_in,
            )
        except Exception:  # its folder's status file says why
            return
        except STOPPED:
            if self._stop.error is None:  # it was not asked to stop: it runs in the main thread
                raise
            return
        self._completed = True

    def replied(self, server_round: int, done: int, total: int) -> None:
        """Do nothing."""

    def round_done(self, done: Round) -> None:
        """Keep the row of the round."""
        self.rows.append(done.row)


class _Stop:
    """An observer that ends the run, as a signal does."""

    error: type[BaseException] | None = None

    def replied(self, server_round: int, done: int, total: int) -> None:
        self._check()

    def round_done(self, done: Round) -> None:
        self._check()

    def _check(self) -> None:
        if self.error is not None:
            raise self.error
