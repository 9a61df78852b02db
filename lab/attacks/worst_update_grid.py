"""A Grid on this machine whose attackers choose what they send by what the round would give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedstride import seeds
from fedstride.arrays.named import Layout
from fedstride.messages import wire
from fedstride.messages.records import config_records
from strategies.replies.reply_messages import shallow
from strategies.sums.blocks import norm

from .attacking_grid import AttackedGrid, Updates, updates_in, with_updates
from .judge import Judge
from .rules import Present
from .worst_update import KnownToAttackers, WorstUpdate, longest

MEMORY = 0.9
"""Share of the running mean that stays from round to round."""


class ChoosingGrid(AttackedGrid):
    """The nodes of a Grid, of which some send the worst update of all candidates."""

    def __init__(
        self,
        grid: Grid,
        attack: WorstUpdate,
        attackers: Sequence[int],
        order: Sequence[int],
        judge: Judge,
        seed: int,
    ) -> None:
        super().__init__(grid, attack, attackers, order)
        self._worst, self._judge, self._seed = attack, judge, seed
        self._running: np.ndarray | None = None

    def _answers(
        self, sent: Mapping[int, Message], replies: Mapping[int, Message], present: Present
    ) -> list[Message]:
        """The same candidate from each attacker; their honest replies in a round without other clients."""
        if not (present.attackers and present.honest):
            return [replies[client] for client in present.attackers]
        first = present.attackers[0]
        server_round = cast(int, config_records(sent[first].content)[wire.CONFIG][wire.SERVER_ROUND])
        form = _of_model(updates_in(sent[first], replies[first]))
        update = _vector(form)
        honest = [_vector(_of_model(updates_in(sent[client], replies[client]))) for client in present.honest]
        self._running = _running(self._running, honest)
        known = KnownToAttackers(update, honest, self._running, self._random(server_round, len(update)))
        strategy = self._judge.strategy
        bound = longest(
            strategy.screening,
            strategy.learnt,
            [float(np.linalg.norm(vector)) for vector in honest],
            present.attackers,
            norm({name: strategy.sent[name] for name in Layout.of(strategy.sent).parameters}),
        )
        others = [replies[client] for client in present.honest]
        worst, most = [replies[client] for client in present.attackers], -np.inf
        for candidate in self._worst.candidates(known, bound):
            updates = _updates(candidate, form)
            made = [_altered(sent[client], replies[client], updates) for client in present.attackers]
            loss = self._judge.loss(server_round, [*others, *made])
            if loss > most:
                worst, most = made, loss
        return worst

    def _random(self, server_round: int, size: int) -> np.ndarray:
        return seeds.generator(self._seed, "attack", server_round).standard_normal(size)


def _of_model(updates: Updates) -> Updates:
    """Those of the model alone; what a rule gets in addition stays honest."""
    return {(name, key): update for (name, key), update in updates.items() if name == wire.ARRAYS}


def _vector(updates: Updates) -> np.ndarray:
    return np.concatenate([update.ravel() for update in updates.values()])


def _updates(vector: np.ndarray, form: Updates) -> Updates:
    """The vector as updates of this form."""
    ends = np.cumsum([update.size for update in form.values()])[:-1]
    parts = np.split(vector, ends)
    return {key: part.reshape(update.shape) for (key, update), part in zip(form.items(), parts, strict=True)}


def _running(before: np.ndarray | None, honest: Sequence[np.ndarray]) -> np.ndarray:
    mean: np.ndarray = np.mean(honest, axis=0)
    return mean if before is None else MEMORY * before + (1.0 - MEMORY) * mean


def _altered(sent: Message, reply: Message, updates: Updates) -> Message:
    made: Any = shallow(reply)
    made.content = RecordDict(with_updates(sent, reply, updates))
    return cast(Message, made)
