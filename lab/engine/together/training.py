"""Trains several clients at once: their weights are stacked, and one tensor program does a step of all.

The clients have begun, and have the same `key` (`clients.py`). The mini-batches, rates and random draws of
each are those of training alone (`client_app/training.py`), which is the definition, except that dropout has other
draws on a GPU. Sums are in another order, so the results differ in the last digits of float32.

The forward pass is mapped over the clients (`torch.func.vmap`); `functions.py` has what torch cannot
map. The loss of all clients is the sum of theirs, and its gradient with respect to the weights of one client is
that client's own. The step is elementwise, so `step.py` and the pieces of a plan do it for all clients.
Clients are sorted by their number of steps, and those that have finished are left out of the next step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from client_app import pieces
from client_app.method import Plan, Result
from client_app.stages import dropout_seed
from client_app.step import displace_, sgd_step_
from fedstride.tasks import numerics
from fedstride.tasks.freezing import fixed_norms
from fedstride.tasks.spec import Target

from .batches import Batch, Batches, mean_losses
from .clients import Started, Trained, Weights
from .draws import CountedDraws
from .functions import Draws, Functions, GeneratorDraws

Named = Mapping[str, torch.Tensor]


def train_together(clients: Sequence[Started], only_steps: int | None = None) -> list[Trained]:
    """Train clients with the same key; the results are in their order. `only_steps`: at most this number."""
    order = sorted(range(len(clients)), key=lambda i: -len(clients[i].steps))
    training = _Training([clients[i] for i in order], only_steps)
    training.run()
    found = dict(zip(order, training.results(), strict=True))
    return [found[i] for i in range(len(clients))]


class _Training:
    """The training of clients that are sorted by their number of steps, the largest first."""

    def __init__(self, clients: Sequence[Started], only_steps: int | None) -> None:
        self.clients, job = clients, clients[0].job
        self.plans = [client.begun.plan for client in clients]
        self.steps = [list(client.steps[:only_steps]) for client in clients]
        self.batches = Batches([c.job for c in clients], [[p for p, _ in each] for each in self.steps])
        self.weights = stacked_weights([client.weights for client in clients])
        self.random = _random_of(clients)
        self.network = Network(job.model, fixed_norms(job.model, job.parts))
        self.velocity: list[torch.Tensor | None] = [None] * len(self.weights.parameters)
        self.corrections = [pieces.stacked(each) for each in _columns([plan.corrections for plan in self.plans])]
        self.logits = _stacked([plan.logits for plan in self.plans])
        self.pull = _stacked([plan.pull for plan in self.plans])
        self.factors = _factors(self.plans, list(self.weights.parameters.values()))
        self.displacement = [
            torch.stack(list(each)) for each in _columns([plan.displacement or () for plan in self.plans])
        ]
        self.losses = torch.zeros(len(clients), dtype=torch.float64, device=job.device)
        self.right = torch.zeros(len(clients), dtype=torch.int64, device=job.device)
        self.classifies = job.examples.spec.target is Target.CLASS

    def run(self) -> None:
        """All steps of all clients."""
        with numerics.products_in(self.clients[0].job.client.precision):
            for number in range(len(self.steps[0])):
                self._step(number, sum(len(each) > number for each in self.steps))

    def _step(self, number: int, count: int) -> None:
        """One step of the first clients, which all have one."""
        job, rate = self.clients[0].job, self.steps[0][number][1]
        batch = self.batches.step(number)
        parameters = {n: p[:count].detach().requires_grad_() for n, p in self.weights.parameters.items()}
        buffers = {name: buffer[:count] for name, buffer in self.weights.buffers.items()}
        outputs = self.network(parameters, buffers, batch, self.random.draws(number, batch))
        loss, minimised = self._losses(outputs, batch)
        own = list(parameters.values())
        gradients: Any = torch.autograd.grad(minimised.sum(), own, allow_unused=True, materialize_grads=True)
        factors = {i: factor[:count] for i, factor in self.factors.items()}
        with torch.no_grad():
            for correct in self.corrections:
                gradients = pieces.first(correct, count)(gradients, own)
        velocity = [None if v is None else v[:count] for v in self.velocity]
        settings = job.client
        sgd_step_(
            own,
            gradients,
            velocity,
            lr=rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            factors=factors,
            pull=None if self.pull is None else pieces.first(self.pull, count),
        )
        self.velocity = velocity
        if self.displacement:
            displace_(own, [d[:count] for d in self.displacement], lr=rate, factors=factors)
        self.losses[:count] += loss.detach().double() * batch.mask.sum(1)
        if self.classifies:
            self.right[:count] += ((outputs.detach().argmax(2) == batch.y) & batch.mask).sum(1)

    def _losses(self, outputs: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Of each client, the task's loss of its mini-batch, and the loss that its plan minimises."""
        of_task = self.clients[0].job.examples.goal.loss
        if self.logits is None:
            loss = mean_losses(of_task, outputs, batch)
            return loss, loss
        changed = pieces.of_each_client(pieces.first(self.logits, len(outputs)), outputs)
        return mean_losses(of_task, outputs.detach(), batch), mean_losses(of_task, changed, batch)

    def results(self) -> list[Trained]:
        """The result of each client."""
        losses, right = self.losses.tolist(), self.right.tolist()
        weights = [{name: each.unbind() for name, each in kind.items()} for kind in _both(self.weights)]
        found = []
        for i, taken in enumerate(self.steps):
            seen = sum(len(positions) for positions, _ in taken)
            mean = losses[i] / seen
            result = Result(
                loss=mean if math.isfinite(mean) else math.nan,
                accuracy=right[i] / seen if self.classifies else None,
                steps=len(taken),
                rate_sum=sum(rate for _, rate in taken),
            )
            own = Weights(*({name: rows[i] for name, rows in kind.items()} for kind in weights))
            found.append(Trained(result, own, self.random.state(i)))
        return found


