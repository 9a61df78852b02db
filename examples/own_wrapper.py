"""A user-defined wrapper with a client half: with any strategy, clients add noise to their gradients.

A client half is the code that a server rule or wrapper needs on the client.

fedstride run parts=examples/own_wrapper.py strategy=fedavg+noisy strategy.size=0.01
"""

from typing import Annotated, Any

import torch

from fedstride import Method, Plan, Request, Setting, Wrapper, part

Size = Annotated[float, Setting("standard deviation of the noise", least=0)]


@part(strategy="noisy")
class Noisy(Wrapper):
    """Clients of any strategy train with noisy gradients."""

    half = "noisy"

    def __init__(self, strategy=None, *, size: Size = 0.01, **options: Any):
        super().__init__(strategy, **options)
        self.size = size

    def client_request(self, sent):
        """Send the size to the clients."""
        return Request({"size": self.size})


@part(half="noisy")
class Half(Method):
    """The client half. torch's generator is seeded for the round, so runs are reproducible."""

    def begin(self, job, received, state):
        """Add noise of the received size to each gradient."""
        size = received.value("size")
        return Plan(corrections=(lambda gs, ws: [g + size * torch.randn_like(g) for g in gs],))
