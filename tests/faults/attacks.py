"""One client multiplies its update by a factor: what every rule makes of it. Prints the table of docs/faults.md.

uv run python tests/faults/attacks.py [STRATEGY ...]
uv run python tests/faults/attacks.py --check

With --check it prints which rows the page lacks, or has too many, and measures nothing: a duty before a release.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Error, Message, MessageType, RecordDict

from client_app.app import app as real_client
from fedstride.arrays.named import to_record, views
from lab.attacks.attacking_grid import replace, updates_in
from lab.attacks.rules import Present, ScaledUpdate
from lab.engine.local_grid import LocalGrid
from server_app import preparation, session
from server_app.config.attacks import Scaled
from server_app.config.compose import compose
from strategies.registry import STRATEGIES

ATTACKS = ("silent", "x-10", "x100", "x-100", "x-900", "1e30")
"""What the malicious client does in every round. `silent` fails: a run without this client."""

PAGE = Path(__file__).parents[2] / "docs/faults.md"
HOSTILE = 0  # the client's id
SETTINGS = ("model=mlp", "partition=dirichlet", "partition.alpha=0.5", "rounds=10", "evaluate_every=0")
OWN_SETTINGS = {
    "scaffold": ("client.lr=0.02",),  # with 0.05 it diverges without an attack, too
    "fedlaw": ("task.proxy=test", "strategy.server_epochs=20"),
    "fedavg+validated": ("task.proxy=test",),
}
OF_TWO_CLIENTS = {"trimmed_mean": ("strategy.beta=0",)}
"""Of two clients no value can be cut at each end, so another beta is refused."""


def attacked(name: str, message: Message, reply: Message) -> Message:
    """The reply of the malicious client, from its honest one."""
    if name == "silent":
        return Message(Error(2, "silent"), reply_to=message)
    if name != "1e30":
        attack = ScaledUpdate(Scaled(factor=float(name.removeprefix("x"))))
        return replace(attack, message, reply, updates_in(message, reply), (), Present((HOSTILE,), (), ()))
    content: dict[str, Any] = dict(reply.content)
    for key, record in reply.content.array_records.items():
        content[key] = to_record({name: np.full_like(array, 1e30) for name, array in views(record).items()})
    reply.content = RecordDict(content)
    return reply


class HostileGrid(LocalGrid):
    """The in-process Grid in which client `HOSTILE` attacks; None: it is honest."""

    def __init__(self, clients: int, attack: str | None) -> None:
        super().__init__(real_client, clients)
        self.attack = attack

    def _deliver(self, message: Message) -> Message:
        reply = super()._deliver(message)
        node_config = self._contexts[message.metadata.dst_node_id].node_config
        if (
            self.attack is None
            or message.metadata.message_type != MessageType.TRAIN
            or node_config["partition-id"] != HOSTILE
        ):
            return reply
        return attacked(self.attack, message, reply)


@dataclass(frozen=True)
class Result:
    """How a run with an attack ended."""

    accuracy: float  # of the final model on the test set
    accepted: int  # rounds in which the reply of the malicious client was used
    honest_rejected: int  # rejected replies of the other clients
    finite: bool  # whether the final model is


def play(strategy: str, clients: int, attack: str | None, folder: Path, *more: str) -> Result:
    """Run ten rounds of `strategy` with one malicious client among `clients`."""
    own = [*OWN_SETTINGS.get(strategy, ()), *(OF_TWO_CLIENTS.get(strategy, ()) if clients == 2 else ())]
    config = compose([*SETTINGS, f"strategy={strategy}", f"clients={clients}", f"out={folder}", *own, *more])
    grid = HostileGrid(clients, attack)
    outcome = session.run(grid, preparation.prepare(config), on_folder=grid.keep_client_states_in)
    lines = [json.loads(line) for line in (outcome.folder / "clients.jsonl").read_text().splitlines()]
    return Result(
        accuracy=outcome.rows[-1]["test/accuracy"],
        accepted=sum(row["client"] == HOSTILE and row["status"] == "used" for row in lines),
        honest_rejected=sum(row["client"] != HOSTILE and row["status"] != "used" for row in lines),
        finite=bool(np.isfinite(outcome.rows[-1]["test/loss"])),
    )


def names() -> list[str]:
    """Every strategy; a wrapper around FedAvg."""
    return [f"fedavg+{name}" if STRATEGIES.wraps(name) else name for name in STRATEGIES]


def table(clients: int, strategies: Sequence[str], folder: Path) -> Iterator[str]:
    """The lines of the Markdown table for this number of clients."""
    yield "| strategy | all honest | " + " | ".join(ATTACKS) + " |"
    yield "|---" * (len(ATTACKS) + 2) + "|"
    for strategy in strategies:
        cells = []
        for attack in (None, *ATTACKS):
            result = play(strategy, clients, attack, folder)
            used = f" ({result.accepted})" if attack not in (None, "silent") and result.accepted else ""
            wrong = f" [{result.honest_rejected}]" if result.honest_rejected else ""
            cells.append(f"{result.accuracy:.3f}{used}{wrong}")
        yield f"| {strategy} | " + " | ".join(cells) + " |"


def faults(page: str) -> list[str]:
    """What is wrong with the two tables of the page, one line each."""
    section = page.split("## One client that attacks")[1].split("\n## ")[0]
    found = []
    for clients, text in zip((5, 2), section.split("clients, one of them malicious")[1:], strict=True):
        lines = [line for line in text.splitlines() if line.startswith("|")]
        head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
        listed = [row[0] for row in rows]
        if head != ["strategy", "all honest", *ATTACKS]:
            found.append(f"{clients} clients: another head than {ATTACKS}")
        found += [f"{clients} clients: no row {name}" for name in names() if name not in listed]
        found += [f"{clients} clients: the row {name} is of no strategy" for name in listed if name not in names()]
    return found


def main() -> None:
    """Print both tables, or what is wrong with them."""
    if sys.argv[1:] == ["--check"]:
        wrong = faults(PAGE.read_text())
        raise SystemExit(
            "\n".join([*wrong, "measure them: uv run python tests/faults/attacks.py STRATEGY ..."]) if wrong else 0
        )
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        for clients in (5, 2):
            print(f"\n{clients} clients, one of them malicious:\n")
            for line in table(clients, sys.argv[1:] or names(), Path(folder)):
                print(line, flush=True)


if __name__ == "__main__":
    main()
