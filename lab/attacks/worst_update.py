"""The worst update that the screening accepts, chosen in each round among candidates.

With m the mean of the honest updates of the round, r their running mean over rounds, o the update of an honest
client and z a random vector, the directions are

    own, -own, m, -m, r, -r, o, -o, z;   and, with a part of 0.1 along m, what -own, -r, -o and z have beside m

The latter are for defences that look at the angle to other updates. Each direction d gives the updates

    b 1.5^-i d / ||d||,   i = 0, 1, ..., lengths - 1

with b the longest one that the screening accepts. All attackers of the round send the same candidate: the one
after which the loss of the next model on the test set is largest. So they know everything: the rule, its state,
all updates and the test set. The choice is greedy, round by round; an attack that plans over rounds may be worse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from server_app.config.attacks import Worst as Settings
from strategies.replies.length_bounds import reference
from strategies.replies.screening_settings import Screening
from strategies.replies.update_lengths import MODEL, allowed_of

from .rules import Attack

RATIO = 1.5
"""Of one length to the next."""

ALONG = 0.1
"""The part along m of a direction beside it."""

WITHIN_THE_BOUND = 0.999
"""The longest candidate, in units of the bound: the rounding of its numbers must not make it too long."""


class KnownToAttackers(NamedTuple):
    """What the attackers know of a round: updates as vectors of all parameters, float64."""

    update: np.ndarray  # of the first attacker, from honest training
    honest: list[np.ndarray]  # of the other clients, in the order of client ids; at least one
    running: np.ndarray  # r, with this round's m in it
    random: np.ndarray


class WorstUpdate(Attack):
    """The candidates; the Grid of attackers chooses."""

    chooses = True

    def __init__(self, settings: Settings) -> None:
        self.lengths = settings.lengths

    def candidates(self, known: KnownToAttackers, longest: float) -> list[np.ndarray]:
        """All updates, direction by direction, from the longest to the shortest."""
        return [longest * RATIO**-i * direction for direction in directions(known) for i in range(self.lengths)]


def directions(known: KnownToAttackers) -> list[np.ndarray]:
    """The directions at the head of the module, of length 1, without those of length 0."""
    update, running, other = known.update, known.running, known.honest[0]
    mean = np.mean(known.honest, axis=0)
    plain = [update, -update, mean, -mean, running, -running, other, -other, known.random]
    sides = [_beside(d, mean) for d in (-update, -running, -other, known.random)]
    return [unit for unit in map(_unit, [*plain, *sides]) if unit is not None]


def _unit(vector: np.ndarray) -> np.ndarray | None:
    length = float(np.linalg.norm(vector))
    return vector / length if 0.0 < length < math.inf else None


def _beside(direction: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """What a direction has beside the mean, with a small part along it. 0 if there is nothing beside it."""
    unit, along = _unit(direction), _unit(mean)
    if unit is None or along is None:
        return np.zeros_like(direction)
    rest = unit - float(unit @ along) * along
    length = float(np.linalg.norm(rest))
    return rest / length + ALONG * along if length > 1e-6 else np.zeros_like(direction)


def longest(
    screening: Screening,
    learnt: Mapping[str, float],
    honest: Sequence[float],
    attackers: Sequence[int],
    scale: float,
) -> float:
    """The length of the longest update that is accepted of each of these attackers, given those of honest clients.

    `learnt`: what the screening knows; `scale`: the norm of the sent model. Without a bound it is as if there were
    the default one.
    """
    before = learnt.get(MODEL)
    votes = [*honest, *[math.inf] * len(attackers)]
    normal = reference(votes, before, 0.0 if before else scale)
    if normal is None or not math.isfinite(normal):
        normal = max(honest)
    bounded = screening if screening.factor is not None else replace(screening, factor=Screening().factor)
    factors = [allowed_of(client, bounded, learnt).factor for client in attackers]
    return WITHIN_THE_BOUND * normal * min(factor for factor in factors if factor is not None)
