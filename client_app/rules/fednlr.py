"""FedNLR: neuron-wise learning rates on the client (Wang et al., KDD 2024).

    h_li  = (1/|D_k|) sum_x h_li(x)                        mean activation     (eq. 14)
    mu_l  = mu_0 + a_1 l/L + a_2 log10(M_l)                                    (eq. 17)
    T_l   = (max_i h_li - min_i h_li) / ln mu_l                                (eq. 16)
    p_li  = exp(h_li / T_l) / sum_j exp(h_lj / T_l)
    eta_li = eta M'_l p_li                                                     (eq. 15)
    W_li <- W_li - eta_li df/dW_li                                             (eq. 18)

A neuron owns a row of weights: a unit of a linear layer, an output channel of a convolution; there are
M'_l of them, so the rates of a layer have mean eta. M_l counts units with their positions, or channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..method import Job, Method, Plan, Received, Result, Returned, State
from ..parts import FedNLRSettings
from ..step import sgd_step_

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
NORMALISATIONS = (
    *BATCH_NORMS,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
)


# ---------------------------------------------------------------- the rule


@dataclass(frozen=True)
class Rates:
    """The rates of one layer, as factors of eta."""

    factors: torch.Tensor | None  # float64 (neurons,), mean 1; None where all are 1 exactly
    mu: float
    temperature: float  # T_l; 0 where the factors are all 1


def discrepancy(layer: int, layers: int, width: int, *, mu0: float, a1: float, a2: float) -> float:
    """mu_l of layer l = 1 .. L with M_l = width (eq. 17)."""
    return mu0 + a1 * layer / layers + a2 * math.log10(width)


def neuron_rates(activations: torch.Tensor, mu: float) -> Rates:
    """Factors M'_l p_li from mean activations, float64 of shape (neurons,) (eq. 15, 16).

    max/min of the factors is mu. All 1 where the activations are all equal, mu <= 1, or there is one
    neuron only (A5-7). The softmax is taken after subtracting the maximum (A5-8). Activations that are
    not finite also give 1: they say nothing about the neurons.
    """
    h = activations.double()
    spread = float(h.max() - h.min())
    if not 0.0 < spread < math.inf or mu <= 1.0 or len(h) == 1:
        return Rates(None, mu, 0.0)
    temperature = spread / math.log(mu)
    # With T from eq. 16, (h - max) / T = (h - max) ln(mu) / spread, which cannot overflow.
    p = torch.exp((h - h.max()) / spread * math.log(mu))
    return Rates(len(h) * p / p.sum(), mu, temperature)


# ---------------------------------------------------------------- the neurons of a network


@dataclass
class NeuronLayer:
    """A linear or convolution layer as it is met in a forward pass."""

    name: str
    module: nn.Module
    norm: nn.Module | None = None  # the normalisation that takes its output immediately
    width: int = 0  # units with positions
    last: bool = False  # the classifier

    @property
    def neurons(self) -> int:
        """M'_l."""
        weight = self.module.weight
        assert isinstance(weight, torch.Tensor)
        return weight.shape[0]

    @property
    def observed(self) -> nn.Module:
        """Whose output is the activation before its ReLU (A5-5)."""
        return self.module if self.norm is None else self.norm


