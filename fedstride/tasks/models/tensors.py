"""Converts examples to tensors on a device, and networks to named arrays and back.

Only this module converts stored examples to what networks get.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn

from ...arrays.named import Arrays, host
from ...arrays.on_device import tensor_of
from ...errors import ConfigError
from ..forms.preparation import prepared, statistics_of
from ..goals import Goal, goal_of
from ..spec import Spec, Target
from .numerics import repeatable


class Examples:
    """Examples that return prepared batches on a device. The stored arrays are not copied.

    `spec` says how a batch is prepared. `members`: the positions in `x` and `y` that belong to these examples; all
    if None. `goal`: what is learnt from them; the task's default if None.
    """

    def __init__(
        self,
        x: np.ndarray,
        y: np.ndarray,
        spec: Spec,
        *,
        device: torch.device,
        members: np.ndarray | None = None,
        goal: Goal | None = None,
    ) -> None:
        self.x, self.y, self.spec, self.device = x, y, spec, device
        self.goal = goal_of(spec) if goal is None else goal
        self.members = np.arange(len(y)) if members is None else members
        self.mean, self.std, self.fill, self.target_mean, self.target_std = statistics_of(spec, device)

    def __len__(self) -> int:
        return len(self.members)

    def batch(self, positions: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """(x, y) at these positions of `members`, as `spec` says.

        x is float32 with the shape of an example, or int64 for tokens; y is int64 for classes, else float32.
        """
        y = torch.from_numpy(np.ascontiguousarray(self.y[self.members[positions]])).to(self.device)
        return self.inputs(positions), self._prepared_targets(y)

    def inputs(self, positions: np.ndarray) -> torch.Tensor:
        """The x of `batch`, alone."""
        return self._prepared(
            torch.from_numpy(np.ascontiguousarray(self.x[self.members[positions]])).to(self.device)
        )

    def prepared(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(x, y) of stored examples, given as tensors on the device, as `batch` returns them."""
        return self._prepared(x), self._prepared_targets(y)

    def _prepared_targets(self, y: torch.Tensor) -> torch.Tensor:
        if self.spec.target is Target.CLASS:
            return y
        y = y.float()
        return y.sub(self.target_mean).div(self.target_std) if self.spec.target_mean else y

    def in_units(self, values: torch.Tensor) -> torch.Tensor:
        """Outputs or targets of a batch in the unit of the stored targets."""
        return values * self.target_std + self.target_mean if self.spec.target_mean else values

    def _prepared(self, x: torch.Tensor) -> torch.Tensor:
        return prepared(x, self.spec, self.mean, self.std, self.fill)

    def class_counts(self) -> np.ndarray:
        """The number of these examples of each class, int64 (classes,). Raises ConfigError without classes."""
        if self.spec.target is not Target.CLASS:
            raise ConfigError("this task has no single class for each example, so its classes cannot be counted")
        return np.bincount(self.y[self.members], minlength=self.spec.outputs)

    def in_order(self, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """All examples once, in batches of `size`; the last batch can be smaller."""
        for start in range(0, len(self), size):
            yield self.batch(np.arange(start, min(start + size, len(self))))


def pick_device(name: str) -> torch.device:
    """The device with this name; `auto` is CUDA if available. Raises ConfigError if the device does not exist."""
    if name == "auto":
        return repeatable(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"client.device = {name!r} is not a device; use auto, cpu, cuda or cuda:1") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"client.device = {name!r} is not available: this machine has {torch.cuda.device_count()} CUDA "
            "devices; use cpu or auto"
        )
    return repeatable(device)


def to_arrays(model: nn.Module, names: Iterable[str] | None = None) -> Arrays:
    """Copies of the parameters and buffers as numpy arrays.

    `names`: which ones. If None, those of `array_names`.
    """
    return {name: host(tensor).copy() for name, tensor in _chosen(model, names).items()}


def to_tensors(model: nn.Module, names: Iterable[str] | None = None) -> Arrays:
    """The same as tensors on the device on which the network is."""
    return {name: tensor.clone() for name, tensor in _chosen(model, names).items()}


def _chosen(model: nn.Module, names: Iterable[str] | None) -> dict[str, torch.Tensor]:
    state = model.state_dict()
    return {name: state[name].detach() for name in (array_names(model) if names is None else names)}


def array_names(model: nn.Module) -> list[str]:
    """The names of all arrays in the network's order; a tied tensor is included once, by its first name."""
    tied = tied_names(model)
    return [name for name in model.state_dict() if name not in tied]


def load_arrays(model: nn.Module, arrays: Mapping[str, Any]) -> None:
    """Copy named arrays, of numpy or torch, into the network. Raises RuntimeError if names or shapes differ."""
    tensors = {
        name: array if isinstance(array, torch.Tensor) else tensor_of(array) for name, array in arrays.items()
    }
    tied = {name: tensors[first] for name, first in tied_names(model).items() if first in tensors}
    model.load_state_dict(tensors | tied, strict=True)


_begun: WeakKeyDictionary[nn.Module, dict[tuple[str, str], torch.Tensor | None]] = WeakKeyDictionary()
"""Buffers that are in no `state_dict`, as they were at first, by the names of their module and of themselves."""


def begin_again(model: nn.Module) -> None:
    """Give buffers that are in no `state_dict` (`persistent=False`) the values of the first call with it.

    Loading a model does not change them. So what a forward pass writes for one client would be there for the next.
    """
    begun = _begun.get(model)
    if begun is None:
        begun = _begun[model] = {
            (name, key): _copy(module._buffers.get(key))
            for name, module in model.named_modules()
            for key in module._non_persistent_buffers_set
        }
    for (name, key), value in begun.items():
        model.get_submodule(name)._buffers[key] = _copy(value)


def _copy(buffer: torch.Tensor | None) -> torch.Tensor | None:
    return None if buffer is None else buffer.clone()


def tied_names(model: nn.Module) -> dict[str, str]:
    """The second and later names of tied parameters (several names of one tensor), each with the first name."""
    first: dict[int, str] = {}
    tied = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if (known := first.setdefault(id(parameter), name)) != name:
            tied[name] = known
    return tied


def buffer_names(model: nn.Module) -> list[str]:
    """The names of the arrays of `to_arrays` that the network registers as buffers."""
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return [name for name in model.state_dict() if name not in parameters]
