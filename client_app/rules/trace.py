"""Follows the outputs of a network's layers through a forward pass, without changing the network.

A layer's output is followed, by the identity of tensors, through dropout and one normalisation to the
nonlinearity, and through reshaping to the model's result. A function counts whether a module calls it or the
forward pass calls it directly. Two things are not seen: the functions that a compiled or scripted function calls,
and a nonlinearity that is written out in arithmetic.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

# Functions of torch, torch.Tensor and torch.nn.functional by name, in place or not. Torch's modules call them too.
# fmt: off
NONLINEARITIES = {
    "celu", "clamp", "clamp_min", "clip", "elu", "expit", "gelu", "hardshrink", "hardsigmoid", "hardswish",
    "hardtanh", "leaky_relu", "log_sigmoid", "logsigmoid", "mish", "prelu", "relu", "relu6", "rrelu",
    "selu", "sigmoid", "silu", "sin", "softplus", "softshrink", "softsign", "special_expit", "tanh",
    "tanhshrink", "threshold",
}
NORMALISATIONS = {
    "batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm",
}
IDENTITIES = {  # dropouts in eval mode, copies, other dtypes
    "alpha_dropout", "bfloat16", "clone", "contiguous", "double", "dropout", "dropout1d", "dropout2d",
    "dropout3d", "feature_alpha_dropout", "float", "half", "to",
}
AFTER_THE_CLASSIFIER = IDENTITIES | {
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "expit", "flatten", "getitem", "log_sigmoid", "log_softmax", "logsigmoid", "mean",
    "movedim", "permute", "reshape", "sigmoid", "softmax", "special_expit", "squeeze", "transpose",
    "unflatten", "unsqueeze", "view", "view_as",
}
# fmt: on


class Stage(Enum):
    """The values of a layer in a forward pass, in the order in which they are computed."""

    OUTPUT = "output"
    NORMALISED = "normalised output"
    ACTIVATED = "output of the nonlinearity"


@dataclass(eq=False)
class Call:
    """One call of a layer in a forward pass."""

    module: nn.Module
    number: int  # 0 for the first call of this module in the forward pass
    normalised: bool = False  # a normalisation took the output
    activated: bool = False  # a nonlinearity took the output or the normalised output
    norm_parameters: list[nn.Parameter] = field(default_factory=list)  # of that normalisation, if a BatchNorm


@dataclass(frozen=True, eq=False)
class _Followed:
    """What a tensor is to the call that it comes from."""

    tensor: weakref.ref[torch.Tensor]
    version: int  # of the tensor: it grows when the tensor is changed in place
    call: Call
    stage: Stage | None  # None: no longer a value of the layer's neurons
    may_be_result: bool  # whether it shows the call's module as the classifier if the model returns it


def count_neurons(module: nn.Module) -> int:
    """The rows of the weight of a linear or convolution module, M'_l."""
    weight = module.weight
    assert isinstance(weight, torch.Tensor)
    return weight.shape[0]


