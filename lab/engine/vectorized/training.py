"""Trains several clients at once: their weights are stacked, and one tensor program does a step of all.

The clients have begun, and have the same `key` (`clients.py`). The mini-batches, rates and random draws of
each are those of training alone (`client_app/training/loop.py`), which is the definition, except that dropout
has other draws on a GPU. Sums are in another order, so the results differ in the last digits of float32.

The forward pass is mapped over the clients (`torch.func.vmap`); `functions.py` has what torch cannot
map. The loss of all clients is the sum of theirs, and its gradient with respect to the weights of one client is
that client's own. The step is elementwise, so `step.py` and the pieces of a plan do it for all clients.
Clients are sorted by their number of steps, and those that have finished are left out of the next step.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import torch

from client_app.training import stackable_parts
from client_app.training.method import Plan, Result
from client_app.training.step import displace_, sgd_step_
from fedstride.tasks.models import numerics
from fedstride.tasks.models.frozen_choice import fixed_norms
from fedstride.tasks.spec import Target

from .batches import Batch, Batches, ChosenExamples, mean_losses
from .captured_graphs import Steps
from .client_draws import draws_of
from .clients import Started, Trained, Weights, key
from .network import Network


def train_together(
    clients: Sequence[Started], only_steps: int | None = None, kept: KeptTrainings | None = None
) -> list[Trained]:
    """Train clients with the same key; the results are in their order.

    `only_steps`: at most this number. `kept`: earlier trainings, whose memory and graphs are used again.
    """
    order = sorted(range(len(clients)), key=lambda i: -len(clients[i].steps))
    training = _Training([clients[i] for i in order], only_steps)
    if kept is not None:
        training = kept.in_place(training)
    training.run()
    trained = dict(zip(order, training.results(), strict=True))
    return [trained[i] for i in range(len(clients))]


class KeptTrainings:
    """The last trainings on a GPU. One of the same form is done in the memory of the earlier one.

    So its steps can be graphs. A training with examples that do not stay on the device, or with random changes
    that the processor draws, is not kept.
    """

    MOST = 2
    """Forms: the clients of a round can be divided into equal parts and a last one."""

    def __init__(self) -> None:
        self._trainings: dict[Hashable, _Training] = {}

    def in_place(self, new: _Training) -> _Training:
        """This training, in the memory of an earlier one if there is one."""
        if not new.can_be_kept:
            return new
        form = new.form
        training = self._trainings.pop(form, None)
        if training is None:
            training = new
            training.graphs = Steps()
        else:
            training.become(new)
        self._trainings[form] = training
        for old in list(self._trainings)[: -self.MOST]:
            del self._trainings[old]
        return training


class _Training:
    """The training of clients that are sorted by their number of steps, the largest first."""

    def __init__(self, clients: Sequence[Started], only_steps: int | None) -> None:
        self._of(clients, only_steps)
        job = self.job
        self.graphs: Steps | None = None
        self.weights = stacked_weights([client.weights for client in clients])
        self.random = draws_of(clients)
        self.network = Network(job.model, fixed_norms(job.model, job.parts))
        parameters = list(self.weights.parameters.values())
        self.velocity = (
            [torch.zeros_like(w) for w in parameters] if job.client.momentum else [None] * len(parameters)
        )
        self.corrections = [
            stackable_parts.stacked(column) for column in _columns([plan.corrections for plan in self.plans])
        ]
        self.logits = _stacked([plan.logits for plan in self.plans])
        self.pull = _stacked([plan.pull for plan in self.plans])
        self.factors = _factors(self.plans, parameters)
        self.displacement = [
            torch.stack(list(column)) for column in _columns([plan.displacement or () for plan in self.plans])
        ]
        self.losses = torch.zeros(len(clients), dtype=torch.float64, device=job.device)
        self.right = torch.zeros(len(clients), dtype=torch.int64, device=job.device)
        self.classifies = job.examples.spec.target is Target.CLASS

    def _of(self, clients: Sequence[Started], only_steps: int | None) -> None:
        """What is known of these clients besides tensors that a step reads or changes."""
        self.clients, self.job = clients, clients[0].job
        self.plans = [client.begun.plan for client in clients]
        self.steps = [list(client.steps[:only_steps]) for client in clients]
        self.batches = Batches([c.job for c in clients], [[p for p, _ in steps] for steps in self.steps])
        self.rates = [rate for _, rate in self.steps[0]]

    # -------------------------------------------------------- in the memory of an earlier one

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All tensors that a step reads or changes, but for its own inputs and the stored examples."""
        plans = [*self.corrections, *(piece for piece in (self.logits, self.pull) if piece is not None)]
        return [
            *self.weights.parameters.values(),
            *self.weights.buffers.values(),
            *(velocity for velocity in self.velocity if velocity is not None),
            *(
                tensor
                for piece in plans
                if isinstance(piece, stackable_parts.Stackable)
                for tensor in stackable_parts.tensors(piece)
            ),
            *self.factors.values(),
            *self.displacement,
            *(self.losses, self.right),
            *self.random.tensors,
        ]

    @property
    def can_be_kept(self) -> bool:
        """Whether all that a step reads is on a GPU, in the same place in each training."""
        return self.job.device.type != "cpu" and self.batches.stay and not self.batches.are_changed

    @property
    def form(self) -> Hashable:
        """What two trainings must have in common so that one can be done in the memory of the other."""
        forms = [(tuple(tensor.shape), tensor.dtype) for tensor in self.tensors]
        stored = [id(tensor) for tensor in self.batches.stored]
        return key(self.clients[0]), self.job.client.precision, tuple(self.factors), *stored, *forms

    def become(self, new: _Training) -> None:
        """Take over what the other one, of the same form, begins with."""
        torch._foreach_copy_(self.tensors, new.tensors)
        self.random.states = new.random.states
        for name in ("clients", "job", "plans", "steps", "batches", "rates"):
            setattr(self, name, getattr(new, name))

    # -------------------------------------------------------- steps

    def run(self) -> None:
        """All steps of all clients."""
        device, dtype = self.job.device, next(iter(self.weights.parameters.values())).dtype
        rates = torch.tensor(self.rates, dtype=dtype, device=device)
        numbers = torch.arange(len(self.rates), device=device)
        with numerics.products_in(self.job.client.precision):
            for number, rate in enumerate(self.rates):
                chosen = self.batches.chosen(number)
                if self.graphs is None:
                    self._step(chosen, rate if device.type == "cpu" else rates[number], number)
                    continue
                form = tuple(chosen.mask.shape), chosen.is_filled
                inputs = chosen.rows, chosen.mask, rates[number], numbers[number]
                self.graphs.do(form, inputs, partial(self._given, chosen.counts))

    def _given(self, counts: Sequence[int], inputs: Sequence[torch.Tensor]) -> None:
        """A step whose inputs are all tensors."""
        rows, mask, rate, number = inputs
        self._step(ChosenExamples(rows, mask, counts), rate, number)

    def _step(self, chosen: ChosenExamples, rate: float | torch.Tensor, number: int | torch.Tensor) -> None:
        """One step of the first clients, which all have one."""
        count, batch = len(chosen.mask), self.batches.taken(chosen, number)
        parameters = {n: p[:count].detach().requires_grad_() for n, p in self.weights.parameters.items()}
        buffers = {name: buffer[:count] for name, buffer in self.weights.buffers.items()}
        outputs = self.network(parameters, buffers, batch, self.random.draws(number, batch))
        loss, minimised = self._losses(outputs, batch)
        weights = list(parameters.values())
        gradients: Any = torch.autograd.grad(minimised.sum(), weights, allow_unused=True, materialize_grads=True)
        lr, factors = self._rate(rate, count)
        with torch.no_grad():
            for correct in self.corrections:
                gradients = stackable_parts.first(correct, count)(gradients, weights)
        settings = self.job.client
        sgd_step_(
            weights,
            gradients,
            [None if v is None else v[:count] for v in self.velocity],
            lr=lr,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            factors=factors,
            pull=None if self.pull is None else stackable_parts.first(self.pull, count),
        )
        if self.displacement:
            displace_(weights, [d[:count] for d in self.displacement], lr=lr, factors=factors)
        self.losses[:count] += loss.detach().double() * batch.mask.sum(1)
        if self.classifies:
            self.right[:count] += ((outputs.detach().argmax(2) == batch.y) & batch.mask).sum(1)

    def _rate(self, rate: float | torch.Tensor, count: int) -> tuple[float, dict[int, torch.Tensor]]:
        """The rate and its factors. A rate that is a tensor, as a graph needs it, is a part of all factors."""
        factors = {i: factor[:count] for i, factor in self.factors.items()}
        if not isinstance(rate, torch.Tensor):
            return rate, factors
        return 1.0, {i: factors[i] * rate if i in factors else rate for i in range(len(self.velocity))}

    def _losses(self, outputs: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Of each client, the task's loss of its mini-batch, and the loss that its plan minimises."""
        of_task = self.job.examples.goal.loss
        if self.logits is None:
            loss = mean_losses(of_task, outputs, batch)
            return loss, loss
        changed = stackable_parts.of_each_client(stackable_parts.first(self.logits, len(outputs)), outputs)
        return mean_losses(of_task, outputs.detach(), batch), mean_losses(of_task, changed, batch)

    def results(self) -> list[Trained]:
        """The result of each client."""
        losses, right = self.losses.tolist(), self.right.tolist()
        again = self.graphs is not None  # the next training has the same memory
        weights = [
            {name: (tensor.clone() if again else tensor).unbind() for name, tensor in kind.items()}
            for kind in _both(self.weights)
        ]
        trained = []
        for i, taken in enumerate(self.steps):
            seen = sum(len(positions) for positions, _ in taken)
            mean = losses[i] / seen
            result = Result(
                loss=mean if math.isfinite(mean) else math.nan,
                accuracy=right[i] / seen if self.classifies else None,
                rates=[rate for _, rate in taken],
            )
            of_client = Weights(*({name: rows[i] for name, rows in kind.items()} for kind in weights))
            trained.append(Trained(result, of_client, self.random.state(i)))
        return trained


def stacked_weights(weights: Sequence[Weights]) -> Weights:
    """The weights of several clients, with the clients as first axis; copies."""
    return Weights(
        *(
            {name: torch.stack([one[name] for one in column]) for name in column[0]}
            for column in zip(*map(_both, weights), strict=True)
        )
    )


def _both(weights: Weights) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    return weights.parameters, weights.buffers


def _columns(rows: Sequence[Sequence[Any]]) -> list[Any]:
    return list(zip(*rows, strict=True))


def _stacked(pieces: Sequence[Any]) -> Any:
    """One piece for all clients; None if none has one. Clients with the same key have it all, or none."""
    return None if pieces[0] is None else stackable_parts.stacked(pieces)


def _factors(plans: Sequence[Plan], parameters: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
    """Factors of the rates, (clients, ...), by position of the parameter; 1 where a client has none."""
    factors = {}
    for i in sorted({i for plan in plans for i in plan.neuron_factors}):
        of_clients = [plan.neuron_factors.get(i) for plan in plans]
        dims = parameters[i].dim() - 1
        shape = next((1,) * (dims - f.dim()) + f.shape for f in of_clients if f is not None)
        one = parameters[i].new_ones(())
        factors[i] = torch.stack([one.expand(shape) if f is None else f.reshape(shape) for f in of_clients])
    return factors
