"""Finds the layers of a network that hold neurons, and measures the mean activation of each neuron.

A neuron owns a row of weights: a unit of a linear layer, or an output channel of a convolution (A5-2). A forward
pass with one example shows which layers hold neurons:

- A convolution always does. Its activation h is the output of the nonlinearity that takes its output, directly or
  after a normalisation or dropout. If there is no such nonlinearity (a pooling or a residual sum comes
  first), h is ReLU of the output or of the normalised output (A5-5).
- A linear layer does only if a nonlinearity takes its output, directly or after a normalisation or dropout, each
  time that the layer is called. So the projections of attention and of residual branches hold no neurons (A5-14).
- The classifier does. It is the layer whose output is the model's result, at most reshaped, sliced, averaged over
  positions, or passed through (log-)softmax or (log-)sigmoid. Its h are the logits. If the result is anything else
  (a scaled output, a sum of two outputs, a tuple), no layer is the classifier.
- A layer whose weight belongs to another module too (an embedding, a second linear layer) does not: no neuron owns
  a row of that weight alone (A5-15).
- A layer that the user excludes by name does not.
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

from fedstride.tasks.models import CONVOLUTIONS, LAYERS, layers_matching

# Functions by name, in place or not, of torch, torch.Tensor and torch.nn.functional; torch's modules call
# these too.
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


@dataclass(frozen=True)
class Activation:
    """The value of a layer that is its activation h."""

    stage: Stage
    relu: bool = False  # h is ReLU of the value, because the forward pass shows no nonlinearity


@dataclass
class NeuronLayer:
    """A linear or convolution layer that holds neurons."""

    name: str
    module: nn.Module
    activations: list[Activation] = field(default_factory=list)  # one for each call in a forward pass
    parameters: list[nn.Parameter] = field(default_factory=list)  # their first dimension is the neurons (A5-9)
    width: int = 0  # units with positions, M_l with width="units"
    last: bool = False  # whether it is the classifier

    @property
    def neurons(self) -> int:
        """M'_l."""
        return _neurons(self.module)


def _neurons(module: nn.Module) -> int:
    weight = module.weight
    assert isinstance(weight, torch.Tensor)
    return weight.shape[0]


# ---------------------------------------------------------------- which layers hold neurons


@torch.no_grad()
def find_layers(model: nn.Module, example: torch.Tensor, exclude: Sequence[str] = ()) -> list[NeuronLayer]:
    """The layers that hold neurons, in order of execution, the classifier last (A5-1, A5-14, A5-15).

    `example` is a batch of one example, for one forward pass in eval mode. `exclude`: patterns (fnmatch) of names
    of linear and convolution modules that hold no neurons. Only modules that the model calls are found: the
    projections inside torch's own attention are not called. The model stays as it is (A5-10). Raises ConfigError
    for a pattern that matches no linear or convolution module.
    """
    excluded = layers_matching(model, exclude, "exclude")
    modules: dict[nn.Module, str] = {m: name for name, m in model.named_modules() if isinstance(m, LAYERS)}
    calls: list[_Call] = []

    def on_value(call: _Call, stage: Stage, value: torch.Tensor) -> None:
        if stage is Stage.OUTPUT:
            call.width = value.numel() // len(example)
            calls.append(call)

    follower = _Follower(on_value)
    result = _run(model, [example], modules, follower)
    classifier = follower.call_behind(result)
    shared = _shared_parameters(model, calls)
    layers: list[NeuronLayer] = []
    for module in dict.fromkeys(call.module for call in calls):
        here = [call for call in calls if call.module is module]
        last = classifier is not None and classifier.module is module
        bare = not all(call.activated for call in here)  # a call of it is followed by no nonlinearity
        if module in excluded or id(module._parameters.get("weight")) in shared:
            continue
        if isinstance(module, nn.Linear) and bare and not last:
            continue
        layer = NeuronLayer(modules[module], module, width=max(call.width for call in here), last=last)
        layer.activations = [_activation(call, logits=call is classifier, last=last) for call in here]
        own = [*module.parameters(recurse=False), *(p for call in here for p in call.norm_parameters)]
        layer.parameters = list({id(p): p for p in own if id(p) not in shared}.values())
        layers.append(layer)
    return sorted(layers, key=lambda layer: layer.last)  # stable: the classifier is l = L


def _activation(call: _Call, *, logits: bool, last: bool) -> Activation:
    if logits or (last and not call.activated):
        return Activation(Stage.OUTPUT)
    if call.activated:
        return Activation(Stage.ACTIVATED)
    return Activation(Stage.NORMALISED if call.normalised else Stage.OUTPUT, relu=True)


def _shared_parameters(model: nn.Module, calls: Sequence[_Call]) -> set[int]:
    """The ids of parameters that belong to no single layer.

    More than one module owns them (tied weights), or they are those of a BatchNorm that takes the output of
    several layers.
    """
    owners = Counter(id(p) for module in model.modules() for p in module.parameters(recurse=False))
    before = {(id(p), call.module) for call in calls for p in call.norm_parameters}
    followed = Counter(parameter for parameter, _ in before)
    return {parameter for parameter, count in [*owners.items(), *followed.items()] if count > 1}


# ---------------------------------------------------------------- mean activations


