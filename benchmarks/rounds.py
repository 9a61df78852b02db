"""What a round of ten clients costs on this machine, from messages to the evaluated model.

The floor is the loop that a user would write for two cores (`_plain.py`). A second floor is the same loop with
what makes our steps faster: our layout of images and filters in memory. For the quickstart, the first floor has
the network as one writes it, with the ReLU before the pooling; our networks have it after the pooling, which gives
the same values in less time. So the ratio to the first floor is what a user gains or loses, and the ratio to the
second one is what messages, checks and records cost.

One round each of both floors and ours in turn. "one process" is `workers=0`.
"""

from __future__ import annotations

import copy
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

from benchmarks import Measured, seconds
from benchmarks._plain import WORKERS, Plain
from benchmarks._rivals.network import Network
from client_app.app import app
from lab.engine.engine import engine
from server_app import preparation, session
from server_app.config.compose import compose
from server_app.config.schema import Config
from server_app.rounds import Round

FLOOR = f"a round of a plain loop in {WORKERS} forked processes"
IN_OUR_LAYOUT = "floor in our layout"
CASES = {
    "quickstart, 431,080 parameters": ["model=cnn_mnist"],
    "LeNet-5, 61,706": ["model=lenet5"],
    "LEAF's CNN, 1,690,046": ["model=cnn_emnist"],
    "MLP, 159,010": ["model=mlp"],
}
AS_ONE_WRITES_IT = {next(iter(CASES)): Network}
"""Networks that are ours only with the ReLU in another place: what the first floor has instead."""

FOREVER = 1_000_000  # rounds


def timings(repeats: int, only: str = "") -> Iterator[Measured]:
    """Each case with workers and in one process, `repeats` rounds after the first."""
    for name, overrides in CASES.items():
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            config = compose(
                [*overrides, "strategy=fedavg", f"rounds={FOREVER}", f"out='{folder}'", "client.device=cpu"]
            )
            written = AS_ONE_WRITES_IT.get(name, lambda: None)()
            plain = stack.enter_context(Plain(config, written))
            placed = stack.enter_context(Plain(config, placed=True))
            workers = stack.enter_context(Ours(config, WORKERS))
            alone = stack.enter_context(Ours(config, 0))
            for _ in range(repeats):
                floor, of_workers = seconds(plain.round), seconds(workers.round)
                yield Measured(f"{name}: workers", of_workers, floor)
                yield Measured(f"{name}: workers, {IN_OUR_LAYOUT}", of_workers, seconds(placed.round))
                yield Measured(f"{name}: one process", seconds(alone.round), floor)


class Ours:
    """A run that does one round when it is told to."""

    def __init__(self, config: Config, workers: int) -> None:
        self._config, self._workers = config, workers
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._ends = False
        self._stack = ExitStack()

    def __enter__(self) -> Ours:
        name = f"workers{self._workers}"
        prepared = preparation.prepare(compose_again(self._config, name))
        desk = self._stack.enter_context(engine(app, prepared, self._workers))
        grid = desk.grid(prepared)

        def run() -> None:
            with suppress(KeyboardInterrupt):
                session.run(
                    grid,
                    prepared,
                    evaluate=desk.evaluate(),
                    observers=[self],
                    on_folder=grid.keep_client_states_in,
                )

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        self._done.acquire()  # round 0
        self.round()
        return self

    def __exit__(self, *details: Any) -> None:
        self._ends = True
        self._go.release()
        self._thread.join()
        self._stack.close()

    def round(self) -> None:
        """Do one round."""
        self._go.release()
        self._done.acquire()

    def replied(self, server_round: int, done: int, total: int) -> None:
        """Do nothing."""

    def round_done(self, done: Round) -> None:
        """Wait for the next call of `round`."""
        self._done.release()
        self._go.acquire()
        if self._ends:
            raise KeyboardInterrupt


def compose_again(config: Config, name: str) -> Config:
    """The configuration with this name for its folder."""
    renamed = copy.copy(config)
    renamed.name = name
    return renamed
