"""FedAvg in a second process, with the same seed and the same budget, for comparison.

Knows how a configuration is turned into its FedAvg counterpart and how to run it aside; does not know
how either is shown.
"""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
import signal
from pathlib import Path

from fedstride.schema import ClientConfig, Config, FedAvgConfig, ObjectiveConfig, StrategyConfig, TwoDLRDConfig

from server_app.rows import Row

from ..results.runs import read_rows

NAME = "fedavg"  # the folder inside the run's own


def counterpart(config: Config, folder: Path) -> Config | None:
    """The same run with FedAvg and local SGD, kept inside `folder`; None where that is what runs already.

    The budget is the same: where 2D-LRD counts mini-batches, FedAvg gets as many.
    """
    client = ClientConfig(
        **{field.name: getattr(config.client, field.name) for field in dataclasses.fields(ClientConfig)}
    )
    client.name = "sgd"
    client.local_steps = _local_steps(config.strategy) or client.local_steps
    weighting = getattr(config.strategy, "weighting", "examples")
    other = dataclasses.replace(
        config,
        strategy=FedAvgConfig(name="fedavg", weighting=weighting),
        client=client,
        objective=ObjectiveConfig(),
        out=str(folder),
        name=NAME,
    )
    same = (other.strategy, other.client, other.objective) == (config.strategy, config.client, config.objective)
    return None if same else other


def _local_steps(spec: StrategyConfig | None) -> int | None:
    while spec is not None:
        if isinstance(spec, TwoDLRDConfig):
            return spec.local_steps
        spec = getattr(spec, "inner", None)
    return None


class Beside:
    """A run in a process of its own; it ends with this one."""

    def __init__(self, config: Config) -> None:
        self.folder = Path(config.out or "") / (config.name or "")
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_run, args=(config,), daemon=True)
        self._process.start()

    def rows(self) -> list[Row]:
        """The metrics of the rounds that are over."""
        return read_rows(self.folder)

    def wait(self) -> bool:
        """Wait for the end; True if the run was completed."""
        self._process.join()
        return self._process.exitcode == 0

    def stop(self) -> None:
        """End the process if it still runs."""
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()


def _run(config: Config) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    from client_app.app import app
    from server_app import session

    from .local import LocalGrid

    logging.getLogger("flwr").setLevel(logging.ERROR)
    session.run(LocalGrid(app, config.clients), session.prepare(config))
