"""The one seam of clients: what a method may do in a round.

    begin(job, received, state) -> Plan                       before local training
    end(job, plan, result)      -> what goes back, what stays after it

A client rule, an objective and a client's half of a server rule are all methods. An object is made for one
round: what `begin` finds out for `end` it keeps in itself, what lasts longer is its state. Plans are combined
by `composition.py` and carried out by `training.py`. No method is known here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from fedstride import wire
from fedstride.errors import ConfigError
from fedstride.settings import Plain
from fedstride.tasks.tensors import Examples

from . import batches
from .parts import Training
from .step import NO_FACTORS, Factors

Tensors = Sequence[torch.Tensor]
"""A tensor for each trainable parameter, in the network's order."""

Correction = Callable[[Tensors, Tensors], Tensors]
"""(gradients, parameters) -> gradients: new tensors, since autograd may hand out one tensor twice."""

LossTerm = Callable[[nn.Module, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(model, images, labels, logits) -> scalar, added to the mean cross-entropy of the mini-batch."""

State = Mapping[str, np.ndarray | Plain]
"""What a method of one client keeps from round to round, flat; empty where it keeps nothing."""


@dataclass(frozen=True)
class Job:
    """One client's part of one round."""

    client_id: int  # the partition id; the node id where a node with its own data has none
    server_round: int  # from 1
    seed: int  # the run's
    client: Training
    examples: Examples
    model: nn.Module  # holds the received weights in `begin`, the trained ones in `end`
    device: torch.device

    @property
    def lr(self) -> float:
        """eta of this round."""
        return self.client.lr * self.client.lr_decay ** (self.server_round - 1)

    @cached_property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The trainable parameters by name, in the network's order: a position in a Plan is one in here."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def copies(self) -> list[torch.Tensor]:
        """Copies of the trainable parameters as they are now; in `begin`, of the received ones w^t."""
        return [parameter.detach().clone() for parameter in self.parameters.values()]

    def zeros(self) -> list[torch.Tensor]:
        """A zero for each trainable parameter."""
        return [torch.zeros_like(parameter) for parameter in self.parameters.values()]

    def tensors(self, arrays: Mapping[str, Any], what: str) -> list[torch.Tensor]:
        """Named arrays as tensors of the parameters' dtypes, on their device.

        Raises ConfigError, naming `what`, where names or shapes are not those of the trainable parameters, or
        there are no plain real numbers in them.
        """
        strange = min(set(arrays) ^ set(self.parameters), default=None)
        if strange is not None:
            raise ConfigError(
                f"{what} and the trainable parameters differ in {strange!r}; server and clients must build the "
                "same model"
            )
        for name, parameter in self.parameters.items():
            if np.shape(arrays[name]) != tuple(parameter.shape):
                raise ConfigError(
                    f"{what}: {name!r} has shape {np.shape(arrays[name])}, the parameter {tuple(parameter.shape)}"
                )
            kind = np.asarray(arrays[name]).dtype
            if kind.kind != "f" or not kind.isnative:
                raise ConfigError(f"{what}: {name!r} holds {kind}, allowed are real numbers in native byte order")
        return [torch.tensor(arrays[name]).to(p.device, p.dtype) for name, p in self.parameters.items()]

    def arrays(self, tensors: Tensors) -> dict[str, np.ndarray]:
        """Tensors, one a trainable parameter, as named arrays of the parameters' dtypes."""
        named = zip(self.parameters.items(), tensors, strict=True)
        return {name: tensor.detach().to(p.dtype).cpu().numpy().copy() for (name, p), tensor in named}


@dataclass(frozen=True)
class Received:
    """What the server sent for the method of this name, beside the model."""

    method: str
    values: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)  # read-only, by parameter

    def value(self, name: str) -> Any:
        """A plain value. Raises ConfigError where it was not sent."""
        return self._found(self.values, name)

    def array(self, name: str) -> Mapping[str, np.ndarray]:
        """A record of arrays, by parameter name. Raises ConfigError where it was not sent."""
        found: Mapping[str, np.ndarray] = self._found(self.arrays, name)
        return found

    def _found(self, sent: Mapping[str, Any], name: str) -> Any:
        if name not in sent:
            raise ConfigError(
                f"the message has no {wire.of_half(self.method, name)}, which {self.method} needs; "
                "run the same version of fedstride on server and clients"
            )
        return sent[name]


@dataclass(frozen=True)
class Plan:
    """What a method asks of local training; None where it has nothing to say.

    The first four can be said by one method of a round only; corrections act one after the other, terms of
    the loss add up.
    """

    factors: Factors | None = None  # of the rate, per neuron
    step_factors: Sequence[float] | None = None  # of the rate, one a step; multiply those per neuron (A4-8)
    batches: Iterable[np.ndarray] | None = None  # positions among the client's examples, int64, one a step
    displacement: Tensors | None = None  # d: after each optimiser step, w <- w - (the step's rate) d
    corrections: tuple[Correction, ...] = ()
    loss_terms: tuple[LossTerm, ...] = ()

    @property
    def neuron_factors(self) -> Factors:
        """The factors per neuron; none where nobody asked for any."""
        return NO_FACTORS if self.factors is None else self.factors


def steps(job: Job, plan: Plan) -> Iterator[tuple[np.ndarray, float]]:
    """Mini-batch and rate of each step of the round: eta, times the step's factor where there is one.

    Without batches in the plan these are `local_epochs` passes over the client's examples. Raises ConfigError
    where there are more mini-batches than factors.
    """
    positions = plan.batches
    if positions is None:
        positions = batches.epochs(
            len(job.examples),
            job.client.batch_size,
            job.client.local_epochs,
            seed=job.seed,
            server_round=job.server_round,
            client=job.client_id,
        )
    factors = plan.step_factors
    rates = itertools.repeat(job.lr) if factors is None else (job.lr * factor for factor in factors)
    for batch in positions:
        rate = next(rates, None)
        if rate is None:
            raise ConfigError(f"the round has factors for {len(factors or ())} steps, but more mini-batches")
        yield batch, rate


@dataclass(frozen=True)
class Result:
    """What local training says of itself."""

    loss: float  # mean cross-entropy of the examples as they were met, each with the model of that moment
    accuracy: float
    steps: int
    rate_sum: float  # of the steps really taken; an element's own is this times its factor (H_k of SC2)


@dataclass(frozen=True)
class Returned:
    """What goes back beside the model: arrays by record and parameter, and metrics."""

    arrays: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


class ClientMethod(Protocol):
    """A method, made for each round."""

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """What this round needs; `state` is what `end` gave in the last accepted round, empty at the start.

        Raises ConfigError for what was sent and cannot be.
        """
        ...

    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        """What goes back and what stays; `plan` is that of all methods of the round."""
        ...


class Method:
    """A method that does nothing; to derive from."""

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """An empty plan."""
        return Plan()

    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        """Nothing goes back, nothing stays."""
        return Returned(), {}