@torch.no_grad()
def find_layers(model: nn.Module, example: torch.Tensor) -> list[NeuronLayer]:
    """The layers that hold neurons, in order of execution, from one forward pass in eval mode (A5-1).

    Only modules that are really called count: the projections inside torch's attention are not, and so
    keep the rate eta, like everything else that is no neuron (A5-9). The model's mode is put back.
    """
    names = {module: name for name, module in model.named_modules()}
    found: dict[nn.Module, NeuronLayer] = {}
    outputs: dict[int, tuple[NeuronLayer, torch.Tensor, int]] = {}  # by id; kept alive, so ids stay unique

    def on_layer(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        layer = found.setdefault(module, NeuronLayer(names[module], module))
        layer.width = max(layer.width, output[0].numel())
        outputs[id(output)] = (layer, output, output._version)

    def on_norm(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        layer, _, version = outputs.get(id(inputs[0]), (None, None, 0))
        if layer is None or inputs[0]._version != version or layer.norm is not None:
            return  # of no layer, or an activation in place lies between
        if isinstance(layer.module, nn.Linear) and inputs[0].dim() != 2:
            return  # normalises positions, not neurons
        layer.norm = module

    hooks = []
    for module in names:
        if isinstance(module, (nn.Linear, *CONVOLUTIONS)):
            hooks.append(module.register_forward_hook(on_layer))
        elif isinstance(module, NORMALISATIONS):
            hooks.append(module.register_forward_hook(on_norm))
    _in_eval_mode(model, [example], hooks)
    layers = list(found.values())
    if layers:
        layers[-1].last = True
    return layers


@dataclass
class _Sum:
    total: torch.Tensor | None = None
    uses: int = 0  # examples times uses of the module


@torch.no_grad()
def mean_activations(
    model: nn.Module, layers: Sequence[NeuronLayer], batches: Iterable[torch.Tensor]
) -> list[torch.Tensor]:
    """h_li of each layer, float64 (neurons,), over all examples (eq. 14; A5-3, A5-5, A5-10, A5-12).

    One pass in eval mode without gradients: buffers, the model's mode and random state stay as they are.
    """
    sums = {id(layer.observed): _Sum() for layer in layers}

    def observe(layer: NeuronLayer) -> Any:
        channels_first = isinstance(layer.module, CONVOLUTIONS)

        def hook(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
            h = output if layer.last else output.relu()
            if channels_first:
                h = h.flatten(2).mean(2) if h.dim() > 2 else h
            else:
                h = h.flatten(1, -2).mean(1) if h.dim() > 2 else h
            entry = sums[id(module)]
            here = h.double().sum(0)
            entry.total = here if entry.total is None else entry.total + here
            entry.uses += len(h)

        return hook

    hooks = [layer.observed.register_forward_hook(observe(layer)) for layer in layers]
    _in_eval_mode(model, batches, hooks)
    result = []
    for layer in layers:
        entry = sums[id(layer.observed)]
        assert entry.total is not None
        result.append(entry.total / entry.uses)
    return result


def _in_eval_mode(model: nn.Module, batches: Iterable[torch.Tensor], hooks: Sequence[Any]) -> None:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        for batch in batches:
            model(batch)
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode in modes.items():
            module.training = mode


# ---------------------------------------------------------------- rates of a network's parameters


@dataclass
class NetworkRates:
    """Factors for the parameters of a network, and the rates of each layer by name."""

    factors: dict[str, torch.Tensor] = field(default_factory=dict)  # by parameter name, broadcastable
    layers: dict[str, Rates] = field(default_factory=dict)


def network_rates(
    model: nn.Module,
    batches: Sequence[torch.Tensor] | Iterable[torch.Tensor],
    example: torch.Tensor,
    *,
    mu0: float = 1.0,
    a1: float = 1.0,
    a2: float = 1.0,
    width: str = "units",
    classifier: bool = True,
) -> NetworkRates:
    """Rate factors from one pass over the local data; `example` is a batch of one that shows the layers.

    A neuron's bias follows its neuron, and so do weight and bias of a BatchNorm that takes its output
    immediately; any other parameter has factor 1 (A5-9). `classifier=False` leaves the last layer at 1.
    """
    layers = find_layers(model, example)
    means = mean_activations(model, layers, batches)
    parameter_names = {id(parameter): name for name, parameter in model.named_parameters()}
    result = NetworkRates()
    for number, (layer, h) in enumerate(zip(layers, means, strict=True), start=1):
        count = layer.width if width == "units" else layer.neurons
        mu = discrepancy(number, len(layers), count, mu0=mu0, a1=a1, a2=a2)
        rates = Rates(None, mu, 0.0) if layer.last and not classifier else neuron_rates(h, mu)
        result.layers[layer.name] = rates
        if rates.factors is None:
            continue
        owners = [layer.module] + ([layer.norm] if isinstance(layer.norm, BATCH_NORMS) else [])
        for parameter in [p for owner in owners for p in owner.parameters(recurse=False)]:
            shape = (-1, *[1] * (parameter.dim() - 1))
            result.factors[parameter_names[id(parameter)]] = rates.factors.to(parameter.dtype).reshape(shape)
    return result


def diagnostics(rates: NetworkRates, lr: float) -> dict[str, float]:
    """Per layer the smallest, largest and mean rate, T_l, mu_l, and the share of neurons below eta (A5-13)."""
    metrics: dict[str, float] = {}
    for name, layer in rates.layers.items():
        factors = torch.ones(1, dtype=torch.float64) if layer.factors is None else layer.factors
        metrics |= {
            f"fednlr/rate_min/{name}": lr * float(factors.min()),
            f"fednlr/rate_max/{name}": lr * float(factors.max()),
            f"fednlr/rate_mean/{name}": lr * float(factors.mean()),
            f"fednlr/T/{name}": layer.temperature,
            f"fednlr/mu/{name}": layer.mu,
            f"fednlr/below/{name}": float((factors < 1.0).double().mean()),
        }
    return metrics


class FedNLR(Method):
    """FedNLR's rates for one round."""

    def __init__(self, settings: FedNLRSettings) -> None:
        self.settings = settings

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """One pass over the client's examples; a factor for each neuron."""
        size = max(job.client.batch_size, 128)  # of the pass; without gradients more fit
        found = network_rates(
            job.model,
            (x for x, _ in job.examples.in_order(size)),
            next(job.examples.in_order(1))[0],
            mu0=self.settings.mu0,
            a1=self.settings.a1,
            a2=self.settings.a2,
            width=self.settings.width,
            classifier=self.settings.classifier,
        )
        self.metrics = diagnostics(found, job.lr)
        return Plan(
            factors={i: found.factors[name] for i, name in enumerate(job.parameters) if name in found.factors}
        )

    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        """The diagnostics go back."""
        return Returned(metrics=self.metrics), {}


class NeuronSGD(torch.optim.Optimizer):
    """SGD with one rate per neuron, for training loops of one's own.

    `model`: its trainable parameters are optimised; `rates`: from `network_rates`; `lr` > 0 is eta,
    `momentum` in [0, 1), `weight_decay` >= 0. The rate of a parameter is `group["lr"]` times its factor,
    so torch's schedulers work. Multiplies whatever gradient the objective gives (A5-11).
    Raises ValueError for values out of range or a factor for a parameter that the model does not have.
    """

    def __init__(
        self,
        model: nn.Module,
        rates: NetworkRates | Mapping[str, torch.Tensor],
        *,
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        if not 0.0 < lr < math.inf:
            raise ValueError(f"lr = {lr!r} is not allowed: lr must be a finite number greater than 0")
        if not 0.0 <= momentum < 1.0:
            raise ValueError(f"momentum = {momentum!r} is not allowed: momentum must be in [0, 1)")
        if not 0.0 <= weight_decay < math.inf:
            raise ValueError(f"weight_decay = {weight_decay!r} is not allowed: a finite number of at least 0 is")
        factors = rates.factors if isinstance(rates, NetworkRates) else dict(rates)
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        strange = sorted(set(factors) - {name for name, _ in model.named_parameters()})
        if strange:
            raise ValueError(f"rates for parameters that the model does not have: {strange[:5]}")
        self._factors = {id(parameter): factors[name] for name, parameter in named if name in factors}
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__([parameter for _, parameter in named], defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step with the gradients at hand; parameters without one stay."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            velocity = [self.state[parameter].get("velocity") for parameter in moved]
            sgd_step_(
                moved,
                [parameter.grad for parameter in moved],
                velocity,
                lr=group["lr"],
                momentum=group["momentum"],
                weight_decay=group["weight_decay"],
                factors={i: self._factors[id(p)] for i, p in enumerate(moved) if id(p) in self._factors},
            )
            for parameter, v in zip(moved, velocity, strict=True):
                if v is not None:
                    self.state[parameter]["velocity"] = v
        return loss
