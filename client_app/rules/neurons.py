"""Finds the layers of a network that hold neurons, and measures the mean activation of each neuron.

A neuron owns a row of weights: a unit of a linear layer, or an output channel of a convolution (A5-2). A forward
pass with one example shows which layers hold neurons:

- A convolution always holds neurons. Its activation h is the output of the nonlinearity that takes its output,
  directly or after a normalisation or dropout. If there is no such nonlinearity (because a pooling or a
  residual sum comes first), h is ReLU of the output or of the normalised output (A5-5).
- A linear layer holds neurons only if a nonlinearity takes its output, directly or after a normalisation or
  dropout, each time that the layer is called. So the projections of attention and of residual branches hold no
  neurons (A5-14).
- The classifier holds neurons. It is the layer whose output is the model's result, at most reshaped, sliced,
  averaged over positions, or passed through (log-)softmax or (log-)sigmoid. Its h are the logits. If the result
  is anything else (a scaled output, a sum of two outputs, a tuple), no layer is the classifier.
- A layer whose weight belongs to another module too (an embedding, a second linear layer) holds none: no neuron
  owns a row of that weight alone (A5-15).
- A layer that the user excludes by name holds none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from fedstride.tasks.models.networks_by_name import CONVOLUTIONS, LAYERS, layers_matching

from .trace import Call, Follower, Stage, count_neurons, run


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
        return count_neurons(self.module)


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
    calls: list[Call] = []
    widths: Counter[nn.Module] = Counter()

    def on_value(call: Call, stage: Stage, value: torch.Tensor) -> None:
        if stage is Stage.OUTPUT:
            calls.append(call)
            widths[call.module] = max(widths[call.module], value.numel() // len(example))

    follower = Follower(on_value)
    result = run(model, [example], modules, follower)
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
        layer = NeuronLayer(modules[module], module, width=widths[module], last=last)
        layer.activations = [_activation(call, logits=call is classifier, last=last) for call in here]
        parameters = [*module.parameters(recurse=False), *(p for call in here for p in call.norm_parameters)]
        layer.parameters = list({id(p): p for p in parameters if id(p) not in shared}.values())
        layers.append(layer)
    return sorted(layers, key=lambda layer: layer.last)  # stable: the classifier is l = L


def _activation(call: Call, *, logits: bool, last: bool) -> Activation:
    if logits or (last and not call.activated):
        return Activation(Stage.OUTPUT)
    if call.activated:
        return Activation(Stage.ACTIVATED)
    return Activation(Stage.NORMALISED if call.normalised else Stage.OUTPUT, relu=True)


def _shared_parameters(model: nn.Module, calls: Sequence[Call]) -> set[int]:
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
    layer_of = {layer.module: layer for layer in layers}
    sums: dict[nn.Module, torch.Tensor] = {}
    rows: Counter[nn.Module] = Counter()  # examples times calls of the module
    calls = 0

    def on_value(call: Call, stage: Stage, value: torch.Tensor) -> None:
        layer = layer_of[call.module]
        activation = layer.activations[min(call.number, len(layer.activations) - 1)]
        if activation.stage is not stage:
            return
        h = value.relu() if activation.relu else value
        if isinstance(layer.module, CONVOLUTIONS):
            h = h.flatten(2).mean(2) if h.dim() > 2 else h
        else:
            h = h.flatten(0, -2)  # every position counts once, however the examples are cut into batches
        total = h.sum(0, dtype=torch.float64)
        sums[layer.module] = sums[layer.module] + total if layer.module in sums else total
        rows[layer.module] += len(h)

    def counted() -> Iterator[torch.Tensor]:
        nonlocal calls
        for batch in batches:
            calls += 1
            yield batch

    run(model, counted(), layer_of, Follower(on_value))
    if not calls:
        raise ValueError("batches is empty: mean activations need at least one batch of examples")
    return [
        sums[layer.module] / rows[layer.module]
        if layer.module in sums
        else torch.full((layer.neurons,), torch.nan, dtype=torch.float64)
        for layer in layers
    ]
