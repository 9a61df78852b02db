"""One run: from a configuration and a Grid to the folder it leaves.

Knows the order of things and how a run may end; the parts are elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flwr.serverapp import Grid

from fedstride.schema import Config
from server_app.build import build_strategy, client_config
from server_app.evaluation import CentralEvaluation
from server_app.records import Records, new_folder
from server_app.roll_call import call, check_nodes
from server_app.rounds import Observer, Row, run_rounds
from strategies.norms import NormAnalysis


@dataclass(frozen=True)
class Prepared:
    """All that can be checked before a client is asked."""

    config: Config
    strategy: NormAnalysis
    evaluation: CentralEvaluation


@dataclass(frozen=True)
class Outcome:
    """A run that came to its end."""

    folder: Path
    rows: list[Row]


def prepare(config: Config) -> Prepared:
    """Build what a run needs. Raises ConfigError or DataError: nothing has been started or written."""
    return Prepared(config, build_strategy(config), CentralEvaluation(config))


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
    folder = new_folder(config)
    on_folder(folder)
    records = Records(config, folder)
    try:
        told = client_config(config)
        roster = call(grid, nodes, config, told)
        for _ in run_rounds(
            grid,
            prepared.strategy,
            config=config,
            roster=roster,
            initial=prepared.evaluation.initial,
            told=told,
            evaluate=prepared.evaluation,
            observers=[records, *observers],
        ):
            pass
    except KeyboardInterrupt:
        records.close("interrupted", "stopped by the user")
        raise
    except BaseException as error:
        records.close("failed", f"{type(error).__name__}: {error}")
        raise
    records.close("completed")
    return Outcome(folder, records.rows)
