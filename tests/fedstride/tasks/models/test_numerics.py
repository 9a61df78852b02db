"""Precision of products in training, and the switches for repeatable results on a GPU."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedstride.tasks.models import numerics

SWITCHES = (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn)


def rounded(x: torch.Tensor) -> torch.Tensor:
    return x.detach().bfloat16().double()


@pytest.mark.parametrize("layer", [nn.Linear(300, 20), nn.Conv1d(3, 5, 4), nn.Conv2d(3, 5, 4), nn.Conv3d(2, 3, 2)])
def test_bf16_rounds_factors_and_results_of_products(layer: nn.Module) -> None:
    shape = {nn.Linear: (7, 300), nn.Conv1d: (7, 3, 30), nn.Conv2d: (7, 3, 9, 9), nn.Conv3d: (2, 2, 5, 5, 5)}
    x = torch.randn(shape[type(layer)], generator=torch.Generator().manual_seed(1))
    with numerics.products_in("bf16"):
        found = layer(x)
    whole = type(layer)(*[getattr(layer, name) for name in ARGUMENTS[type(layer)]]).double()
    whole.load_state_dict({name: rounded(value) for name, value in layer.state_dict().items()})
    expected = whole(rounded(x))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=2**-7, atol=2**-7)
    assert torch.equal(found, found.bfloat16().float())  # the result is rounded, too
    assert not torch.equal(found, layer(x))


ARGUMENTS = {
    nn.Linear: ("in_features", "out_features"),
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), ("in_channels", "out_channels", "kernel_size")),
}


def test_the_gradients_are_float32_and_close() -> None:
    layer, x = nn.Linear(30, 4), torch.randn(5, 30)
    exact = torch.autograd.grad(layer(x).square().sum(), list(layer.parameters()))
    with numerics.products_in("bf16"):
        found = torch.autograd.grad(layer(x).square().sum(), list(layer.parameters()))
    for ours, theirs in zip(found, exact, strict=True):
        assert ours.dtype == torch.float32 and not torch.equal(ours, theirs)
        torch.testing.assert_close(ours, theirs, rtol=0.1, atol=0.1 * float(theirs.abs().max()))


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_everything_is_as_before_afterwards(precision: str) -> None:
    before = [getattr(functional, name) for name in numerics.PRODUCTS]
    switches = [switch.fp32_precision for switch in SWITCHES]
    with contextlib.suppress(KeyError), numerics.products_in(precision):
        assert [s.fp32_precision for s in SWITCHES] == (["tf32"] * 3 if precision == "tf32" else switches)
        assert (functional.linear is before[0]) == (precision != "bf16")
        raise KeyError
    assert [getattr(functional, name) for name in numerics.PRODUCTS] == before
    assert [switch.fp32_precision for switch in SWITCHES] == switches


@pytest.mark.slow
def test_on_a_gpu_results_are_repeatable_and_tf32_is_off() -> None:
    """In a process of its own, because the switches stay; they can be set without a GPU."""
    code = (
        "import os, torch; from fedstride.tasks.models.numerics import repeatable; "
        "assert repeatable(torch.device('cpu')) == torch.device('cpu'); "
        "assert not torch.are_deterministic_algorithms_enabled(); "
        "assert repeatable(torch.device('cuda')) == torch.device('cuda'); "
        "assert torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.benchmark; "
        "b = torch.backends; switches = (b.cuda.matmul, b.cudnn.conv, b.cudnn.rnn); "
        "assert {switch.fp32_precision for switch in switches} == {'ieee'}; "
        "assert os.environ['CUBLAS_WORKSPACE_CONFIG'] == ':4096:8'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
