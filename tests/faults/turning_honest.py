"""One of five clients attacks for some rounds and is honest from then on. Prints the table of docs/faults.md.

uv run python tests/faults/turning_honest.py [STRATEGY ...] [KEY=VALUE ...] [attacked=ROUNDS]

A strategy whose state at the server is a sum of what clients say of changes keeps the error of such a client for
ever. The accuracy is that of the model on the test set: at the end of the attack, some rounds later, and without
any attack at that time.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Message, MessageType, RecordDict

from client_app.app import app as real_client
from fedstride.arrays.named import is_buffer, to_record, views
from fedstride.messages import wire
from fedstride.messages.records import config_records
from lab.engine.local_grid import LocalGrid
from server_app import preparation, session
from server_app.config.compose import compose

STRATEGIES = {"scaffold": (), "feddyn": ("client.lr=0.05",)}  # with 0.1 FedDyn is unsteady without an attack, too
SETTINGS = ("model=mlp", "clients=5", "evaluate_every=1")
ROUNDS = 10
"""So many rounds the client attacks, if no other number is given."""

AFTER = (0, 1, 5, 10, 20)
"""Rounds after the last attack whose accuracy is printed."""

LONGER = "attacked="
SEEDS = (1, 2, 3)
HOSTILE = 0  # the client's id
LONGEST = 4.5  # times its own length: a little less than what the screening admits


class Reversing:
    """A client that reverses some of the records of its reply, or replaces them. This one is honest."""

    def record(self, name: str, update: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
        """What is sent in place of this update, or of this record, in round `number`."""
        return update


class Times(Reversing):
    """All is multiplied: -1 reverses it."""

    def __init__(self, factor: float, *, records: bool = True, model: bool = True) -> None:
        self.factor, self.records, self.model = factor, records, model

    def record(self, name: str, update: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
        """A multiple of it."""
        chosen = self.model if name == wire.ARRAYS else self.records
        return {key: self.factor * array for key, array in update.items()} if chosen else update


class Random(Reversing):
    """Random values, about as long as the screening lets pass, and always in the same direction."""

    def record(self, name: str, update: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
        """Of the length of the update, times `LONGEST`."""
        rng = np.random.default_rng(7)
        drawn = {key: rng.standard_normal(array.shape) for key, array in update.items()}
        factor = LONGEST * _norm(update) / _norm(drawn)
        return {key: factor * array for key, array in drawn.items()}


class Alternating(Reversing):
    """In turn reversed and as it is, so that the state jumps in each round."""

    def record(self, name: str, update: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
        """Reversed in odd rounds."""
        return {key: -array for key, array in update.items()} if number % 2 else update


class OfAnother(Reversing):
    """What another client sent; `seen` is filled by the Grid."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[str, np.ndarray]] = {}

    def record(self, name: str, update: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
        """The other's of the round before; the first time its own."""
        return self.seen.get(name, update)


ATTACKS = {
    "reversed": lambda: Times(-1.0),
    "record x-2": lambda: Times(-2.0, model=False),
    "update reversed": lambda: Times(-1.0, records=False),
    "random": Random,
    "in turn": Alternating,
    "another's": OfAnother,
}


def _norm(arrays: dict[str, np.ndarray]) -> float:
    return float(np.sqrt(sum(np.sum(array.astype(np.float64) ** 2) for array in arrays.values())))


class TurningGrid(LocalGrid):
    """The in-process Grid in which client `HOSTILE` attacks until a round; None: it is honest."""

    def __init__(self, clients: int, attack: Reversing | None, until: int) -> None:
        super().__init__(real_client, clients)
        self.attack, self.until = attack, until

    def _deliver(self, message: Message) -> Message:
        reply = super()._deliver(message)
        if self.attack is None or message.metadata.message_type != MessageType.TRAIN or not reply.has_content():
            return reply
        client = self._contexts[message.metadata.dst_node_id].node_config["partition-id"]
        number = int(config_records(message.content)[wire.CONFIG][wire.SERVER_ROUND])  # type: ignore[arg-type]
        if client == HOSTILE + 1 and isinstance(self.attack, OfAnother):
            self.attack.seen = {name: _update(message, reply, name) for name in reply.content.array_records}
        if client == HOSTILE and number <= self.until:
            content: dict[str, Any] = dict(reply.content)
            for name, record in reply.content.array_records.items():
                content[name] = self._attacked(message, reply, name, number, dict(views(record)))
            reply.content = RecordDict(content)
        return reply

    def _attacked(
        self, message: Message, reply: Message, name: str, number: int, arrays: dict[str, np.ndarray]
    ) -> Any:
        assert self.attack is not None
        start = _start(message, name)
        for key, array in self.attack.record(name, _update(message, reply, name), number).items():
            arrays[key] = (start.get(key, 0.0) + array).astype(arrays[key].dtype)
        return to_record(arrays)


def _start(message: Message, name: str) -> dict[str, np.ndarray]:
    return dict(views(message.content.array_records[name])) if name == wire.ARRAYS else {}


def _update(message: Message, reply: Message, name: str) -> dict[str, np.ndarray]:
    """The update of the model's parameters, or a whole other record."""
    start = _start(message, name)
    arrays = views(reply.content.array_records[name])
    return {
        key: array.astype(np.float64) - start.get(key, 0.0)
        for key, array in arrays.items()
        if not is_buffer(key, array)
    }


class Course(NamedTuple):
    """The accuracy after each round, from round 0 on, and how many replies of the hostile client were rejected."""

    accuracy: list[float]
    rejected: int


def play(strategy: str, attack: str | None, folder: Path, *more: str, rounds: int = ROUNDS) -> Course:
    """A run in which the client attacks in the first `rounds` rounds, if at all, and 20 further ones."""
    config = compose(
        [
            *SETTINGS,
            *STRATEGIES[strategy],
            f"strategy={strategy}",
            f"out={folder}",
            f"rounds={rounds + AFTER[-1]}",
            *more,
        ]
    )
    grid = TurningGrid(config.clients, None if attack is None else ATTACKS[attack](), rounds)
    outcome = session.run(grid, preparation.prepare(config), on_folder=grid.keep_client_states_in)
    return Course(
        [row["test/accuracy"] for row in outcome.rows],
        sum(row.get("screening/rejected", 0) for row in outcome.rows),
    )


def table(strategies: Sequence[str], more: Sequence[str], attacked: int, folder: Path) -> Iterator[str]:
    """The lines of the Markdown table: means over the seeds, after so many rounds of an attack."""
    yield "| strategy | attack | " + " | ".join(f"{n} rounds after" for n in AFTER) + " | undisturbed | worst |"
    yield "|---" * (len(AFTER) + 4) + "|"
    for strategy in strategies:
        whole = [play(strategy, None, folder, *more, f"seed={seed}", rounds=attacked).accuracy for seed in SEEDS]
        undisturbed = [each[-1] for each in whole]
        for attack in ATTACKS:
            runs = [play(strategy, attack, folder, *more, f"seed={seed}", rounds=attacked) for seed in SEEDS]
            found = [[run.accuracy[attacked + n] for n in AFTER] for run in runs]
            cells = [f"{np.mean(each):.3f}" for each in zip(*found, strict=True)]
            worst = max(one - each[-1] for one, each in zip(undisturbed, found, strict=True))
            rejected = (
                f" ({sum(run.rejected for run in runs)} rejected)" if any(run.rejected for run in runs) else ""
            )
            cells += [f"{np.mean(undisturbed):.3f}", f"{worst:+.3f}"]
            yield f"| {strategy} | {attack}{rejected} | " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table for the strategies and settings that are given."""
    given = sys.argv[1:]
    logging.getLogger("flwr").setLevel(logging.ERROR)
    strategies = [each for each in given if "=" not in each] or list(STRATEGIES)
    attacked = [int(each.removeprefix(LONGER)) for each in given if each.startswith(LONGER)] or [ROUNDS]
    more = [each for each in given if "=" in each and not each.startswith(LONGER)]
    with tempfile.TemporaryDirectory() as folder:
        for line in table(strategies, more, attacked[-1], Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
