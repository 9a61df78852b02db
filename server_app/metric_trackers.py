"""Sends the metrics of a run to trackers: TensorBoard, Weights & Biases, MLflow, Prometheus.

The package of a tracker is an extra, and is imported only if the tracker is chosen. If a tracker fails, a warning
is logged, the tracker is not used any more, and the run continues.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from logging import WARNING
from pathlib import Path
from typing import Any, ClassVar, Protocol

from fedstride.errors import ConfigError, require, unknown
from fedstride.flower.logs import log

from .config.keys import by_key
from .config.schema import Config
from .reports.progress import STATES
from .rounds import Round


class Tracker(Protocol):
    """A tracker of one run, made with its configuration and folder."""

    module: ClassVar[str]
    """The module that it needs."""

    def __init__(self, config: Config, folder: Path) -> None: ...

    def row(self, server_round: int, numbers: Mapping[str, float], clients: Mapping[str, int]) -> None:
        """Record the metrics of a completed round. `clients`: the rows of clients.jsonl, by their status."""

    def close(self) -> None:
        """Record that the run is over."""


class TensorBoard:
    """Event files in the run's folder, below `tensorboard/`."""

    module: ClassVar[str] = "tensorboard"

    def __init__(self, config: Config, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def row(self, server_round: int, numbers: Mapping[str, float], clients: Mapping[str, int]) -> None:
        """Write one scalar for each metric."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, server_round)

    def close(self) -> None:
        """Flush the files."""
        self._writer.close()


class WandB:
    """A Weights & Biases run in project `fedstride` or WANDB_PROJECT. WANDB_MODE=offline is supported."""

    module: ClassVar[str] = "wandb"

    def __init__(self, config: Config, folder: Path) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedstride"),
            name=folder.name,
            dir=str(folder),
            config=dataclasses.asdict(config),
        )

    def row(self, server_round: int, numbers: Mapping[str, float], clients: Mapping[str, int]) -> None:
        """Log the metrics; the step is the round."""
        self._run.log(dict(numbers), step=server_round)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


class MLflow:
    """An MLflow run in experiment `fedstride` or MLFLOW_EXPERIMENT_NAME.

    It is stored at MLFLOW_TRACKING_URI, else in `mlflow.db` in the run's folder.
    """

    module: ClassVar[str] = "mlflow"

    def __init__(self, config: Config, folder: Path) -> None:
        import mlflow

        if "MLFLOW_TRACKING_URI" not in os.environ:
            mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
        mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedstride"))
        self._mlflow = mlflow
        mlflow.start_run(run_name=folder.name)
        mlflow.log_params(by_key(config))

    def row(self, server_round: int, numbers: Mapping[str, float], clients: Mapping[str, int]) -> None:
        """Log the metrics; the step is the round."""
        self._mlflow.log_metrics(dict(numbers), step=server_round)

    def close(self) -> None:
        """End the run."""
        self._mlflow.end_run()


class Prometheus:
    """A file for the textfile collector of Prometheus's node exporter, rewritten after each round.

    `fedstride-NAME-HASH.prom`, in the folder FEDSTRIDE_METRICS, else in the run's folder; HASH is of the path of
    the run's folder, which is the label `folder`: the runs of a study have one name. In FEDSTRIDE_METRICS every
    user can read it. It always is complete: the package writes another file and renames it. It stays when the run
    is over, with `fedstride_running` 0; if the process was killed, that is still 1, and
    `fedstride_last_round_seconds` no longer grows.
    """

    module: ClassVar[str] = "prometheus_client"
    LABELS: ClassVar[tuple[str, ...]] = ("run", "folder")
    READABLE: ClassVar[int] = 0o644

    def __init__(self, config: Config, folder: Path) -> None:
        import prometheus_client

        shared = os.environ.get("FEDSTRIDE_METRICS")
        self._is_shared, place = bool(shared), Path(shared or folder)
        place.mkdir(parents=True, exist_ok=True)
        self._package = prometheus_client
        whole = str(folder.absolute())
        self._path = place / f"fedstride-{folder.name}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}.prom"
        self._registry = prometheus_client.CollectorRegistry()
        self._run = folder.name, whole
        self._running = self._gauge("fedstride_running", "1 while the run's server works, else 0")
        self._round = self._gauge("fedstride_round", "the last completed round")
        self._rounds = self._gauge("fedstride_rounds", "the last round that was asked for")
        self._last = self._gauge(
            "fedstride_last_round_seconds", "Unix time at the end of the last completed round, or at the start"
        )
        self._metric = self._gauge("fedstride_metric", "a metric of the last round, by its name", "name")
        self._clients = prometheus_client.Counter(
            "fedstride_clients",
            "lines of clients.jsonl, by status",
            [*self.LABELS, "status"],
            registry=self._registry,
        )
        for status in STATES:  # each begins at 0: an increase from nothing is none for Prometheus
            self._clients.labels(*self._run, status)
        self._rounds.labels(*self._run).set(config.rounds)
        self._running.labels(*self._run).set(1)
        self._last.labels(*self._run).set(time.time())
        self._write()

    def row(self, server_round: int, numbers: Mapping[str, float], clients: Mapping[str, int]) -> None:
        """Write the file; a metric that the round does not have is left out."""
        self._round.labels(*self._run).set(server_round)
        self._last.labels(*self._run).set(time.time())
        self._metric.clear()
        for name, value in numbers.items():
            self._metric.labels(*self._run, name).set(value)
        for status, count in clients.items():
            self._clients.labels(*self._run, status).inc(count)
        self._write()

    def close(self) -> None:
        """Write that the run is over."""
        self._running.labels(*self._run).set(0)
        self._write()

    def _gauge(self, name: str, what: str, *labels: str) -> Any:
        return self._package.Gauge(name, what, [*self.LABELS, *labels], registry=self._registry)

    def _write(self) -> None:
        self._package.write_to_textfile(str(self._path), self._registry)
        if self._is_shared:
            self._path.chmod(self.READABLE)  # the collector is another user


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
    "prometheus": Prometheus,
}


def check_trackers(names: Sequence[str]) -> None:
    """Raise ConfigError for a tracker that does not exist, is not installed, or is named twice."""
    require(len(set(names)) == len(names), "track", list(names), "a list without repetitions")
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker (track=[...])", name, TRACKERS)
        module = TRACKERS[name].module
        if find_spec(module) is None:
            raise ConfigError(f"track = {name!r} needs the package {module}; pip install 'fedstride[{name}]'")


class Tracking:
    """An observer that sends the metrics of a run to its trackers."""

    def __init__(self, config: Config, folder: Path) -> None:
        self._trackers: dict[str, Tracker] = {}
        for name in config.track:
            self._try(name, partial(self._begin, name, config, folder))

    def replied(self, server_round: int, done: int, total: int) -> None:
        """Do nothing: single replies are not tracked."""

    def round_done(self, done: Round) -> None:
        """Send all metrics of the round that are single numbers."""
        numbers = {
            key: float(value)
            for key, value in done.row.items()
            if isinstance(value, (int, float)) and key != "round"
        }
        clients = Counter(str(row["status"]) for row in done.clients)
        for name, tracker in list(self._trackers.items()):
            self._try(name, partial(tracker.row, done.number, numbers, clients))

    def close(self) -> None:
        """Close all trackers."""
        for name, tracker in list(self._trackers.items()):
            self._try(name, tracker.close)

    def _begin(self, name: str, config: Config, folder: Path) -> None:
        self._trackers[name] = TRACKERS[name](config, folder)

    def _try(self, name: str, act: Callable[[], Any]) -> None:
        try:
            act()
        except Exception as error:  # a tracker must not end a run
            self._trackers.pop(name, None)
            log(WARNING, "the tracker %s failed and is not used any more: %s", name, error)
