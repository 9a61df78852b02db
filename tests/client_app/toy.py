"""The worked example T2 of docs/methods.md: one parameter, rate 0.1, two steps, with the real training loop.

F_A = (w - 3)^2 and F_B = (w + 1)^2 / 2, so the gradients are 2 (w - 3) and w + 1; all in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import ConfigRecord, RecordDict
from torch import nn

from client_app import for_server_rules
from client_app.combined_methods import Composition, Member, RoundOutput
from client_app.registry import Training
from client_app.training.loop import train
from client_app.training.method import Job, Method, Plan, Received, State, steps
from fedstride.arrays.named import to_record
from fedstride.messages import wire
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.spec import Spec

Gradient = Callable[[torch.Tensor], torch.Tensor]
CPU = torch.device("cpu")


def gradient_a(w: torch.Tensor) -> torch.Tensor:
    """Of (w - 3)^2."""
    return 2.0 * (w - 3.0)


def gradient_b(w: torch.Tensor) -> torch.Tensor:
    """Of (w + 1)^2 / 2."""
    return w + 1.0


class Given(Method):
    """Replaces the gradient of the loss by a given gradient."""

    def __init__(self, gradient: Gradient) -> None:
        self.gradient = gradient

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        return Plan(corrections=(lambda gradients, parameters: [self.gradient(w.clone()) for w in parameters],))


class Rates(Method):
    """Sets a given factor for each neuron."""

    def __init__(self, factors: Any) -> None:
        self.factors = torch.tensor(factors, dtype=torch.float64)

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        return Plan(factors={0: self.factors})


class OneParameter(nn.Module):
    def __init__(self, w: Any) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(np.atleast_1d(w), dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1) * self.w.sum()


class Played(NamedTuple):
    w: np.ndarray
    output: RoundOutput

    @property
    def state(self) -> Mapping[str, Any]:
        """The new state of the last method."""
        return list(self.output.states.values())[-1]


def play(
    gradient: Gradient,
    w: Any,
    *methods: Method,
    half: str | None = None,
    state: State | None = None,
    values: Mapping[str, Any] | None = None,
    arrays: Mapping[str, Any] | None = None,
    momentum: float = 0.0,
    tau: int = 2,
) -> Played:
    """One client's round from w: the given methods, then the client half with received values and its state."""
    spec = Spec.images((1, 1, 2), 2, (0.0,), (1.0,))
    data = Examples(np.zeros((1, 1, 1, 2), np.uint8), np.zeros(1, int), spec, device=CPU)
    client = Training(lr=0.1, momentum=momentum, local_epochs=tau)
    model = OneParameter(w)
    job = Job(0, 1, 0, client, data, model, CPU)
    members = [Member("test", str(i), method) for i, method in enumerate((Given(gradient), *methods))]
    content = RecordDict()
    if half is not None:
        members.append(Member(for_server_rules.ROLE, half, for_server_rules.make(half)))
        sent = {wire.of_half(half, name): value for name, value in (values or {}).items()}
        content[wire.CONFIG] = ConfigRecord(sent)
        for name, value in (arrays or {}).items():
            content[wire.of_half(half, name)] = to_record({"w": np.atleast_1d(np.float64(value))})
    composition = Composition(members)
    plan = composition.begin(job, content, {members[-1].label: state or {}})
    result = train(model, data, steps(job, plan), plan, momentum=momentum)
    return Played(model.w.detach().numpy(), composition.end(job, plan, result))
