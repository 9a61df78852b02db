"""The interface of methods on the client.

    begin(job, received, state) -> Plan                      before local training
    end(job, plan, result)      -> (Returned, new state)     after local training

Client rules, objectives and client halves of server rules are methods. (A client half is the code that a server
rule needs on the client.) An object is created for each round, and `begin` can store values in it for `end`.
Values for later rounds belong in the state. `combined_methods.py` combines the plans, and `loop.py` executes the
combined plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import nn

from fedstride.arrays.named import host, is_floating
from fedstride.arrays.on_device import tensor_of
from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.settings import Plain
from fedstride.tasks.models.tensors import Examples

from ..registry import Training
from . import batches, stackable_parts
from .step import NO_FACTORS, Factors

Tensors = Sequence[torch.Tensor]
"""One tensor for each trainable parameter, in the network's order."""

Correction = Callable[[Tensors, Tensors], Tensors]
"""(gradients, parameters) -> gradients. It must not write into the gradients, because autograd can return the same
tensor for two parameters. What it returns is not needed after the step, so the next one may overwrite it."""

Logits = Callable[[torch.Tensor], torch.Tensor]
"""Logits -> the logits of which the loss of training is taken, of the same shape."""

LossTerm = Callable[[nn.Module, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(model, inputs, targets, outputs) -> scalar, added to the mean loss of the mini-batch."""

State = Mapping[str, np.ndarray | Plain]
"""The values that a method of one client keeps for the next round, without nesting; empty if there are none."""


@dataclass(frozen=True)
class Job:
    """One client's part of one round."""

    client_id: int  # the partition id; the node id of a node with its own data and without a partition id
    server_round: int  # from 1
    seed: int  # of the run
    client: Training
    examples: Examples
    model: nn.Module  # with the received weights in `begin`, with the trained weights in `end`
    device: torch.device
    min_rows: int = field(default=1, kw_only=True)  # the smallest number of examples of which something is said

    @property
    def lr(self) -> float:
        """The learning rate eta of this round."""
        return self.client.lr * self.client.lr_decay ** (self.server_round - 1)

    @cached_property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The trainable parameters by name, in the network's order. Positions in a Plan refer to this order."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def copies(self) -> list[torch.Tensor]:
        """Copies of the current trainable parameters; in `begin` these are the received ones, w^t."""
        return [parameter.detach().clone() for parameter in self.parameters.values()]

    def zeros(self) -> list[torch.Tensor]:
        """A tensor of zeros for each trainable parameter, of the same shape, dtype and device."""
        return [torch.zeros_like(parameter) for parameter in self.parameters.values()]

    def tensors(self, arrays: Mapping[str, Any], what: str) -> list[torch.Tensor]:
        """Named arrays as tensors with dtypes, devices and layouts of the trainable parameters, in their order.

        Raises ConfigError, with `what` in the message, if names or shapes differ from those of the trainable
        parameters, or an array does not contain floats in native byte order.
        """
        different = min(set(arrays) ^ set(self.parameters), default=None)
        if different is not None:
            where = "is not a trainable parameter" if different in arrays else "is missing"
            raise ConfigError(
                f"{what} does not fit this client's network: {different!r} {where}; server and clients must build "
                "the same model"
            )
        for name, parameter in self.parameters.items():
            if np.shape(arrays[name]) != tuple(parameter.shape):
                raise ConfigError(
                    f"{what}: {name!r} has shape {np.shape(arrays[name])}, but the parameter has "
                    f"{tuple(parameter.shape)}; server and clients must build the same model"
                )
            array = np.asarray(arrays[name])
            if not (is_floating(array) and array.dtype.isnative):
                raise ConfigError(
                    f"{what}: {name!r} has dtype {array.dtype}, but must be floats in native byte order"
                )
        return [torch.empty_like(p).copy_(tensor_of(arrays[name])) for name, p in self.parameters.items()]

    def arrays(self, tensors: Tensors) -> dict[str, np.ndarray]:
        """Tensors, one for each trainable parameter, as named arrays with the parameters' dtypes."""
        named = zip(self.parameters.items(), tensors, strict=True)
        return {name: host(tensor.to(p.dtype)).copy() for (name, p), tensor in named}


@dataclass(frozen=True)
class Received:
    """The values and arrays that the server sent for one method, in addition to the model."""

    method: str
    values: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)  # read-only, by parameter

    def value(self, name: str) -> Any:
        """A plain value. Raises ConfigError if it was not sent."""
        return self._found(self.values, name)

    def array(self, name: str) -> Mapping[str, np.ndarray]:
        """A record of arrays, by parameter name. Raises ConfigError if it was not sent."""
        record: Mapping[str, np.ndarray] = self._found(self.arrays, name)
        return record

    def _found(self, sent: Mapping[str, Any], name: str) -> Any:
        if name not in sent:
            raise ConfigError(
                f"the message does not contain {wire.of_half(self.method, name)}, which {self.method} needs; "
                "run the same version of fedstride on server and clients"
            )
        return sent[name]


@dataclass(frozen=True)
class Plan:
    """A method's changes to local training; a field that is None or empty changes nothing.

    Only one method of a round can set `factors`, `step_factors`, `batches`, `displacement` or `logits`.
    Corrections of several methods are applied one after the other, and their loss terms and pulls are added.
    """

    factors: Factors | None = None  # of the rate, for each neuron
    step_factors: Sequence[float] | None = None  # of the rate, one for each step; they multiply `factors` (A4-8)
    batches: Iterable[np.ndarray] | None = None  # for each step the positions of its examples, int64
    displacement: Tensors | None = None  # d: after each optimiser step, w <- w - (the step's rate) d
    logits: Logits | None = None  # the change of the logits before the loss; figures are those of the logits
    corrections: tuple[Correction, ...] = ()
    loss_terms: tuple[LossTerm, ...] = ()
    pull: stackable_parts.Pull | None = None  # to a point; it is added to the corrected gradient of each step
    contexts: tuple[AbstractContextManager[object], ...] = ()  # entered before the first step, left after the last

    @property
    def needs_own_client(self) -> str | None:
        """What of this plan cannot be computed for several clients at once; None if all can."""
        if self.loss_terms:
            return "a term of the loss"
        if self.contexts:
            return "a context of the training"
        if not all(isinstance(correction, stackable_parts.Correction) for correction in self.corrections):
            return "a correction of the gradient of a type other than Correction"
        if self.logits is not None and not isinstance(self.logits, stackable_parts.LogitsChange):
            return "a change of the logits of a type other than LogitsChange"
        return None

    @property
    def neuron_factors(self) -> Factors:
        """The factors for each neuron; empty if no method set them."""
        return NO_FACTORS if self.factors is None else self.factors


def steps(job: Job, plan: Plan) -> Iterator[tuple[np.ndarray, float]]:
    """Mini-batch and rate of each step of the round. The rate is eta, times the step's factor if the plan has one.

    If the plan has no batches, these are `local_epochs` passes over the client's examples. Raises ConfigError if
    there are more mini-batches than step factors.
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
            raise ConfigError(f"the plan has step_factors for {len(factors or ())} steps, but more mini-batches")
        yield batch, rate


@dataclass(frozen=True)
class Result:
    """The result of local training."""

    loss: float  # mean loss of the examples, each measured before the step that uses it
    accuracy: float | None  # share of correct predictions, measured in the same way; None: there are no classes
    rates: Sequence[float]  # the rate of each optimiser step that was taken

    @property
    def steps(self) -> int:
        """The number of optimiser steps."""
        return len(self.rates)

    @property
    def rate_sum(self) -> float:
        """The sum of the rates; times an element's factor it is H_k of SC2."""
        whole = 0.0
        for rate in self.rates:  # from Python 3.12 on, sum() has other last digits
            whole += rate
        return whole


@dataclass(frozen=True)
class Returned:
    """What a method sends to the server in addition to the model: arrays by record and parameter, and metrics."""

    arrays: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


class ClientMethod(Protocol):
    """A method of the client. An object is created for each round."""

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """The plan for this round. `state`: from `end` of the last accepted round; empty in the first round.

        Raises ConfigError for received values that are not valid.
        """
        ...

    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        """The values for the server, and the new state. `plan`: the combined plan of all methods of the round."""
        ...


class Method:
    """Base class of methods. It changes nothing, returns nothing and keeps no state."""

    needs_own_client: ClassVar[str | None] = None
    """What of this method's plans cannot be computed for several clients at once, if that is known beforehand."""

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """Return an empty plan."""
        return Plan()

    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        """Return nothing for the server and an empty state."""
        return Returned(), {}