class Follower(TorchFunctionMode):
    """Follows the outputs of layers through the functions of a forward pass, by the identity of tensors.

    Calls `on_value(call, stage, value)` for each value of a layer as soon as it is computed, before the forward
    pass can change it in place.
    """

    def __init__(self, on_value: Callable[[Call, Stage, torch.Tensor], None]) -> None:
        super().__init__()
        self._on_value = on_value
        self._followed: dict[int, _Followed] = {}  # by id; the weak references show whether an id is reused
        self._calls: Counter[nn.Module] = Counter()

    def start(self) -> None:
        """Begin a forward pass."""
        self._followed.clear()
        self._calls.clear()

    def on_layer(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """The forward hook of linear and convolution modules."""
        if not isinstance(output, torch.Tensor):
            return
        call = Call(module, self._calls[module])
        self._calls[module] += 1
        # A hook runs inside this mode. What `on_value` calls does not count, and takes longer if it is seen.
        with torch._C.DisableTorchFunction():
            self._on_value(call, Stage.OUTPUT, output)
        self._follow(output, call, Stage.OUTPUT, may_be_result=True)

    def call_behind(self, result: Any) -> Call | None:
        """The call whose output is the model's result; None if there is none."""
        followed = self._find(result)
        return followed.call if followed is not None and followed.may_be_result else None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        source = self._find(args[0] if args else kwargs.get("input"))
        result = func(*args, **kwargs)
        if source is not None and isinstance(result, torch.Tensor) and self._find(result) is not source:
            name = getattr(func, "__name__", "").strip("_")
            self._pass_on(source, name, [*args[1:], *kwargs.values()], result)
        return result

    def _pass_on(self, source: _Followed, name: str, others: Sequence[Any], result: torch.Tensor) -> None:
        """Follow the result of a function that took a followed tensor as its first argument."""
        call, stage = source.call, None
        if name in IDENTITIES:
            stage = source.stage
        elif name in NORMALISATIONS and source.stage is Stage.OUTPUT and not call.normalised:
            stage = Stage.NORMALISED
            call.normalised = True
            if name == "batch_norm":
                call.norm_parameters = _channel_parameters(call.module, others, result)
            self._on_value(call, stage, result)
        elif name in NONLINEARITIES and source.stage is not None and not call.activated:
            call.activated = True
            self._on_value(call, Stage.ACTIVATED, result)
        may_be_result = source.may_be_result and name in AFTER_THE_CLASSIFIER
        if stage is not None or may_be_result:
            self._follow(result, call, stage, may_be_result=may_be_result)

    def _follow(self, tensor: torch.Tensor, call: Call, stage: Stage | None, *, may_be_result: bool) -> None:
        followed = _Followed(weakref.ref(tensor), tensor._version, call, stage, may_be_result)
        self._followed[id(tensor)] = followed

    def _find(self, value: Any) -> _Followed | None:
        """What is known of a tensor; None if it is not followed or was changed in place since."""
        if not isinstance(value, torch.Tensor):
            return None
        followed = self._followed.get(id(value))
        return followed if followed and followed.tensor() is value and followed.version == value._version else None


def _channel_parameters(module: nn.Module, arguments: Sequence[Any], result: torch.Tensor) -> list[nn.Parameter]:
    """Weight and bias of a BatchNorm, if its channels are the module's neurons."""
    if isinstance(module, nn.Linear) and result.dim() != 2:
        return []  # the channels are positions: BatchNorm1d over the tokens of (n, tokens, units)
    shape = (count_neurons(module),)
    return [tensor for tensor in arguments if isinstance(tensor, nn.Parameter) and tuple(tensor.shape) == shape]


def run(
    model: nn.Module, batches: Iterable[torch.Tensor], modules: Collection[nn.Module], follower: Follower
) -> Any:
    """Run the model on each batch and follow the outputs of `modules`; the result of the last batch."""
    result = None
    with _undisturbed(model):
        hooks = [module.register_forward_hook(follower.on_layer) for module in modules]
        try:
            for batch in batches:
                follower.start()
                with follower:
                    result = model(batch)
        finally:
            for hook in hooks:
                hook.remove()
    return result


@contextlib.contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Eval mode inside. Afterwards modes, buffers, and torch's random state and settings are as before (A5-10)."""
    modules = list(model.modules())
    modes = [(module, module.training) for module in modules]
    buffers = [
        (module._buffers, name, buffer, buffer._version, buffer.clone())
        for module in modules
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    tensors = [*model.parameters(), *model.buffers()]
    devices = sorted({tensor.device.index for tensor in tensors if tensor.device.type == "cuda"})
    fused = torch.backends.mha.get_fastpath_enabled()
    with torch.random.fork_rng(devices=devices):
        try:
            model.eval()
            # In eval mode torch's transformer may run as one fused kernel, which calls none of its layers.
            torch.backends.mha.set_fastpath_enabled(False)
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)
            for module, mode in modes:
                module.training = mode
            for owner, name, buffer, version, content in buffers:
                owner[name] = buffer
                if buffer._version != version:
                    buffer.copy_(content)
