"""The random draws of the clients of one training: from generators on a processor, from a counter on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from client_app.stages import dropout_seed

from .batches import Batch
from .clients import Started
from .functions import Draws, GeneratorDraws
from .random_draws import CountedDraws, Number


class FromGenerators:
    """The draws of clients on a processor: those of training alone, from a generator for each."""

    def __init__(self, clients: Sequence[Started]) -> None:
        self._each = [torch.Generator() for _ in clients]
        for generator, client in zip(self._each, clients, strict=True):
            generator.set_state(client.random)

    tensors: Sequence[torch.Tensor] = ()
    states: Sequence[torch.Tensor] = ()

    def draws(self, number: Number, batch: Batch) -> Draws:
        """Those of a step."""
        return GeneratorDraws(self._each[: len(batch.counts)], batch.counts, batch.longest)

    def state(self, client: int) -> torch.Tensor:
        """That of torch's generator after the training of this client."""
        return self._each[client].get_state()


class FromKeys:
    """The draws of clients on a GPU, whose generators draw other bits in any case: from a counter."""

    def __init__(self, clients: Sequence[Started], device: torch.device) -> None:
        self._keys = torch.tensor([dropout_seed(client.job) for client in clients], device=device)
        self.states: Sequence[torch.Tensor] = [client.random for client in clients]

    @property
    def tensors(self) -> Sequence[torch.Tensor]:
        """What a step reads."""
        return (self._keys,)

    def draws(self, number: Number, batch: Batch) -> Draws:
        """Those of a step."""
        return CountedDraws(self._keys[: len(batch.counts)], number)

    def state(self, client: int) -> torch.Tensor:
        """That of torch's generator, which has drawn nothing."""
        return self.states[client]


def draws_of(clients: Sequence[Started]) -> FromGenerators | FromKeys:
    """The draws of these clients, as their device has them."""
    device = clients[0].job.device
    return FromGenerators(clients) if device.type == "cpu" else FromKeys(clients, device)
