"""A client that trains together with others, before and after that: begun, and with its reply.

`training.py` trains several of them. Here is what each does alone, as in `stages.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message
from torch import nn

from client_app.from_message import Work
from client_app.stages import Begun, Loaded, begin, dropout_seed, load_model, reply
from client_app.training import stackable_parts
from client_app.training.method import Job, Result, steps
from fedstride.arrays.named import Arrays, host
from fedstride.errors import DataError
from fedstride.messages import wire
from fedstride.messages.records import array_records
from fedstride.tasks.models.tensors import to_arrays, to_tensors
from fedstride.tasks.models.torch_seeds import seeded


@dataclass(frozen=True)
class Weights:
    """What training changes: trainable parameters and buffers, by name, of one client or stacked."""

    parameters: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]


@dataclass(frozen=True)
class Started:
    """A client that can be trained together with others."""

    begun: Begun
    steps: Sequence[tuple[np.ndarray, float]]
    weights: Weights  # those received
    random: torch.Tensor  # state of torch's generator on the device, after all methods have begun

    @property
    def job(self) -> Work:
        """Its job."""
        return self.begun.job


@dataclass(frozen=True)
class Trained:
    """The result of a client's training."""

    result: Result
    weights: Weights
    random: torch.Tensor

    @cached_property
    def arrays(self) -> dict[str, torch.Tensor]:
        """All weights, by name."""
        return {**self.weights.parameters, **self.weights.buffers}

    def model(self, names: Iterable[str], stays: bool) -> Arrays:
        """These weights, in this order: on the device, or as numpy arrays.

        On the device they are views of one tensor with the weights of all clients that trained together: who keeps
        one view keeps the memory of all.
        """
        arrays = self.arrays
        return {name: arrays[name] if stays else host(arrays[name]).copy() for name in names}


class ReceivedWeights:
    """The weights that came with the messages of clients that are begun one after the other.

    They often come in one record. Then the network has them already, unless a method of the client before may have
    changed it: the project's own do not, and of a user's nobody knows.
    """

    def __init__(self) -> None:
        self._weights: dict[int, Weights] = {}  # by the identity of the record
        self._loaded: Loaded | None = None  # the last ones
        self._in_network: tuple[int, int] | None = None  # the record and the network, if it surely has the weights

    def load(self, job: Work, message: Message) -> Loaded:
        """`stages.load_model`, which copies nothing if the network has the weights of the message."""
        record = id(array_records(message.content).get(wire.ARRAYS))
        has_them = self._in_network == (record, id(job.model))
        if has_them and self._loaded is not None:
            return self._loaded
        self._in_network = self._loaded = None  # loading may fail after some of the arrays
        loaded = load_model(job, message, loaded=has_them)
        self._loaded = None if job.parts.frozen else loaded  # frozen arrays come with some messages only
        self._in_network = record, id(job.model)
        if record not in self._weights:
            self._weights[record] = weights_of(job.model)
        return loaded

    def weights(self, begun: Begun) -> Weights:
        """Those with which the training of a client begins: the received ones, unless a method may change them."""
        assert self._in_network is not None
        if begun.methods.are_ours:
            return self._weights[self._in_network[0]]
        self._in_network = None
        return weights_of(begun.job.model)


def start(message: Message, context: Context, job: Work, received: ReceivedWeights) -> Started:
    """Begin a client; `received` has the weights of those that began before it.

    Raises DataError if the client has no step to do, and what its methods raise.
    """
    with seeded(dropout_seed(job), job.device):
        begun = begin(message, context, job, received.load)
        weights = received.weights(begun)
        planned = list(steps(job, begun.plan))
        if not planned:
            raise DataError("this client has no training examples")
        return Started(begun, planned, weights, _default_generator(job.device).get_state())


DERIVED = [name for name, value in vars(Job).items() if isinstance(value, cached_property)]


class _Later(Work):
    """A client's work whose network gets the trained weights when a method reads it. Most methods do not.

    `Composition.are_ours` says which methods it is for. `of` removes the attribute `model`. `Work` has no default
    for it, so Python then calls `__getattr__`, which loads the weights. The cached properties of `Job` (`DERIVED`)
    are removed too, since they may have been computed from the network.
    """

    @classmethod
    def of(cls, job: Work, trained: Trained) -> _Later:
        """This job after the training."""
        later = object.__new__(cls)
        later.__dict__.update(vars(job), _network=job.model, _trained=trained)
        for name in ("model", *DERIVED):
            later.__dict__.pop(name, None)
        return later

    def __getattr__(self, name: str) -> Any:
        """`model`, when it is read first."""
        if name != "model":
            raise AttributeError(f"a client's work has no {name!r}")
        network, trained = self.__dict__["_network"], self.__dict__["_trained"]
        _load(network, trained.weights)
        self.__dict__["model"] = network
        return network


def finish(started: Started, trained: Trained, since: float, *, stays: bool = False) -> Message:
    """The client's reply. `since`: when it began, on the clock of `time.perf_counter`.

    `stays`: whether the model stays on the device, for a server in this process.
    """
    begun, job = started.begun, started.job
    if begun.methods.are_ours and begun.sent.keys() <= trained.arrays.keys():
        return reply(
            replace(begun, job=_Later.of(job, trained)),
            trained.result,
            since,
            lambda: trained.model(begun.sent, stays),
        )
    with seeded(dropout_seed(job), job.device):
        _default_generator(job.device).set_state(trained.random)
        _load(job.model, trained.weights)
        taken = to_tensors if stays else to_arrays
        return reply(begun, trained.result, since, lambda: taken(job.model, begun.sent))


def key(started: Started) -> Hashable:
    """What clients that are trained together have in common."""
    job, plan, examples = started.job, started.begun.plan, started.job.examples
    pieces: list[Any] = [*plan.corrections, plan.logits, plan.pull]
    made_of = [piece for piece in pieces if isinstance(piece, stackable_parts.Stackable)]
    return (
        id(job.model),
        (job.lr, job.client.momentum, job.client.weight_decay),
        None if plan.step_factors is None else tuple(plan.step_factors),
        plan.displacement is None,
        tuple(stackable_parts.signature(piece) for piece in made_of),
        job.augmentation,
        (examples.spec.text, id(examples.goal.loss)),
        (examples.x.dtype, examples.x.shape[1:], examples.y.dtype, examples.y.shape[1:]),
    )


def weights_of(model: nn.Module) -> Weights:
    """Copies of the trainable parameters and of all buffers."""
    return Weights(
        {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad},
        {name: buffer.detach().clone() for name, buffer in model.named_buffers()},
    )


def size_of(weights: Weights) -> int:
    """The bytes of these weights."""
    return sum(tensor.nbytes for tensors in (weights.parameters, weights.buffers) for tensor in tensors.values())


@torch.no_grad()
def _load(model: nn.Module, weights: Weights) -> None:
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    for name, value in weights.parameters.items():
        parameters[name].copy_(value)
    for name, value in weights.buffers.items():
        buffers[name].copy_(value)


def _default_generator(device: torch.device) -> torch.Generator:
    if device.type != "cuda":
        return torch.default_generator
    torch.cuda.init()  # type: ignore[no-untyped-call]
    number = torch.cuda.current_device() if device.index is None else device.index
    generator: torch.Generator = torch.cuda.default_generators[number]
    return generator
