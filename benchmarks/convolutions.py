"""The convolutions of several clients at once, forward and backward, as patches and a batched matrix product.

Each client has filters of its own. `torch.func.vmap`, which `engine=cohort` uses, turns the convolutions of all
clients into one grouped convolution. Its time is the floor. The other way copies the patches of the images side by
side, and multiplies the filters of each client with its patches. Values are seconds for all convolutions of a
network in one step, with mini-batches of 10 images. Before they are timed, both ways must agree.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from benchmarks import Measured, seconds
from fedstride.errors import RunError
from fedstride.tasks import numerics
from fedstride.tasks.layout import place, place_images
from fedstride.tasks.tensors import pick_device

from .cohort import BATCH, CASES, network

FLOOR = "the grouped convolution that torch.func.vmap makes"

CLOSE = 1e-4
"""The largest norm of a difference between the two ways, as a share of the norm of the grouped result."""


class Layer(NamedTuple):
    """A convolution, with the images and filters of all clients, and whether its input needs a gradient."""

    conv: nn.Conv2d
    x: torch.Tensor  # (clients, n, channels, height, width)
    w: torch.Tensor  # (clients, filters, channels, height, width)
    inner: bool


Way = Callable[[nn.Conv2d, torch.Tensor, torch.Tensor], torch.Tensor]
"""(convolution, images (n, ...), filters) of one client -> its results."""


def timings(repeats: int, only: str = "") -> Iterator[Measured | str]:
    """The convolutions of each network, `repeats` times after the first."""
    device = pick_device("auto")
    with numerics.on_threads(1):  # as each client trains
        for name, (model, shape, _, clients) in CASES.items():
            layers = _layers(place(network(model, shape), device), shape, clients) if only in name else []
            if layers:
                _check(name, layers)
                for number in range(repeats + 1):
                    floor, value = (seconds(functools.partial(_all, layers, way)) for way in (grouped, patches))
                    if number:
                        yield Measured(f"{name}, {clients} clients", value, floor)


def grouped(conv: nn.Conv2d, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Torch's convolution, which `vmap` maps over clients as one with groups."""
    return functional.conv2d(x, w, None, conv.stride, conv.padding)


def patches(conv: nn.Conv2d, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The same from the patches below the filters: (channels height width, n positions), times the filters."""
    assert not isinstance(conv.padding, str)  # as its type allows
    (up, left), (height, width) = conv.padding, w.shape[2:]
    padded = functional.pad(x, (left, left, up, up))
    below = padded.unfold(2, height, conv.stride[0]).unfold(3, width, conv.stride[1])
    n, channels, rows, columns = below.shape[:4]
    side_by_side = below.permute(1, 4, 5, 0, 2, 3).reshape(channels * height * width, n * rows * columns)
    return (w.flatten(1) @ side_by_side).view(len(w), n, rows, columns).transpose(0, 1)


def _all(layers: list[Layer], way: Way) -> None:
    """Forward and backward of each layer; on a GPU, until all is computed."""
    for layer in layers:
        _gradients(layer, way)
    if layers[0].x.is_cuda:
        torch.cuda.synchronize(layers[0].x.device)


def _gradients(layer: Layer, way: Way) -> list[torch.Tensor]:
    """The results of a layer, and their gradients."""
    x, w = layer.x.detach().requires_grad_(layer.inner), layer.w.detach().requires_grad_()
    results = torch.func.vmap(functools.partial(way, layer.conv))(x, w)
    return [results, *torch.autograd.grad(results.square().sum(), [x, w] if layer.inner else [w])]


def _check(name: str, layers: list[Layer]) -> None:
    """Raise RunError unless both ways agree."""
    for layer in layers:
        for found, expected in zip(_gradients(layer, patches), _gradients(layer, grouped), strict=True):
            if not (found - expected).norm() <= CLOSE * expected.norm():
                raise RunError(f"{name}: the two ways to compute a convolution differ; no time is measured")


def _layers(model: nn.Module, shape: tuple[int, ...], clients: int) -> list[Layer]:
    """The convolutions of a network without groups, in the order in which they are called.

    Images and filters lie in memory as those of stacked clients do.
    """
    draw = torch.Generator().manual_seed(1)
    found: list[Layer] = []

    def seen(conv: nn.Conv2d, inputs: tuple[torch.Tensor], _: torch.Tensor) -> None:
        (n, *image), filters = inputs[0].shape, conv.weight.shape
        x = place_images(torch.randn(clients * n, *image, generator=draw).to(conv.weight.device))
        w = [place_images(torch.randn(filters, generator=draw).to(conv.weight.device)) for _ in range(clients)]
        found.append(Layer(conv, x.view(clients, n, *image), torch.stack(w), inner=bool(found)))

    hooks = [
        each.register_forward_hook(seen)
        for each in model.modules()
        if isinstance(each, nn.Conv2d) and each.groups == 1
    ]
    with torch.no_grad():
        model(torch.zeros(BATCH, *shape, device=next(model.parameters()).device))
    for hook in hooks:
        hook.remove()
    return found
