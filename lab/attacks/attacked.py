"""The Grid of a run on this machine, with the attackers that its configuration names."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from flwr.serverapp import Grid

from fedstride.errors import require
from server_app.config.attacks import ATTACKS
from server_app.preparation import Prepared

from .attackers import attackers_of, drawn_order
from .attacking_grid import AttackedGrid
from .judge import Judge
from .worst_update_grid import ChoosingGrid

G = TypeVar("G", bound=Grid)


def attacked(grid: G, prepared: Prepared) -> G | AttackedGrid:
    """The Grid of a prepared run, with its attackers; the Grid itself if all clients are honest.

    Raises ConfigError if an attack needs a test set that the server does not have.
    """
    config = prepared.config
    attackers = attackers_of(config)
    if not attackers:
        return grid
    attack, order = ATTACKS.make(config.attack), drawn_order(config.seed, config.clients)
    if attack.flips_labels:
        cast(Any, grid).flip_labels(attackers)
        return grid
    if attack.chooses:
        require(
            prepared.evaluation.batches > 0,
            "attack",
            config.attack.name,
            "another one: the server has no test set",
        )
        judge = Judge(prepared.strategy, prepared.evaluation)
        return ChoosingGrid(grid, attack, attackers, order, judge, config.seed)
    return AttackedGrid(grid, attack, attackers, order)
