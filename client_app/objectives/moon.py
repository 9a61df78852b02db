"""MOON: model-contrastive learning (Li, He, Song, CVPR 2021), without a projection head (B-17).

    s_g = cos(z(w), z(w^t)) / tau,   s_p = cos(z(w), z(w_k^prev)) / tau
    l   = log(1 + exp(s_p - s_g)),   mean over the mini-batch                           (MO1)
    minimised: loss of the task + mu l                                                  (MO2)

z is the input of the last linear layer. w_k^prev is the model that this client returned in its last accepted
round, buffers included; the client keeps it. Gradients flow through z(w) only; the received and the previous model
are in eval mode. Without a previous model (the first participation, or a lost state) the term is left out (B-18).
With mu = 0 nothing is added or kept, so the result is bit-identical to FedAvg's.
"""

from __future__ import annotations

import torch
from torch import nn

from fedstride.arrays.on_device import tensor_of
from fedstride.errors import ConfigError
from fedstride.tasks.models.last_layer import Representations, last_layer, without_last_layer
from fedstride.tasks.models.tensors import array_names, to_arrays

from ..registry import MoonSettings
from ..training.method import Job, Method, Plan, Received, Result, Returned, State

SMALLEST_NORM = 1e-8
"""A smaller norm is replaced by this one in a cosine."""


def contrast(z: torch.Tensor, received: torch.Tensor, previous: torch.Tensor, temperature: float) -> torch.Tensor:
    """(MO1): the mean over the examples, from three representations of shape (n, d)."""
    return torch.logaddexp(
        torch.zeros((), dtype=z.dtype, device=z.device),
        (_cosine(z, previous) - _cosine(z, received)) / temperature,
    ).mean()


def _cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    norms = [torch.linalg.vector_norm(vectors, dim=1).clamp_min(SMALLEST_NORM) for vectors in (a, b)]
    cosine: torch.Tensor = (a * b).sum(1) / (norms[0] * norms[1])
    return cosine


class Moon(Method):
    """Adds the contrastive term, and keeps the trained model."""

    needs_own_client = "a term of the loss"

    def __init__(self, settings: MoonSettings) -> None:
        self.mu, self.temperature = settings.mu, settings.temperature

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """The term mu l, if the client has a previous model. Raises ConfigError without a last linear layer."""
        if self.mu == 0.0:
            return Plan()
        layer = last_layer(job.model, job.examples.spec.inputs)
        if not state:
            return Plan()
        self.received = without_last_layer(job.model, layer)
        self.previous = _loaded(without_last_layer(job.model, layer), state, _kept(job.model))
        self.current = Representations(layer)
        return Plan(loss_terms=(self.term,), contexts=(self.current,))

    def term(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """mu l of a mini-batch."""
        with torch.no_grad():
            others = self.received(x), self.previous(x)
        z, z_received, z_previous = (features.flatten(1) for features in (self.current.value, *others))
        return self.mu * contrast(z, z_received, z_previous, self.temperature)

    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        """Keep the trained model."""
        return Returned(), to_arrays(job.model, _kept(job.model)) if self.mu else {}


def _kept(model: nn.Module) -> list[str]:
    """The names of the arrays that a client keeps: all that can change."""
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    return [name for name in array_names(model) if name not in frozen]


def _loaded(features: nn.Module, state: State, names: list[str]) -> nn.Module:
    """The features with the arrays of a state, which also has those of the last layer."""
    tensors = features.state_dict()
    arrays = {name: tensor_of(array) for name, array in state.items()}
    if set(arrays) != set(names) or any(
        arrays[name].shape != tensors[name].shape for name in tensors if name in arrays
    ):
        raise ConfigError(
            "the state of moon does not fit this client's network; server and clients must build the same model"
        )
    features.load_state_dict({**tensors, **{name: arrays[name] for name in tensors if name in arrays}})
    return features
