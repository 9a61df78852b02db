"""The proxy set of a run at the server, with a network: what rules that use examples there get.

They are FedLAW, which learns from them, and Validated, which measures on them; they know no network.
`fedstride/tasks/proxy.py` chooses the examples. For a gradient the network is in train mode, as in the code of
FedLAW's authors: BatchNorm and dropout act as in training; normalisations that a run has frozen (`train`) stay in
eval mode, as at the clients. For a loss it is in eval mode.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fedstride.arrays.named import Arrays, host
from fedstride.tasks import data
from fedstride.tasks.data import Data, WithProxy
from fedstride.tasks.forms.memory_layout import place
from fedstride.tasks.goals import goal_of
from fedstride.tasks.models import networks_by_name, numerics
from fedstride.tasks.models.frozen_choice import fixed_norms, freeze_, split
from fedstride.tasks.models.tensors import Examples, buffer_names, load_arrays, pick_device, to_arrays
from fedstride.tasks.models.torch_seeds import seeded
from fedstride.tasks.proxy import TEST
from strategies.fedlaw import Gradient

from ..config.schema import Config
from .central import CentralEvaluation

BATCH = 256
"""Examples whose losses are computed at once: more than in an evaluation, as each round measures many models."""


class ServerProxy:
    """A `strategies.fedlaw.Proxy` and a `strategies.validated.ProxyExamples`.

    Its network is its own: another run may measure with that of the evaluation. The device is not used before the
    first gradient or loss, because a process that has used CUDA cannot be copied.
    """

    def __init__(self, config: Config, source: WithProxy, evaluation: CentralEvaluation) -> None:
        self._members = source.proxy
        self._x, self._y = source.proxy_examples
        self._goal = goal_of(source.spec, config.task.loss, config.task.metrics)
        self._model = networks_by_name.build(config.model, source.spec.inputs, source.spec.outputs, config.seed)
        parts = split(self._model, config.train)
        freeze_(self._model, parts)
        self._fixed = list(fixed_norms(self._model, parts))
        self._buffers = [name for name in buffer_names(self._model) if name in set(parts.sent)]
        self._evaluation, self._frozen = evaluation, evaluation.frozen
        self._device, self._threads = pick_device(config.client.device), config.client.threads
        self._examples: Examples | None = None

    def __len__(self) -> int:
        """The number of proxy examples."""
        return len(self._members)

    def gradient(self, model: Arrays, positions: np.ndarray, seed: int) -> Gradient:
        """Mean loss and gradient of the network with these arrays on the examples at these positions."""
        with numerics.on_threads(self._threads):
            return self._gradient(model, positions, seed)

    def _gradient(self, model: Arrays, positions: np.ndarray, seed: int) -> Gradient:
        network = self._with(model)
        network.train()
        for module in self._fixed:
            module.training = False
        named = {name: w for name, w in network.named_parameters() if w.requires_grad}
        x, y = self._prepared().batch(positions)
        with seeded(seed, self._device):
            loss = self._goal.loss(network(x), y)
            gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True, materialize_grads=True)
        parameters = {name: host(g) for name, g in zip(named, gradients, strict=True)}
        # A parameter that the network itself does not train has no gradient.
        rest = {name: np.zeros_like(a) for name, a in model.items() if name not in {*parameters, *self._buffers}}
        return Gradient(float(loss.detach()), parameters | rest, to_arrays(network, self._buffers))

    def losses(self, model: Arrays) -> np.ndarray:
        """Loss of the network with these arrays on each example, in eval mode: float64 (examples,)."""
        with numerics.on_threads(self._threads), torch.no_grad():
            network = self._with(model)
            network.eval()
            batches = self._prepared().in_order(BATCH)
            losses = [self._goal.loss(network(x), y, reduction="none") for x, y in batches]
            return torch.cat(losses).double().cpu().numpy()

    def _with(self, model: Arrays) -> torch.nn.Module:
        """The network with these arrays, on the device."""
        network = place(self._model, self._device)
        load_arrays(network, {**self._frozen, **model})
        return network

    def _prepared(self) -> Examples:
        """The examples as the run prepares them; its statistics may be known only after the roll call."""
        spec = self._evaluation.spec
        if self._examples is None or self._examples.spec is not spec:
            self._examples = Examples(
                self._x, self._y, spec, device=self._device, members=self._members, goal=self._goal
            )
        return self._examples


def proxy_of(config: Config, evaluation: CentralEvaluation) -> ServerProxy | None:
    """The proxy set of a run; None if it has none."""
    source = data.load(config.task)
    return ServerProxy(config, source, evaluation) if isinstance(source, WithProxy) else None


def note_of(source: Data, learning: Sequence[str]) -> str:
    """For the user: which examples the proxy set has taken, and which of the strategies uses it.

    Empty without a proxy set.
    """
    if not isinstance(source, WithProxy):
        return ""
    which = f"{len(source.proxy)} {'test' if source.taken_from == TEST else 'training'} examples"
    who = f"strategy={learning[0]} uses this extra data" if learning else "no part of this run uses them"
    return f"{which} are the server's proxy set (task.proxy={source.taken_from}): {who}"
