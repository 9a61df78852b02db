"""Which clients of a run attack: the first ones of an order that is drawn from the seed."""

from __future__ import annotations

from fedstride import seeds
from server_app.config.schema import Config


def drawn_order(seed: int, clients: int) -> list[int]:
    """All clients, in an order drawn from the seed. The first ones are the attackers."""
    return [int(client) for client in seeds.generator(seed, "attack").permutation(clients)]


def attackers_of(config: Config) -> list[int]:
    """The ids of the clients that attack in a run, in increasing order."""
    count, place = (getattr(config.attack, key, 0) for key in ("clients", "place"))
    return sorted(drawn_order(config.seed, config.clients)[place : place + count])
