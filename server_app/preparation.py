"""Before a run: builds and checks what it needs, from a configuration; no client has had a message then.

What can be refused is refused here, before anything is started or written. `session.py` executes the run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedstride.errors import ChangedDataError, CheckpointError, ConfigError, require
from fedstride.tasks import data
from fedstride.tasks.models import frozen_cache
from fedstride.tasks.partitions import schemes
from fedstride.tasks.spec import Spec, Statistics
from fedstride.user_parts import digest_of
from strategies.norm_analysis import NormAnalysis

from .before_training.initial_model import DIGITS, pinned
from .before_training.model_origin import origin
from .build import build_strategy, learning_at_server
from .config import paths
from .config.allowed_by_user import CHANGED_DATA
from .config.compose import digest
from .config.defaults import resolved
from .config.schema import Config
from .evaluation.ccvr import CCVR, ccvr_of
from .evaluation.central import CentralEvaluation
from .evaluation.proxy_set import note_of, proxy_of
from .evaluation.second_model import Second, second_of
from .metric_trackers import check_trackers
from .records.checkpoint import UNUSED, Checkpoint, newest_checkpoint
from .records.restored_lines import restored_clients, restored_metrics


@dataclass(frozen=True)
class Prepared:
    """The objects of a run that are created and checked before any client gets a message."""

    config: Config
    strategy: NormAnalysis
    evaluation: CentralEvaluation
    spec: Spec
    checkpoint: Checkpoint | None = None  # of the run that is resumed
    calibration: CCVR | None = None
    second: Second | None = None
    statistics: Statistics = field(default_factory=dict)  # of the initial model's task, taken over
    notes: tuple[str, ...] = ()  # for the user: a subset of the data, damaged checkpoints and lines of records


def prepare(
    config: Config, evaluation: CentralEvaluation | None = None, *, clients_elsewhere: bool = False
) -> Prepared:
    """Build what a run needs, and read the checkpoint if `resume` names a run. Its paths become absolute.

    `evaluation`: of another run with the same task, network, seed and test set, to be used for this one too.
    `clients_elsewhere`: the paths that clients get are those of other machines, and stay as they are.
    Raises ConfigError, DataError or CheckpointError. Nothing is started or written to the run's folder.
    """
    check_trackers(config.track)
    build_strategy(config)  # first without the model: errors are found before the data are read
    config = settled(config, clients_elsewhere=clients_elsewhere)
    source = data.load(config.task)
    begun = origin(config, source.spec)
    evaluation = evaluation or CentralEvaluation(config)
    second = second_of(config, evaluation, source.spec)
    subset = f"task={config.task.name} has {source.subset}" if source.subset else ""
    learning = note_of(source, learning_at_server(config))
    at_server = at_server_of(config, evaluation)
    strategy = build_strategy(config, evaluation.model, source.spec, at_server)
    not_kept = strategy.stack.core.not_kept if config.checkpoint_every else None
    if not_kept and config.resume is not None:
        raise CheckpointError(not_kept)
    notes = tuple(filter(None, [subset, learning, begun.note, "" if second is None else second.note, not_kept]))
    calibration = ccvr_of(config, evaluation)
    prepared = Prepared(
        config,
        strategy,
        evaluation,
        source.spec,
        calibration=calibration,
        second=second,
        statistics=begun.statistics,
        notes=notes,
    )
    if evaluation.frozen:
        frozen_cache.keep(evaluation.frozen)  # clients on this machine then find it in the cache
    if config.partition.name != "own":  # with `own`, only the nodes can read their data
        # The partition is drawn here once: errors are found now, and clients then find it in the cache.
        schemes.partition(config.partition, source.divisible, config.clients, config.seed)
    if config.resume is None:
        return prepared
    return _resumed(prepared, at_server, Path(config.resume).expanduser().resolve())


def settled(config: Config, *, clients_elsewhere: bool = False) -> Config:
    """The configuration as a run's folder keeps it: with absolute paths, and what follows from data and files.

    Raises ConfigError or DataError.
    """
    absolute = paths.absolute(config, of_parts=not clients_elsewhere)
    return _with_parts_digest(pinned(resolved(absolute, data.load(absolute.task))))


def _with_parts_digest(config: Config) -> Config:
    """The configuration with the digest of its file of parts. Raises ConfigError if it has another one."""
    found = None if config.parts is None else digest_of(config.parts)[:DIGITS]
    if config.parts_digest not in (None, found):
        raise ConfigError(
            f"parts = {config.parts!r} has the digest {found}, but parts_digest = {config.parts_digest}: it is "
            "not the file with which the run began; give the original one, parts=FILE, or start a new run"
        )
    return replace(config, parts_digest=found)


def at_server_of(config: Config, evaluation: CentralEvaluation) -> dict[str, Any]:
    """What rules may need of the server's own data; see `build_strategy`."""
    proxy = proxy_of(config, evaluation) if learning_at_server(config) else None  # it has a network of its own
    return {"proxy": proxy, "test_labels": evaluation.labels}


def _resumed(prepared: Prepared, at_server: dict[str, Any], folder: Path) -> Prepared:
    expected = digest(prepared.config)
    strategy = prepared.strategy

    def use(checkpoint: Checkpoint) -> None:
        nonlocal strategy
        if checkpoint.config != expected:
            raise CheckpointError(
                f"the checkpoint of round {checkpoint.server_round} in {folder} was written with other settings "
                "than those in config.yaml, or by another version of fedstride; resume it with the original "
                "settings and version, or start a new run"
            )
        # A new one for each checkpoint: of a state that it does not take, a part may have been restored.
        strategy = build_strategy(prepared.config, prepared.evaluation.model, prepared.spec, at_server)
        try:
            strategy.load_state_dict(checkpoint.strategy)
        except Exception as error:  # a state of any form, of any strategy
            raise CheckpointError(
                f"the strategy's state in the checkpoint of round {checkpoint.server_round} cannot be restored: "
                f"{type(error).__name__}: {error}"
            ) from error

    checkpoint, faults = newest_checkpoint(folder, use)
    done, rounds = checkpoint.server_round, prepared.config.rounds
    require(done <= rounds, "rounds", rounds, f"at least {done}, the rounds of the run in {folder}")
    _check_data(prepared.config, checkpoint)
    notes = [*prepared.notes]
    notes += [
        f"skipped a checkpoint: {fault}; it is kept with a name that begins with {UNUSED}" for fault in faults
    ]
    for restored in (restored_metrics(folder, checkpoint), restored_clients(folder, checkpoint)):
        notes += [] if restored.fault is None else [restored.fault]
    return replace(prepared, checkpoint=checkpoint, strategy=strategy, notes=tuple(notes))


def _check_data(config: Config, checkpoint: Checkpoint) -> None:
    """Raise ChangedDataError if the task's examples at the server are others, unless that is permitted.

    Each node compares its own data itself.
    """
    if checkpoint.data != data.digest(config.task) and CHANGED_DATA not in config.allow:
        raise ChangedDataError(
            f"the examples of task = {config.task.name!r} are not those with which the run began; resume it with "
            "those, or with allow=[changed_data], or start a new run"
        )
