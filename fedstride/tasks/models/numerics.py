"""How numbers are computed: on how many threads, in which precision, and with the same bits in each run.

It knows torch's switches and functions, and no network.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from fedstride.processes.patches import replaced

PRODUCTS = ("linear", "conv1d", "conv2d", "conv3d")
"""The functions whose factors `bf16` rounds: those of linear and convolution layers."""

FULL, TF32 = "ieee", "tf32"

_most_threads = 1  # on which this process, or one that it is a copy of, may have computed


def use_threads(count: int) -> None:
    """Let torch compute on this number of threads of the processor from now on."""
    global _most_threads
    _most_threads = max(_most_threads, count)
    torch.set_num_threads(count)


@contextlib.contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Inside, torch computes on this number of threads."""
    before = torch.get_num_threads()
    use_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def has_used_threads() -> bool:
    """Whether this process may have computed on several threads.

    A copy of it (`fork`) does not have these threads, and would wait for them for ever if it used several itself.
    """
    return _most_threads > 1


def repeatable(device: torch.device) -> torch.device:
    """Make torch compute on a GPU in float32, with the same bits in each run. Returns the device.

    TF32, which torch's convolutions use by default, is off. An operation that has no deterministic form warns.
    """
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it at its first use
        torch.use_deterministic_algorithms(True, warn_only=True)
        # Filling memory that is written anyway costs time. Torch has no types for this switch.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = False
        _set(FULL)
    return device


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """At the end, all that `repeatable` sets in torch is as it was."""
    exact = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    search = torch.backends.cudnn.benchmark
    try:
        with _precision_restored():
            yield
    finally:
        torch.use_deterministic_algorithms(exact[0], warn_only=exact[1])
        torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = search


@contextlib.contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Inside, products are computed in this precision, forward and backward.

    float32: as `repeatable` says. tf32: on a GPU, factors are rounded to 10 bits of mantissa; no effect on a CPU.
    bf16: factors and results of linear and convolution layers are rounded to bfloat16 (7 bits of mantissa).
    Weights, activations, sums of gradients and all other functions are float32 in each of them.
    """
    if precision == "bf16":
        with replaced(functional, **{name: _rounded(getattr(functional, name)) for name in PRODUCTS}):
            yield
    elif precision == "tf32":
        with _all_set(TF32):
            yield
    else:
        yield


def older_switches() -> contextlib.AbstractContextManager[None]:
    """Inside, torch's older switches of precision can be read: they fail where a GPU computes in float32.

    `torch.export` reads them. Nothing is to be computed on a GPU inside.
    """
    return _all_set(TF32)


@contextlib.contextmanager
def _all_set(precision: str) -> Iterator[None]:
    with _precision_restored():
        _set(precision)
        yield


@contextlib.contextmanager
def _precision_restored() -> Iterator[None]:
    before = [switch.fp32_precision for switch in _switches()]
    try:
        yield
    finally:
        for switch, value in zip(_switches(), before, strict=True):
            switch.fp32_precision = value


def _rounded(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The function of factors in bfloat16; its result in float32."""

    def call(*arguments: Any, **options: Any) -> torch.Tensor:
        return function(
            *map(_round, arguments), **{name: _round(value) for name, value in options.items()}
        ).float()

    return call


def _round(value: Any) -> Any:
    is_number = isinstance(value, torch.Tensor) and value.dtype == torch.float32
    return value.bfloat16() if is_number else value


def _switches() -> tuple[Any, ...]:
    """Where torch's precision of products in float32 is set; torch has no types for it."""
    return torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn  # type: ignore[attr-defined]


def _set(precision: str) -> None:
    for switch in _switches():
        switch.fp32_precision = precision
