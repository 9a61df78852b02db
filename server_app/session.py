"""One run: from a configuration and a Grid to the folder it leaves.

Knows the order of things and how a run may end or go on; the parts are elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flwr.app import ConfigRecord
from flwr.serverapp import Grid

from fedstride import wire
from fedstride.errors import CheckpointError, FedstrideError, RunError
from fedstride.tasks import data, partitions
from strategies.norms import NormAnalysis

from .build import build_strategy, client_config
from .checkpoint import Checkpoint, newest_checkpoint
from .config.compose import digest
from .config.schema import Config
from .evaluation import CentralEvaluation
from .folder import new_folder
from .records import Records
from .roll_call import Roster, check_nodes
from .rounds import Federation, Observer
from .rows import Row
from .stopping import reason_to_stop
from .trackers import Tracking, check_trackers


@dataclass(frozen=True)
class Prepared:
    """All that can be checked before a client is asked."""

    config: Config
    strategy: NormAnalysis
    evaluation: CentralEvaluation
    checkpoint: Checkpoint | None = None  # of the run that goes on
    notes: tuple[str, ...] = ()  # what the user should know of it


@dataclass(frozen=True)
class Outcome:
    """A run that came to its end."""

    folder: Path
    rows: list[Row]
    stopped: str | None = None  # why it ended before its last round


def prepare(config: Config) -> Prepared:
    """Build what a run needs, and read the checkpoint where `resume` names a run.

    Raises ConfigError, DataError or CheckpointError: nothing has been started or written.
    """
    check_trackers(config.track)
    build_strategy(config)  # refused before data are read
    evaluation = CentralEvaluation(config)
    prepared = Prepared(config, build_strategy(config, evaluation.buffers), evaluation)
    if config.partition.name != "own":  # what nodes bring is not ours to divide
        # Drawn once here, so that an impossible one is refused and clients find it in the cache.
        labels = data.load(config.task).train_y
        partitions.partition(config.partition, labels, config.clients, config.seed)
    return prepared if config.resume is None else _resumed(prepared, Path(config.resume).expanduser().resolve())


def _resumed(prepared: Prepared, folder: Path) -> Prepared:
    checkpoint, faults = newest_checkpoint(folder)
    if checkpoint.config != digest(prepared.config):
        parts = prepared.config.parts
        edited = "" if parts is None else f", or with another content of {parts}"
        raise CheckpointError(
            f"the checkpoint of round {checkpoint.server_round} in {folder} was made with other settings than its "
            f"config.yaml has{edited}, or by a version of fedstride with other settings: go on as it began, or "
            "start a new run"
        )
    try:
        prepared.strategy.load_state_dict(checkpoint.strategy)
    except (KeyError, ValueError, TypeError, FedstrideError) as error:
        raise CheckpointError(f"{folder}: the strategy's state cannot be restored: {error}") from error
    notes = tuple(f"passed over a checkpoint: {fault}" for fault in faults)
    return replace(prepared, checkpoint=checkpoint, notes=notes)


def run(
    grid: Grid,
    prepared: Prepared,
    *,
    observers: Sequence[Observer] = (),
    on_folder: Callable[[Path], None] = lambda folder: None,
) -> Outcome:
    """Train on the clients behind `grid`; the folder tells how it ended, whatever happens.

    `on_folder` is told the run's folder before the first client is asked. Raises what ended the run.
    """
    config = prepared.config
    nodes = check_nodes(grid, config)
    records = _open_records(prepared)
    on_folder(records.folder)
    tracking = Tracking(config, records.folder)
    try:
        told = ConfigRecord({**client_config(config), wire.RUN: records.run})
        roster = Roster(grid, config, told)
        roster.call(nodes)
        federation = Federation(
            grid=grid,
            strategy=prepared.strategy,
            config=config,
            roster=roster,
            told=told,
            evaluate=prepared.evaluation,
            observers=[records, tracking, *observers],
            oldest=records.oldest,
        )
        rounds = federation.rounds(records.last, prepared.evaluation.initial)
        while not (stopped := _reason_to_stop(config, records.rows)) and next(rounds, None) is not None:
            pass
    except KeyboardInterrupt:
        records.close("interrupted", "stopped by the user")
        raise
    except SystemExit as error:  # its exit code says nothing of the run
        records.close("failed", f"SystemExit: {error}")
        raise RunError(f"the run in {records.folder} was ended by a part that called sys.exit({error})") from error
    except BaseException as error:
        records.close("failed", f"{type(error).__name__}: {error}")
        raise
    finally:
        tracking.close()
    records.close("completed", stopped)
    return Outcome(records.folder, records.rows, stopped)


def _reason_to_stop(config: Config, rows: Sequence[Row]) -> str | None:
    return reason_to_stop(rows, config.best, target=config.target, patience=config.patience)


def _open_records(prepared: Prepared) -> Records:
    config = prepared.config
    if prepared.checkpoint is None:
        return Records(config, new_folder(config), prepared.strategy)
    folder = Path(config.resume or "").expanduser().resolve()
    return Records(config, folder, prepared.strategy, resume=prepared.checkpoint)
