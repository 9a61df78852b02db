"""The ServerApp: reads Flower's run config and executes the run."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from logging import ERROR, INFO, WARNING
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedstride.errors import FedstrideError, require
from fedstride.figures.metrics import as_text, shown
from fedstride.flower import grids
from fedstride.flower.connection_keeping import forget_idle_connections
from fedstride.flower.logs import log, say_once
from fedstride.messages import wire
from fedstride.processes import unix_signals

from . import data_descriptions, preparation, session, signed_messages
from .before_training.model_size import check_size
from .config.attacks import refuse_attack
from .config.compose import compose
from .config.overrides import overrides_of
from .config.schema import Config
from .reports.progress import Event
from .reports.round_line import line
from .reports.unmeasured import measured_metric, why_not_measured
from .rounds import Round

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Execute one run, or ask what the sites' data are like.

    A mistake in the configuration raises an error before any client gets a message.

    SIGINT (which Flower sends to this process after `flwr stop`) and SIGTERM end the run with all its files. Then
    Flower's own handler of the signal reports the end to the SuperLink, and ends the process.
    """
    stop = unix_signals.RaiseOnce()
    stopped_by = _who_stops()
    if by := context.run_config.get(wire.SUBMISSION):
        log(INFO, wire.SUBMISSION_LINE, by)
    try:
        with unix_signals.handled(stop), unix_signals.waking():
            forget_idle_connections(grid)
            signed = signed_messages.signed_terms(context.run_config)
            config = compose(overrides_of(context.run_config))
            _check_no_files(config)
            if grids.is_deployment(grid):
                _check_no_seed(config)
            refuse_attack(config)
            prepared = preparation.prepare(config, clients_elsewhere=grids.is_deployment(grid))
            describes = bool(context.run_config.get(wire.CHECK))
            if signed is not None:
                signed_messages.check(signed, prepared, describes=describes)
            if describes:
                _describe(grid, prepared, None if signed is None else signed.run)
                return
            if grids.is_deployment(grid):
                second = () if prepared.second is None else (prepared.second.arrays,)
                check_size(config.model.name, prepared.evaluation.initial, *second)
            for note in prepared.notes:
                log(WARNING, "%s", note)
            outcome = session.run(
                grid,
                prepared,
                observers=[LogLines(prepared.config)],
                on_folder=_log_folder,
                stopped_by=stopped_by,
                tell=None if grids.is_simulation(grid) else _log_progress,
                word=None if signed is None else signed.run,
            )
    except FedstrideError as error:
        log(ERROR, wire.ERROR_LINE, type(error).__name__, error)
        say_once(type(error))
        raise error.with_traceback(None) from None
    except unix_signals.STOPPED as end:
        log(WARNING, wire.END_LINE, "SIGTERM" if isinstance(end, unix_signals.Terminated) else stopped_by())
        if stop.number is not None:
            signal.raise_signal(stop.number)
        raise
    if why := why_not_measured(prepared.config, outcome.rows, outcome.sites):
        log(WARNING, "%s", why)
    metric = measured_metric(prepared.config, outcome.rows)
    value = as_text(metric, outcome.rows[-1].get(metric))
    log(INFO, wire.FINAL_LINE, shown(metric), value, outcome.folder)


def _describe(grid: Grid, prepared: preparation.Prepared, word: str | None) -> None:
    """Ask what the sites' data are like, and log what each said."""
    sites = data_descriptions.ask(grid, prepared, word)
    data_descriptions.log_sites(sites, lambda text: log(INFO, wire.SITE_LINE, text))


def _who_stops() -> Callable[[], str]:
    """A function that says who ended this process with SIGINT: a user, or the end of its SuperLink.

    Flower sends SIGINT in both cases (1.39 to 1.42). The process that started this one ends with its SuperLink.
    """
    parent = os.getppid()
    return lambda: wire.BY_THE_USER if os.getppid() == parent else wire.BY_THE_SUPERLINK


def _check_no_files(config: Config) -> None:
    """The nodes of a federation say themselves where their data are; a server must not choose a node's files."""
    files = getattr(config.partition, "files", None)
    require(
        files is None,
        "partition.files",
        files,
        "null here: start each node with its own data, as in --node-config 'data=\"/path\"' (docs/node-data.md)",
    )


def _check_no_seed(config: Config) -> None:
    """Who knows the seed of noise can remove it."""
    seed = getattr(config.privacy, "noise_seed", None)
    require(seed is None, "privacy.noise_seed", seed, "null in a deployment: it is for experiments on one machine")


def _log_folder(folder: Path) -> None:
    log(INFO, wire.FOLDER_LINE, folder)


def _log_progress(event: Event) -> None:
    log(INFO, wire.PROGRESS_LINE, json.dumps(event))


class LogLines:
    """An observer that logs one line for each round, with the metric that decides, or the first that it has."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def replied(self, server_round: int, done: int, total: int) -> None:
        """Do nothing: single replies are not logged."""

    def round_done(self, done: Round) -> None:
        """Log the round, training loss, the metric, number of clients, and seconds."""
        log(INFO, "%s", line(done.row, measured_metric(self._config, [done.row])))
