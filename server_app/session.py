"""One run, from what `preparation.py` built and a Grid to the run's folder: begins, executes and ends it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from logging import INFO, WARNING
from pathlib import Path

from flwr.app import ConfigRecord
from flwr.serverapp import Grid

from fedstride.errors import RunError
from fedstride.flower import grids
from fedstride.flower.logs import log
from fedstride.messages import wire
from fedstride.processes.unix_signals import Terminated
from fedstride.tasks.spec import Spec, Statistics

from .before_training import normalisation
from .before_training.mini_batches import check_mini_batches
from .build import code_of_clients, message_config
from .config.schema import Config
from .exchange.expected_nodes import check_nodes
from .exchange.frozen_arrays import Delivery
from .exchange.roster import Roster
from .exchange.timeouts import CEILING, Waits
from .metric_trackers import Tracking
from .preparation import Prepared
from .records.checkpoint import FOLDER as CHECKPOINTS
from .records.noise_releases import note_releases
from .records.row_values import Row
from .records.run_folder import check_no_links, new_folder
from .reports.client_rows import empty_rounds_reason
from .reports.model_card import Audit
from .reports.progress import Event, Progress
from .reports.sites import SiteRecord
from .rounds import Evaluate, Federation, Observer, Round
from .run_files import Records
from .stopping import Decision


@dataclass(frozen=True)
class Outcome:
    """A completed run."""

    folder: Path
    rows: list[Row]
    stopped: str | None = None  # why it ended before its last round
    medians: Sequence[str] = ()  # what is known of those that replace missing cells
    sites: Sequence[SiteRecord] = ()


def run(
    grid: Grid,
    prepared: Prepared,
    *,
    evaluate: Evaluate | None = None,
    observers: Sequence[Observer] = (),
    on_folder: Callable[[Path], None] = lambda folder: None,
    stopped_by: Callable[[], str] = lambda: wire.BY_THE_USER,
    tell: Callable[[Event], None] | None = None,
    word: str | None = None,
    audit: Audit | None = None,
) -> Outcome:
    """Train on the clients of `grid`. The status file in the run's folder records how the run ended.

    `evaluate`: computes the figures of `prepared.evaluation`; by default that itself, in this process.
    `on_folder` is called with the run's folder before any client gets a message. `stopped_by` says who ended the
    run with SIGINT. `tell` gets what happens in rounds (`progress.py`). `word`: the word of a new run, if it was
    signed. `audit`: a membership test where the rows are, for the model card; without it, the smallest site is
    asked. An error that ends the run is raised again.
    """
    config = prepared.config
    check_nodes(grid, config)
    records = _open_records(prepared, word)
    records.card.audit = audit
    note_releases(prepared.strategy, records.folder)
    progress = Progress(records.folder, tell)
    tracking: Tracking | None = None
    try:
        with _closing(records, stopped_by):
            on_folder(records.folder)
            tracking = Tracking(config, records.folder)
            delivery = Delivery(prepared.evaluation.frozen)
            roster, statistics = _called(grid, prepared, records, delivery)
            prepared.strategy.names = roster.names
            federation = Federation(
                grid=grid,
                strategy=prepared.strategy,
                config=config,
                roster=roster,
                delivery=delivery,
                client_config=roster.client_config,
                evaluate=evaluate or prepared.evaluation,
                observers=[records, tracking, *observers],
                statistics=statistics,
                waits=Waits(CEILING if config.timeout is None and grids.is_simulation(grid) else config.timeout),
                progress=progress,
                calibration=prepared.calibration,
                second=prepared.second,
                asks_membership=audit is None,
                oldest_round=records.oldest_round,
                ends=lambda row: _reason_to_stop(config, records.decision.after(row)) is not None,
            )
            done = 0 if records.last is None else records.last.number
            labels = [roster.label(client) for client in sorted(roster.facts)]
            progress.begins(labels, config.rounds, config.headline, done)
            stopped = _execute(federation, prepared, records, done)
        records.close("completed", stopped)  # before trackers end: that can take minutes, and be interrupted
    finally:
        progress.end()
        if tracking is not None:
            tracking.close()
    return Outcome(records.folder, records.rows, stopped, records.card.medians, records.card.sites)


def _execute(federation: Federation, prepared: Prepared, records: Records, done: int) -> str | None:
    """Execute the rounds after the first `done`; why the run ended before its last round, if it did."""
    rounds = federation.rounds(records.last, prepared.evaluation.initial)
    last = records.last
    while not (stopped := _reason_to_stop(prepared.config, records.decision)):
        executed = next(rounds, None)
        if executed is None:
            break
        last = executed
    _check_trained(last, done, prepared.config)
    return stopped


@contextlib.contextmanager
def _closing(records: Records, stopped_by: Callable[[], str]) -> Iterator[None]:
    """Close the records if an error ends the run, with how it ended; the error is raised again."""
    try:
        yield
    except KeyboardInterrupt:
        records.close("interrupted", f"stopped by {stopped_by()}")
        raise
    except Terminated:
        records.close("terminated", "ended by SIGTERM")
        raise
    except SystemExit as error:  # its exit code must not become the exit code of the command
        records.close("failed", f"a part called sys.exit({error})")
        raise RunError(f"a part called sys.exit({error}), which ended the run in {records.folder}") from error
    except BaseException as error:
        if grids.no_longer_runs(error):
            records.close("interrupted", f"stopped by {stopped_by()}")
        else:
            records.close("failed", f"{type(error).__name__}: {error}")
        raise


def _called(grid: Grid, prepared: Prepared, records: Records, delivery: Delivery) -> tuple[Roster, Statistics]:
    """The roster after the roll call, with the configuration that clients get from now on.

    If the task asks for it, the statistics of the clients' examples are computed from the replies at the start of
    the run; a resumed run has them in its checkpoint.
    """
    config, last = prepared.config, records.last
    known = prepared.statistics if last is None else last.statistics
    spec = prepared.spec.with_statistics(known)
    asks = spec.federated

    def sent(spec: Spec, **more: bool) -> ConfigRecord:
        return message_config(config, spec, records.run, {**delivery.values, **more})

    roster = Roster(
        grid,
        config,
        sent(spec, **({wire.MOMENTS: True} if asks else {})),
        {} if last is None else last.owners,
        code_of_clients(config),
    )
    roster.call()
    check_mini_batches(config, roster)
    if asks:
        known, warnings, medians = normalisation.pool(spec, roster.facts, roster.names)
        for level, lines in ((WARNING, warnings), (INFO, medians)):
            for line in lines:
                log(level, "%s", line)
        records.write_medians(medians)
        spec = spec.with_statistics(known)
        roster.client_config = sent(spec)
    records.write_task(spec)
    if known:
        prepared.evaluation.spec = spec
    return roster, known


def _reason_to_stop(config: Config, decision: Decision) -> str | None:
    return decision.reason_to_stop(target=config.target, patience=config.patience)


def _check_trained(last: Round | None, begun: int, config: Config) -> None:
    """Raise RunError if rounds after round `begun` were executed, and no reply has ever changed the model."""
    if last is not None and last.number > begun and not last.accepted:
        raise RunError(empty_rounds_reason(last.row, last.clients, last.number - begun, config.screening.quorum))


def _open_records(prepared: Prepared, word: str | None) -> Records:
    config = prepared.config
    if prepared.checkpoint is None:
        frozen_ones = prepared.evaluation.frozen
        return Records(config, new_folder(config), prepared.strategy, frozen=frozen_ones, word=word)
    folder = Path(config.resume or "").expanduser().resolve()
    check_no_links(folder, (CHECKPOINTS, wire.CLIENT_STATES))
    return Records(
        config, folder, prepared.strategy, frozen=prepared.evaluation.frozen, resume=prepared.checkpoint
    )
