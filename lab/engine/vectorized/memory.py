"""How many clients can be trained at once on a GPU, from two steps of one client and of two."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .clients import Started, size_of
from .training import train_together

SHARE = 0.8
"""Of the free memory: the rest is for what the clients' methods keep, and for other numbers of examples."""


class Room(NamedTuple):
    """The number of clients, and bytes: of each, and free ones."""

    clients: int
    per_client: int
    free: int


def fitting(free: int, one: int, two: int) -> Room:
    """The room in `free` bytes if one client needs `one` bytes and two need `two`; at least one client."""
    per_client = max(two - one, 1)
    shared = max(one - per_client, 0)
    return Room(max(1, (int(SHARE * free) - shared) // per_client), per_client, free)


def measured(client: Started, staying: int = 0) -> Room:
    """The room on this client's GPU. Its training has no effect.

    `staying`: the clients of the round, if their models stay there until the server's rule has computed.
    """
    device = client.job.device
    train_together([client], only_steps=1)  # takes what stays: the examples, and memory of torch's libraries
    one, two = (_peak([client] * count, device) for count in (1, 2))
    torch.cuda.empty_cache()
    return fitting(torch.cuda.mem_get_info(device)[0] - staying * size_of(client.weights), one, two)


def _peak(clients: list[Started], device: torch.device) -> int:
    """The bytes that two steps of these clients need."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    train_together(clients, only_steps=2)
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device)) - before
