"""The ServerApp: reads Flower's run config, wires the rest."""

from __future__ import annotations

from logging import ERROR, INFO
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedstride import wire
from fedstride.errors import FedstrideError
from fedstride.flower import log

from . import session
from .config.compose import compose
from .config.overrides import overrides_of
from .rounds import Round

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """One run. Fails with one line that says what to change, before any client is asked where it can."""
    try:
        prepared = session.prepare(compose(overrides_of(context.run_config)))
        outcome = session.run(grid, prepared, observers=[LogLines()], on_folder=_log_folder)
    except FedstrideError as error:
        log(ERROR, "%s: %s", type(error).__name__, error)
        raise error.with_traceback(None) from None  # the line says it all; Flower prints the rest to followers
    log(INFO, wire.FINAL_LINE, 100 * outcome.rows[-1]["test/accuracy"], outcome.folder)


def _log_folder(folder: Path) -> None:
    log(INFO, wire.FOLDER_LINE, folder)


class LogLines:
    """An observer that logs a line a round."""

    def replied(self, server_round: int, done: int, total: int) -> None:
        """Single replies are not logged."""

    def round_done(self, done: Round) -> None:
        """Round, train loss, test accuracy, clients, seconds."""
        log(INFO, "%s", describe(done.row))


def describe(row: dict[str, float]) -> str:
    """One line that says how a round went."""
    parts = [f"round {row['round']:>3}"]
    # A log goes to whoever submitted; with privacy, clients' figures stay on the server.
    if row.get("train/loss") is not None and "privacy/stddev" not in row:
        parts.append(f"train loss {row['train/loss']:.4f}")
    if row.get("test/accuracy") is not None:
        parts.append(f"test accuracy {100 * row['test/accuracy']:6.2f} %")
    if "clients" in row:
        parts.append(f"{row['clients']} clients")
    parts.append(f"{sum(v for k, v in row.items() if k.startswith('seconds/')):.1f} s")
    return "   ".join(parts)
