"""A user-defined client rule: the learning rate rises over the first mini-batches of each round.

fedstride run parts=examples/own_client.py client=warmup client.first=5
"""

from dataclasses import dataclass
from typing import Annotated

from fedstride import Method, Plan, Setting, part
from fedstride.errors import require


@part(client="warmup")
@dataclass
class Warmup(Method):
    """The learning rate rises in equal steps over the first mini-batches of each round."""

    first: Annotated[int, Setting("number of mini-batches until the full rate", least=1)] = 4

    def begin(self, job, received, state):
        """The rate of mini-batch j is multiplied by min(1, (j + 1) / first)."""
        size, client = len(job.examples), job.client
        require(client.local_steps is None, "client.local_steps", client.local_steps, "null: warmup counts epochs")
        steps = client.local_epochs * -(-size // client.batch_size)
        return Plan(step_factors=[min(1.0, (j + 1) / self.first) for j in range(steps)])
