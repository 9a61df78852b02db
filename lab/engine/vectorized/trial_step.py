"""Whether a network can be trained for several clients at once: a trial step, compared with clients alone.

A network can be stacked if a step of two clients gives each the gradient and the buffers of training alone, in
float64 on the processor. So a user's network is judged like the project's own, and no list of layers is kept.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from fedstride.parts import Choice
from fedstride.tasks.forms.memory_layout import as_images, place
from fedstride.tasks.goals import loss_of
from fedstride.tasks.inputs import Kind
from fedstride.tasks.models import networks_by_name
from fedstride.tasks.models.frozen_choice import fixed_norms, freeze_, split
from fedstride.tasks.spec import Spec, Target

from .batches import Batch, mean_losses
from .clients import Weights, weights_of
from .functions import Functions, GeneratorDraws
from .network import Network
from .training import stacked_weights

COUNTS = (3, 2)
"""Examples of the two clients: one has fewer, so that its mini-batch is filled up."""

CLOSE = 1e-6
"""The largest norm of a difference, as a share of the norm of what it should be."""


def obstacle(model: Choice, spec: Spec, trained: Sequence[str] | None, loss: str | None) -> str | None:
    """Why clients with this network cannot be trained together; None if they can.

    `trained`: the patterns of `train`. `loss`: its name; the task's default if None.
    """
    network = place(networks_by_name.build(model, spec.inputs, spec.outputs, seed=0), torch.device("cpu"))
    parts = split(network, trained)
    freeze_(network, parts)
    network.double()
    fixed = [name for name, module in network.named_modules() if module in set(fixed_norms(network, parts))]
    batch = _batch(spec)
    try:
        alone = [_alone(network, fixed, batch, client, spec, loss) for client in range(len(COUNTS))]
    except Exception as error:
        return f"its trial step in float64 failed: {_line(error)}"
    try:
        together = _together(network, fixed, batch, spec, loss)
    except Exception as error:
        return _line(error)
    for one, stacked in zip(alone, together, strict=True):
        for kind, tensors in (("gradient", stacked.parameters), ("buffer", stacked.buffers)):
            expected = one.parameters if kind == "gradient" else one.buffers
            for name, value in expected.items():
                if not _is_close(tensors[name], value):
                    return f"the {kind} {name} of a client would depend on other clients' examples"
    return None


def _alone(
    network: nn.Module, fixed: Sequence[str], batch: Batch, client: int, spec: Spec, loss: str | None
) -> Weights:
    """Gradients and new buffers of one client that trains alone."""
    network_copy = copy.deepcopy(network).train()
    for name in fixed:
        network_copy.get_submodule(name).training = False
    count = batch.counts[client]
    draws = GeneratorDraws([_random(client)], [count], count)
    # Dropout is drawn as for several clients: its bits depend on how values lie in memory.
    with Functions(batch.mask[client, :count], draws, {}, filled=False).in_place():
        outputs = network_copy(batch.x[client, :count])
    parameters: dict[str, torch.Tensor] = {n: p for n, p in network_copy.named_parameters() if p.requires_grad}
    mean = loss_of(spec, loss)(outputs, batch.y[client, :count])
    return Weights(_gradients(mean, parameters), dict(network_copy.named_buffers()))


def _together(
    network: nn.Module, fixed: Sequence[str], batch: Batch, spec: Spec, loss: str | None
) -> list[Weights]:
    """Gradients and new buffers of each client, trained together."""
    network_copy = copy.deepcopy(network)
    weights = stacked_weights([weights_of(network_copy)] * len(COUNTS))
    parameters = {name: value.requires_grad_() for name, value in weights.parameters.items()}
    generators = [_random(client) for client in range(len(COUNTS))]
    run = Network(network_copy, [network_copy.get_submodule(name) for name in fixed])
    outputs = run(parameters, weights.buffers, batch, GeneratorDraws(generators, batch.counts, batch.longest))
    gradients = _gradients(mean_losses(loss_of(spec, loss), outputs, batch).sum(), parameters)
    return [
        Weights({n: g[i] for n, g in gradients.items()}, {n: b[i] for n, b in weights.buffers.items()})
        for i in range(len(COUNTS))
    ]


def _random(client: int) -> torch.Generator:
    return torch.Generator().manual_seed(client)


def _gradients(loss: torch.Tensor, parameters: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(parameters, gradients, strict=True))


def _batch(spec: Spec) -> Batch:
    """Random examples of the task's form, the same in each call; the last one of the second client fills it up."""
    longest, inputs = max(COUNTS), spec.inputs
    draw = torch.Generator().manual_seed(0)
    shape = (len(COUNTS), longest)
    if inputs.kind is Kind.TOKENS:
        x = torch.randint(1, max(2, inputs.vocabulary), (*shape, *inputs.shape), generator=draw)
        x[:, 1, -(inputs.shape[0] // 2) :] = 0  # a shorter text
    else:
        x = torch.randn(*shape, *inputs.shape, generator=draw, dtype=torch.float64)
    if spec.target is Target.CLASS:
        y = torch.randint(0, spec.outputs, shape, generator=draw)
    else:
        y = torch.randint(0, 2, (*shape, spec.targets), generator=draw).double()
    mask = torch.arange(longest) < torch.tensor(COUNTS)[:, None]
    if inputs.kind is Kind.IMAGE:
        x = as_images(x.flatten(0, 1)).double().view(x.shape)
    return Batch(x, y, mask, COUNTS)


def _is_close(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    same = (actual == expected) | (actual.isnan() & expected.isnan())  # of infinities there is no difference
    distance = torch.linalg.vector_norm((actual - expected).double().masked_fill(same, 0.0))
    finite = expected.double().masked_fill(~expected.isfinite(), 0.0)
    return bool(distance <= CLOSE * torch.linalg.vector_norm(finite) + 1e-12)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
