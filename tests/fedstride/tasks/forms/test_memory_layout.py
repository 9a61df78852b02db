"""The layout of images and filters changes no value but by rounding, and nothing that is seen from outside."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from fedstride.tasks.forms.memory_layout import as_images, place
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models import networks_by_name
from fedstride.tasks.models.tensors import load_arrays, to_arrays
from fedstride.tasks.networks.lenet import relu_pool
from fedstride.tasks.registry import MODELS

CPU = torch.device("cpu")
NETWORKS = ["lenet5", "cnn_emnist", "simple_cnn", "cnn_cifar10", "cnn2conv3fc", "vgg9", "resnet20", "svm", "mlp"]
SHAPE = (3, 32, 32)


def network(name: str) -> nn.Module:
    return networks_by_name.build(MODELS.config(name)(), Inputs(Kind.IMAGE, SHAPE), 10, 1)


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_and_gradients_are_those_of_the_usual_layout(name: str) -> None:
    plain = network(name).eval()
    placed = place(copy.deepcopy(plain), CPU)
    x = torch.rand(6, *SHAPE, generator=torch.Generator().manual_seed(1))
    y = torch.arange(6)
    outputs = []
    for model, images in ((plain, x), (placed, as_images(x))):
        logits = model(images)
        nn.functional.cross_entropy(logits, y).backward()
        outputs.append(logits)
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-4, atol=1e-5)
    for (key, a), b in zip(plain.named_parameters(), placed.parameters(), strict=True):
        assert a.grad is not None and b.grad is not None
        scale = float(a.grad.abs().max())
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-3, atol=1e-4 * scale, msg=key)


@pytest.mark.parametrize("name", NETWORKS)
def test_arrays_are_the_same_in_both_directions(name: str) -> None:
    plain = network(name)
    placed = place(copy.deepcopy(plain), CPU)
    arrays = to_arrays(placed)
    for key, array in to_arrays(plain).items():
        assert np.array_equal(arrays[key], array)
        assert arrays[key].flags.c_contiguous
    other = {key: np.asarray(array) * 2 for key, array in arrays.items()}
    strides = {key: parameter.stride() for key, parameter in placed.named_parameters()}
    load_arrays(placed, other)
    assert all(np.array_equal(array, other[key]) for key, array in to_arrays(placed).items())
    assert {key: parameter.stride() for key, parameter in placed.named_parameters()} == strides


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_images_are_copied_with_their_values(dtype: torch.dtype) -> None:
    x = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).to(dtype)
    found = as_images(x)
    assert found.dtype == torch.float32
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found, x.float())
    found.zero_()
    assert x.any()


def test_relu_and_max_pooling_in_either_order_are_the_same_function() -> None:
    """Also for the gradient, where all four values are negative or two are equal."""
    values = torch.randint(-3, 4, (4, 5, 8, 8), generator=torch.Generator().manual_seed(2)).float()
    values[0, 0] = -1.0
    found = []
    for function in (relu_pool, lambda x: nn.functional.max_pool2d(x.relu(), 2)):
        x = values.clone().requires_grad_()
        y = function(x)
        (gradient,) = torch.autograd.grad((y * torch.arange(y.numel()).reshape(y.shape)).sum(), x)
        found.append((y.detach(), gradient))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