@torch.no_grad()
def mean_activations(
    model: nn.Module, layers: Sequence[NeuronLayer], batches: Iterable[torch.Tensor]
) -> list[torch.Tensor]:
    """h_li of each layer, float64 (neurons,), over all examples (eq. 14; A5-3, A5-5, A5-10, A5-12).

    One pass in eval mode without gradients; the model stays as it is. A layer that is called several times in a
    forward pass averages over its calls. NaN for a layer whose activation no batch shows. Raises ValueError if
    there is no batch.
    """
    found = {layer.module: layer for layer in layers}
    sums: dict[nn.Module, torch.Tensor] = {}
    rows: Counter[nn.Module] = Counter()  # examples times calls of the module
    calls = 0

    def on_value(call: _Call, stage: Stage, value: torch.Tensor) -> None:
        layer = found[call.module]
        activation = layer.activations[min(call.number, len(layer.activations) - 1)]
        if activation.stage is not stage:
            return
        h = value.relu() if activation.relu else value
        if isinstance(layer.module, CONVOLUTIONS):
            h = h.flatten(2).mean(2) if h.dim() > 2 else h
        else:
            h = h.flatten(1, -2).mean(1) if h.dim() > 2 else h
        total = h.double().sum(0)
        sums[layer.module] = sums[layer.module] + total if layer.module in sums else total
        rows[layer.module] += len(h)

    def counted() -> Iterator[torch.Tensor]:
        nonlocal calls
        for batch in batches:
            calls += 1
            yield batch

    _run(model, counted(), found, _Follower(on_value))
    if not calls:
        raise ValueError("batches is empty: mean activations need at least one batch of examples")
    return [
        sums[layer.module] / rows[layer.module]
        if layer.module in sums
        else torch.full((layer.neurons,), torch.nan, dtype=torch.float64)
        for layer in layers
    ]


# ---------------------------------------------------------------- following the values of a forward pass


@dataclass(eq=False)
class _Call:
    """One call of a layer in a forward pass."""

    module: nn.Module
    number: int  # 0 for the first call of this module in the forward pass
    width: int = 0
    normalised: bool = False
    activated: bool = False
    norm_parameters: list[nn.Parameter] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class _Followed:
    """What a tensor is to the call that it comes from."""

    tensor: weakref.ref[torch.Tensor]
    version: int  # of the tensor: it grows when the tensor is changed in place
    call: _Call
    stage: Stage | None  # None: no longer a value of the layer's neurons
    may_be_result: bool  # whether it shows the call's module as the classifier if the model returns it


class _Follower(TorchFunctionMode):
    """Follows the outputs of layers through the functions of a forward pass, by the identity of tensors.

    Calls `on_value(call, stage, value)` for each value of a layer, as soon as it is computed. Functions are
    seen as the forward pass calls them, whether by a module or directly.
    """

    def __init__(self, on_value: Callable[[_Call, Stage, torch.Tensor], None]) -> None:
        super().__init__()
        self._on_value = on_value
        self._followed: dict[int, _Followed] = {}  # by id; the weak references tell a reused id
        self._calls: Counter[nn.Module] = Counter()

    def start(self) -> None:
        """Begin a forward pass."""
        self._followed.clear()
        self._calls.clear()

    def on_layer(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """The forward hook of linear and convolution modules."""
        if not isinstance(output, torch.Tensor):
            return
        call = _Call(module, self._calls[module])
        self._calls[module] += 1
        self._on_value(
            call, Stage.OUTPUT, output
        )  # not followed yet, so the functions that this calls do not count
        self._follow(output, call, Stage.OUTPUT, may_be_result=True)

    def call_behind(self, result: Any) -> _Call | None:
        """The call whose output is the model's result; None if there is none."""
        found = self._find(result)
        return found.call if found is not None and found.may_be_result else None

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

    def _follow(self, tensor: torch.Tensor, call: _Call, stage: Stage | None, *, may_be_result: bool) -> None:
        followed = _Followed(weakref.ref(tensor), tensor._version, call, stage, may_be_result)
        self._followed[id(tensor)] = followed

    def _find(self, value: Any) -> _Followed | None:
        """What is known of a tensor; None if it is not followed or was changed in place since."""
        if not isinstance(value, torch.Tensor):
            return None
        found = self._followed.get(id(value))
        return found if found and found.tensor() is value and found.version == value._version else None


def _channel_parameters(module: nn.Module, arguments: Sequence[Any], result: torch.Tensor) -> list[nn.Parameter]:
    """Weight and bias of a BatchNorm, if its channels are the module's neurons."""
    if isinstance(module, nn.Linear) and result.dim() != 2:
        return []  # the channels are positions: BatchNorm1d over the tokens of (n, tokens, units)
    shape = (_neurons(module),)
    return [each for each in arguments if isinstance(each, nn.Parameter) and tuple(each.shape) == shape]


def _run(
    model: nn.Module, batches: Iterable[torch.Tensor], modules: Collection[nn.Module], follower: _Follower
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
            torch.backends.mha.set_fastpath_enabled(
                False
            )  # the fused kernel would hide the layers of a transformer
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)
            for module, mode in modes:
                module.training = mode
            for owner, name, buffer, version, content in buffers:
                owner[name] = buffer
                if buffer._version != version:
                    buffer.copy_(content)
