"""A wrapper and its clients' half: around any strategy, clients add noise of a given size to their gradients.

fedstride run parts=examples/own_wrapper.py strategy=fedavg+noisy strategy.size=0.01
"""

from typing import Annotated, Any

import torch

from fedstride import Method, Plan, Request, Setting, Wrapper, part

Size = Annotated[float, Setting("of the noise", least=0)]


@part(strategy="noisy")
class Noisy(Wrapper):
    """Clients of any strategy train with noisy gradients."""

    half = "noisy"

    def __init__(self, strategy=None, *, size: Size = 0.01, **options: Any):
        super().__init__(strategy, **options)
        self.size = size

    def client_request(self, sent):
        """The size travels to the clients."""
        return Request({"size": self.size})


@part(half="noisy")
class Half(Method):
    """What a client does: torch's generator is seeded for the round, so that a run repeats."""

    def begin(self, job, received, state):
        """Each gradient with noise of the size that was sent."""
        size = received.value("size")
        return Plan(corrections=(lambda gs, ws: [g + size * torch.randn_like(g) for g in gs],))
