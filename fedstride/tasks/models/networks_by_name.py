"""Builds a network by name, with initial weights drawn from the run's seed, and finds its layers by name."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ... import seeds
from ...errors import ConfigError, require
from ...parts import Choice
from ..inputs import Inputs, Kind
from ..registry import MODELS

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
LAYERS = (nn.Linear, *CONVOLUTIONS)
MAX_NAMES = 20
"""Names of modules in an error message."""


def build(config: Choice, inputs: Inputs, outputs: int, seed: int) -> nn.Module:
    """The network with initial weights drawn from (seed, "initial weights"). The global random state is unchanged.

    Lazy modules have their sizes, and each array has memory of its own. Raises ConfigError for an unknown name, or
    examples that the network does not take.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seeds.derive(seed, "initial weights"))
        network: nn.Module = MODELS.make(config, inputs, outputs)
        _give_sizes(network, config.name, inputs)
        _give_memory(network)
        return network


def example(inputs: Inputs, count: int = 2) -> torch.Tensor:
    """So many examples of this form, on the processor; two, because BatchNorm needs as many in train mode."""
    if inputs.kind is Kind.TOKENS:
        return torch.ones(count, *inputs.shape, dtype=torch.int64)
    return torch.zeros(count, *inputs.shape)


def _give_sizes(network: nn.Module, name: str, inputs: Inputs) -> None:
    """Let torch's lazy modules find their sizes, in a forward pass in eval mode. Others stay as they are."""
    if _without_size(network) is None:
        return
    reason = ""
    modes = {module: module.training for module in network.modules()}
    try:
        with torch.no_grad():
            network.eval()(example(inputs))
    except Exception as error:
        reason = f" ({type(error).__name__}: {' '.join(str(error).split())})"
    for module, mode in modes.items():
        module.training = mode
    left = _without_size(network)
    if left is not None:
        raise ConfigError(
            f"model = {name!r} ({type(network).__name__}): {left!r} has no size after a forward pass with "
            f"examples of this task{reason}; give the sizes in place of a lazy module"
        )


def _without_size(network: nn.Module) -> str | None:
    """The name of the first parameter or buffer of a lazy module that has no size yet."""
    arrays = [*network.named_parameters(), *network.named_buffers()]
    return next((name for name, array in arrays if is_lazy(array)), None)


def _give_memory(network: nn.Module) -> None:
    """Give arrays whose values share memory (`expand`) memory of their own: nothing can be loaded into others."""
    copies: dict[int, torch.Tensor] = {}
    for module in network.modules():
        for key, buffer in module._buffers.items():
            if buffer is not None and _shares_memory(buffer):
                module._buffers[key] = copies.setdefault(id(buffer), buffer.contiguous().clone())
    for parameter in network.parameters():
        if _shares_memory(parameter):
            parameter.data = parameter.data.contiguous().clone()


def _shares_memory(array: torch.Tensor) -> bool:
    """Whether several values of the array are one place in memory."""
    if array.layout is not torch.strided or array.is_meta or array.is_quantized:
        return False
    repeats = any(stride == 0 and size > 1 for stride, size in zip(array.stride(), array.shape, strict=True))
    return repeats or array.untyped_storage().nbytes() < array.numel() * array.element_size()


def check_outputs(network: nn.Module, name: str, inputs: Inputs, outputs: int) -> None:
    """Raise ConfigError if a network of this name returns anything but (n, outputs) for n = 2 examples.

    Losses broadcast other shapes, and so would train it towards something else, without an error. The network, in
    eval mode for this, and the global random state do not change. What it raises itself is left to the first
    evaluation or training, which says why.
    """
    try:
        returned = _tried(network, inputs, 2)
    except Exception:
        return
    if isinstance(returned, torch.Tensor) and tuple(returned.shape) == (2, outputs):
        return
    shown = _shape(returned) if isinstance(returned, torch.Tensor) else f"a {type(returned).__name__}"
    raise ConfigError(
        f"model = {name!r} returns {shown} for n examples of this task, but must return a tensor (n, {outputs}): "
        "one output for each class, or for each number of the target; change its forward()"
    )


def needs_two(network: nn.Module, inputs: Inputs, fixed: Iterable[nn.Module] = ()) -> bool:
    """Whether a network on the processor cannot be trained with one example, but with two.

    So it is with torch's BatchNorm after a linear layer: one value has no variance. `fixed`: modules that stay in
    eval mode in training. The network and the global random state do not change.
    """
    fixed = list(fixed)
    try:
        _tried(network, inputs, 1, training=True, fixed=fixed)
    except ValueError:  # torch's error for this
        try:
            _tried(network, inputs, 2, training=True, fixed=fixed)
        except Exception:
            return False
        return True
    except Exception:
        return False
    return False


def leaves_one(examples: int, batch_size: int) -> bool:
    """Whether one of the mini-batches of a pass over all examples has a single example."""
    return batch_size == 1 or examples % batch_size == 1


def _tried(
    network: nn.Module, inputs: Inputs, examples: int, *, training: bool = False, fixed: Iterable[nn.Module] = ()
) -> Any:
    """What the network returns for so many examples of zeros, or of the first token. Nothing is changed by it."""
    modes = {module: module.training for module in network.modules()}
    buffers = {key: buffer.clone() for key, buffer in network.named_buffers()}
    network.train(training)
    for module in fixed:
        module.training = False
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            # Without tied weights: torch would put back a wrong tensor where a module has two names.
            return torch.func.functional_call(network, buffers, (example(inputs, examples),), tie_weights=False)
    finally:
        for module, mode in modes.items():
            module.training = mode


def _shape(outputs: torch.Tensor) -> str:
    """The shape of the outputs of two examples, with n for their number."""
    sizes = ["n" if (axis, size) == (0, 2) else str(size) for axis, size in enumerate(outputs.shape)]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def layers_matching(model: nn.Module, patterns: Sequence[str], key: str) -> set[nn.Module]:
    """The linear and convolution modules whose name matches one of the patterns (fnmatch, case-sensitive).

    A module with two names matches by either. Raises ConfigError, naming `key`, for a pattern that matches none.
    """
    require(not isinstance(patterns, str), key, patterns, "a list of patterns, such as ['attention.*']")
    named = [(n, m) for n, m in model.named_modules(remove_duplicate=False) if isinstance(m, LAYERS)]
    layers: set[nn.Module] = set()
    for pattern in patterns:
        matching = {module for name, module in named if fnmatch.fnmatchcase(name, pattern)}
        if not matching:
            names = ", ".join(repr(name) for name, _ in named[:MAX_NAMES]) or "none"
            more = f" and {len(named) - MAX_NAMES} more" if len(named) > MAX_NAMES else ""
            raise ConfigError(
                f"{key} = {list(patterns)!r} is not allowed: the pattern {pattern!r} matches no linear or "
                f"convolution module of the model; the names of these modules are: {names}{more}"
            )
        layers |= matching
    return layers
