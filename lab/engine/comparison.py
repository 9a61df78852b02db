"""The comparison run: FedAvg in a second process, with the same seed, budget and weights as the run itself."""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
import signal
import sys
from pathlib import Path
from typing import Any, cast

from client_app.parts import OBJECTIVES, RULES, Training
from fedstride import signals
from fedstride.settings import fields_of
from server_app.build import build_strategy
from server_app.config.compose import from_yaml, to_yaml
from server_app.config.schema import Config, chain
from server_app.rows import Row
from strategies.parts import STRATEGIES

from ..results.runs import read_rows

NAME = "fedavg"  # its folder, inside the run's


def counterpart(config: Config, folder: Path) -> Config | None:
    """The same run with FedAvg and local SGD, to be written into `folder`; None if the run is FedAvg already.

    The budget is the same: if the strategy counts mini-batches (2D-LRD), FedAvg gets the same number. (After
    2D-LRD's switch to one mini-batch a round, FedAvg trains more than it.) The weights of clients are those of
    the run's innermost rule.
    """
    specs = list(chain(config.strategy))
    counted = [spec.local_steps for spec in specs if hasattr(spec, "local_steps")]
    shared = {name: getattr(config.client, name) for name in fields_of(Training)}
    shared["local_steps"] = counted[0] if counted else config.client.local_steps
    weighting: dict[str, Any] = {"weighting": build_strategy(config).weighting}
    other = dataclasses.replace(
        config,
        strategy=STRATEGIES.config("fedavg")(**weighting),
        client=cast(Training, RULES.config("sgd")(**shared)),
        objective=OBJECTIVES.config("plain")(),
        out=str(folder),
        name=NAME,
    )
    same = (other.strategy, other.client, other.objective) == (config.strategy, config.client, config.objective)
    return None if same else other


class ComparisonRun:
    """A run in a second process, which ends with this one."""

    def __init__(self, config: Config) -> None:
        self.folder = Path(config.out or "") / (config.name or "")
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_run, args=(to_yaml(config),), daemon=True)
        self._process.start()

    def rows(self) -> list[Row]:
        """The metrics of the completed rounds."""
        return read_rows(self.folder)

    def wait(self) -> bool:
        """Wait for the end; True if the run was completed."""
        self._process.join()
        return self._process.exitcode == 0

    def stop(self) -> None:
        """End the process if it is still running."""
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()


def _run(text: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    try:
        signal.signal(signal.SIGTERM, signals.RaiseOnce())  # the parent ends this process with it, see `stop`
        _train(from_yaml(text))
    except signals.Terminated:
        sys.exit(signals.EXIT_TERMINATED)


def _train(config: Config) -> None:
    from client_app.app import app
    from server_app import session

    from .grid import grid_of

    logging.getLogger("flwr").setLevel(logging.ERROR)
    grid = grid_of(app, config)
    session.run(grid, session.prepare(config), on_folder=grid.keep_client_states_in)