class Network:
    """A network in training mode, whose forward pass is that of several clients.

    `fixed`: modules that stay in eval mode.
    """

    def __init__(self, model: nn.Module, fixed: Iterable[nn.Module]) -> None:
        self.model, self.fixed = model, list(fixed)

    def __call__(self, parameters: Named, buffers: Named, batch: Batch, draws: Draws) -> torch.Tensor:
        """The outputs (clients, longest, ...) with stacked weights. The buffers change."""
        self.model.train()
        for module in self.fixed:
            module.training = False

        def forward(p: dict[str, Any], b: dict[str, Any], x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            with Functions(mask, draws, b, filled=batch.filled).in_place():
                outputs: torch.Tensor = torch.func.functional_call(self.model, (p, b), (x,))
                return outputs

        outputs: torch.Tensor = torch.func.vmap(forward)(dict(parameters), dict(buffers), batch.x, batch.mask)
        return outputs


def stacked_weights(each: Sequence[Weights]) -> Weights:
    """The weights of several clients, with the clients as first axis; copies."""
    return Weights(
        *(
            {name: torch.stack([one[name] for one in column]) for name in column[0]}
            for column in zip(*map(_both, each), strict=True)
        )
    )


def _both(weights: Weights) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    return weights.parameters, weights.buffers


def _columns(rows: Sequence[Sequence[Any]]) -> list[Any]:
    return list(zip(*rows, strict=True))


def _stacked(each: Sequence[Any]) -> Any:
    """One piece for all clients; None if none has one. Clients with the same key have it all, or none."""
    return None if each[0] is None else pieces.stacked(each)


def _factors(plans: Sequence[Plan], parameters: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
    """Factors of the rates, (clients, ...), by position of the parameter; 1 where a client has none."""
    found = {}
    for i in sorted({i for plan in plans for i in plan.neuron_factors}):
        own = [plan.neuron_factors.get(i) for plan in plans]
        dims = parameters[i].dim() - 1
        shape = next((1,) * (dims - f.dim()) + f.shape for f in own if f is not None)
        one = parameters[i].new_ones(())
        found[i] = torch.stack([one.expand(shape) if f is None else f.reshape(shape) for f in own])
    return found


class _Generators:
    """The draws of clients on a processor: those of training alone, from a generator for each."""

    def __init__(self, clients: Sequence[Started]) -> None:
        self._each = [torch.Generator() for _ in clients]
        for generator, client in zip(self._each, clients, strict=True):
            generator.set_state(client.random)

    def draws(self, number: int, batch: Batch) -> Draws:
        """Those of a step."""
        return GeneratorDraws(self._each[: len(batch.counts)], batch.counts, batch.longest)

    def state(self, client: int) -> torch.Tensor:
        """That of torch's generator after the training of this client."""
        return self._each[client].get_state()


class _Keys:
    """The draws of clients on a GPU, whose generators draw other bits in any case: from a counter."""

    def __init__(self, clients: Sequence[Started], device: torch.device) -> None:
        self._keys = torch.tensor([dropout_seed(client.job) for client in clients], device=device)
        self._states = [client.random for client in clients]

    def draws(self, number: int, batch: Batch) -> Draws:
        """Those of a step."""
        return CountedDraws(self._keys[: len(batch.counts)], number)

    def state(self, client: int) -> torch.Tensor:
        """That of torch's generator, which has drawn nothing."""
        return self._states[client]


def _random_of(clients: Sequence[Started]) -> _Generators | _Keys:
    device = clients[0].job.device
    return _Generators(clients) if device.type == "cpu" else _Keys(clients, device)
