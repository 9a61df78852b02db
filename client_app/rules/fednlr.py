"""FedNLR: neuron-wise learning rates on the client (Wang et al., KDD 2024).

    h_li  = (1/|D_k|) sum_x h_li(x)                        mean activation     (eq. 14)
    mu_l  = mu_0 + a_1 l/L + a_2 log10(M_l)                                    (eq. 17)
    T_l   = (max_i h_li - min_i h_li) / ln mu_l                                (eq. 16)
    p_li  = exp(h_li / T_l) / sum_j exp(h_lj / T_l)
    eta_li = eta M'_l p_li                                                     (eq. 15)
    W_li <- W_li - eta_li df/dW_li                                             (eq. 18)

The layers l = 1 ... L are those that hold neurons, in order of execution; the classifier is l = L.
`neurons.py` says which layers these are. Layer l has M'_l neurons, each with its own row of weights, so the
mean rate of a layer is eta. M_l counts the units with their positions, or the channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from fedstride.tasks.evaluation.measuring import EVALUATION_BATCH

from ..registry import FedNLRSettings
from ..training.method import Job, Method, Plan, Received, Result, Returned, State
from ..training.step import sgd_step_
from .neurons import find_layers, mean_activations

# ---------------------------------------------------------------- the rule


@dataclass(frozen=True)
class Rates:
    """The rates of one layer, as factors of eta."""

    factors: torch.Tensor | None  # float64 (neurons,), mean 1; None where all are 1 exactly
    mu: float
    temperature: float  # T_l; 0 if the factors are all 1


def discrepancy(layer: int, layers: int, width: int, *, mu0: float, a1: float, a2: float) -> float:
    """mu_l of layer l = 1 ... L with M_l = width (eq. 17)."""
    return mu0 + a1 * layer / layers + a2 * math.log10(width)


def neuron_rates(activations: torch.Tensor, mu: float) -> Rates:
    """The factors M'_l p_li from the mean activations h_li, shape (neurons,) (eq. 15, 16).

    The factors are float64 of the same shape; max/min of them is mu. All are 1 if the activations are all
    equal, mu is at most 1, or there is only one neuron (A5-7). They are also 1 if an activation is not
    finite, because such activations do not rank the neurons. The softmax is taken after subtracting the
    maximum (A5-8).
    """
    h = activations.double()
    h_range = float(h.max() - h.min())
    if not 0.0 < h_range < math.inf or mu <= 1.0 or len(h) == 1:
        return Rates(None, mu, 0.0)
    temperature = h_range / math.log(mu)
    # With T from eq. 16, (h - max) / T = (h - max) ln(mu) / range, which cannot overflow.
    p = torch.exp((h - h.max()) / h_range * math.log(mu))
    return Rates(len(h) * p / p.sum(), mu, temperature)


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
    exclude: Sequence[str] = (),
) -> NetworkRates:
    """Factors of the rate eta for the parameters of a network, from one pass over the local data (eq. 14-17).

    `batches`: inputs of the model, a tensor per mini-batch; h is averaged over all of them. `example`: one
    batch of one example, which shows the layers in a forward pass of its own. `mu0`, `a1`, `a2` >= 0: see eq.
    17. `width`: M_l counts "units" with their positions or "channels" (A5-4). `classifier=False` leaves the
    classifier at eta (A5-6). `exclude`: patterns (fnmatch, such as "attention.*") of names of linear and
    convolution modules that keep eta and do not count as layers.

    The bias of a neuron has the factor of the neuron, and so have weight and bias of a BatchNorm that takes
    the layer's output immediately. Any other parameter keeps eta (A5-9), and so does a parameter that two
    modules share (A5-15). A layer whose parameters are all frozen counts, and has no rates. `neurons.py` says
    which layers hold neurons, which nonlinearity gives h, and which layer is the classifier (A5-14); a model that
    returns no tensor has no classifier.

    Both passes run in eval mode, without gradients, and change no buffer, mode or random state of torch (A5-10).
    Raises ConfigError (a ValueError) if a pattern of `exclude` matches no linear or convolution module, and
    ValueError if `batches` is empty.
    """
    layers = find_layers(model, example, exclude)
    means = mean_activations(model, layers, batches)
    parameter_names = {id(parameter): name for name, parameter in model.named_parameters()}
    result = NetworkRates()
    for number, (layer, h) in enumerate(zip(layers, means, strict=True), start=1):
        if not any(parameter.requires_grad for parameter in layer.parameters):
            continue
        count = layer.width if width == "units" else layer.neurons
        mu = discrepancy(number, len(layers), count, mu0=mu0, a1=a1, a2=a2)
        rates = Rates(None, mu, 0.0) if layer.last and not classifier else neuron_rates(h, mu)
        result.layers[layer.name] = rates
        if rates.factors is None:
            continue
        for parameter in layer.parameters:
            shape = (-1, *[1] * (parameter.dim() - 1))
            result.factors[parameter_names[id(parameter)]] = rates.factors.to(parameter.dtype).reshape(shape)
    return result


def diagnostics(rates: NetworkRates, lr: float) -> dict[str, float]:
    """Smallest, largest and mean rate, T_l, mu_l and the share of neurons below eta, for each layer (A5-13).

    The names end with the layer's name. Layers without neurons and excluded layers have no metrics.
    """
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
    """Sets the rates of the neurons for one round."""

    def __init__(self, settings: FedNLRSettings) -> None:
        self.settings = settings

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """A plan with a factor for each neuron, from one pass over the client's examples.

        Raises ConfigError if a pattern of `exclude` matches no linear or convolution module of the model.
        """
        rates = network_rates(
            job.model,
            (x for x, _ in job.examples.in_order(EVALUATION_BATCH)),
            next(job.examples.in_order(1))[0],
            mu0=self.settings.mu0,
            a1=self.settings.a1,
            a2=self.settings.a2,
            width=self.settings.width,
            classifier=self.settings.classifier,
            exclude=self.settings.exclude or (),
        )
        self.metrics = diagnostics(rates, job.lr)
        return Plan(
            factors={i: rates.factors[name] for i, name in enumerate(job.parameters) if name in rates.factors}
        )

    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        """The diagnostics of the rates, as metrics; no state."""
        return Returned(metrics=self.metrics), {}


class NeuronSGD(torch.optim.Optimizer):
    """SGD with one rate per neuron, for your own training loop.

    `model`: its trainable parameters are optimised. `rates`: the result of `network_rates`, or factors by
    parameter name, broadcastable to the parameters. `lr` > 0 is eta; `momentum` is in [0, 1), `weight_decay`
    >= 0. The rate of a parameter is `group["lr"]` times its factor, so torch's schedulers work. Momentum
    accumulates the raw gradient, and the factor multiplies the velocity; weight decay is part of the gradient
    (A5-11). Raises ValueError for a value out of range, or for a factor of a parameter that the model does
    not have.
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
            raise ValueError(
                f"weight_decay = {weight_decay!r} is not allowed: it must be a finite number of at least 0"
            )
        factors = rates.factors if isinstance(rates, NetworkRates) else dict(rates)
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        unknown = sorted(set(factors) - {name for name, _ in model.named_parameters()})
        if unknown:
            raise ValueError(
                f"rates contains names that are not parameters of the model: {unknown[:5]}; make the rates with "
                "network_rates for this model"
            )
        self._factors = {id(parameter): factors[name] for name, parameter in named if name in factors}
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__([parameter for _, parameter in named], defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step with the current gradients; a parameter without a gradient does not change."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            velocity = [self.state[parameter].get("velocity") for parameter in parameters]
            sgd_step_(
                parameters,
                [parameter.grad for parameter in parameters],
                velocity,
                lr=group["lr"],
                momentum=group["momentum"],
                weight_decay=group["weight_decay"],
                factors={i: self._factors[id(p)] for i, p in enumerate(parameters) if id(p) in self._factors},
            )
            for parameter, v in zip(parameters, velocity, strict=True):
                if v is not None:
                    self.state[parameter]["velocity"] = v
        return loss
