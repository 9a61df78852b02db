"""Helpers for tests that run whole federations in process, small and fast."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.clientapp import ClientApp
from safetensors.numpy import load

from fedstride import user_parts
from fedstride.parts import USER_PARTS
from lab.engine.engine import engine
from server_app import preparation, session
from server_app.config.compose import compose
from server_app.config.schema import Config
from server_app.rounds import Round

SMALL = ("model=mlp", "clients=4", "client.local_steps=3", "client.batch_size=20", "evaluate_every=1")


def play(
    out: Path,
    *overrides: str,
    app: ClientApp | None = None,
    observers: Sequence[Any] = (),
    small: bool = True,
    workers: int = 0,
) -> session.Outcome:
    """Execute a run on this machine and return its outcome. Errors that end the run are raised."""
    if app is None:
        from client_app.app import app as real

        app = real
    shortened = [key for key in SMALL if not ("two_d_lrd" in str(overrides) and "local_steps" in key)]  # A4-10
    config = compose([*(shortened if small else ()), f"out='{out}'", *overrides])
    return _run(app, config, observers, workers)


def resume(
    folder: Path,
    *overrides: str,
    app: ClientApp | None = None,
    observers: Sequence[Any] = (),
    workers: int = 0,
) -> session.Outcome:
    """Resume a run on this machine."""
    if app is None:
        from client_app.app import app as real

        app = real
    return _run(app, compose([f"resume='{folder}'", *overrides]), observers, workers)


def _run(app: ClientApp, config: Config, observers: Sequence[Any], workers: int) -> session.Outcome:
    prepared = preparation.prepare(config)
    with engine(app, prepared, workers) as desk:
        grid = desk.grid(prepared)
        return session.run(
            grid,
            prepared,
            evaluate=desk.evaluate(),
            observers=observers,
            on_folder=grid.keep_client_states_in,
        )


def whole_and_resumed(out: Path, *overrides: str) -> tuple[Path, Path]:
    """The folders of an uninterrupted run, and of one that was stopped after round 2 and resumed."""
    whole = play(out, *overrides, "name=whole").folder
    with pytest.raises(KeyboardInterrupt):
        play(out, *overrides, "name=part", observers=[StopAfter(2)])
    resume(out / "part")
    return whole, out / "part"


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def close(a: Path, b: Path, within: float = 1e-4) -> None:
    """The models in two folders of runs differ by at most this, absolute and relative."""
    one, other = load(weights(a)), load(weights(b))
    assert set(one) == set(other)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=within, atol=within)


def table(folder: Path) -> list[list[str]]:
    """metrics.csv without the columns with seconds."""
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.reader(file))
    kept = [i for i, name in enumerate(rows[0]) if not name.startswith("seconds/")]
    return [[row[i] for i in kept] for row in rows]


class StopAfter:
    """An observer that ends the run, as Ctrl-C does, at the first reply after the given round."""

    def __init__(self, server_round: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.server_round = server_round
        self.error = error

    def replied(self, server_round: int, done: int, total: int) -> None:
        if server_round > self.server_round:
            raise self.error

    def round_done(self, done: Round) -> None: ...


def forget() -> None:
    """Unload all parts files, as in a new process."""
    for name in user_parts._LOADED:
        sys.modules.pop(f"fedstride_parts_{Path(name).stem}", None)
    USER_PARTS.clear()
    user_parts._LOADED.clear()
