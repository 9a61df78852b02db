"""FedLAW: weights of the clients and one shrinking factor, learnt at the server (Li et al., ICML 2023).

It uses EXTRA DATA: a proxy set D of examples that the server has, balanced by class. Most methods have none.

    lambda = softmax(x),  gamma = exp(g);   each round starts at x_k = ln p_k, g = 0             (LA1)
    W(x, g) = gamma sum_k lambda_k w_k;  for each batch of D one step of Adam on (x, g), whose
    loss is the cross-entropy of the network with the parameters W                               (LA2)
    w^ = W(x, g) after the last epoch                                                            (LA3)

The network's gradient at W, written G below, is all that is needed of it. With w_ = sum_k lambda_k w_k:

    d loss / d g = gamma <G, w_>        d loss / d x_j = gamma lambda_j <G, w_j - w_>

Adam has the betas 0.5 and 0.999 and epsilon 1e-8; its rate is halved every 20 epochs. D is shuffled in each epoch,
drawn from (seed, "fedlaw", round, epoch). x and g are forgotten after the round.

BatchNorm: the network is in train mode, so its buffers are those of D. They begin as they were sent, and the
result has them as they are at the end: the clients' buffers are not used. This module knows no network: it
gets `Proxy`, which has one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
from typing_extensions import Unpack

from fedstride import seeds
from fedstride.arrays.finite import held_of, put_back, taken_out
from fedstride.arrays.float64_sums import float64, total
from fedstride.arrays.named import Arrays, Layout, like
from fedstride.errors import given, require
from fedstride.settings import MOST_EPOCHS, MOST_STEPS, Setting, check

from .replies.cohort import Cohort
from .replies.declared_needs import Needs
from .shell.rule_strategy import RuleOptions, RuleStrategy, Weighting
from .shell.stack import Metrics, RoundResult
from .sums.blocks import blockwise, inner_products
from .sums.updates import Updates, updates_of

BETAS = (0.5, 0.999)
EPSILON = 1e-8
HALVED_EVERY = 20  # epochs


class Gradient(NamedTuple):
    """The loss of a model on some examples, mean over them, and what it says of the model's arrays."""

    loss: float
    parameters: Arrays  # its gradient, by parameter, in any float dtype
    buffers: Arrays  # the model's buffers after this forward pass in train mode; those that do not change may miss


class Proxy(Protocol):
    """A proxy set with a network."""

    def __len__(self) -> int:
        """The number of its examples, at least 1."""

    def gradient(self, model: Arrays, positions: np.ndarray, seed: int) -> Gradient:
        """Loss and gradient of the network with these arrays, in train mode, on the examples at these positions.

        `seed`: of draws inside the network, such as dropout. Equal arguments must give equal bits.
        """


# ---------------------------------------------------------------- the rule


@dataclass
class Adam:
    """Adam (Kingma, Ba, ICLR 2015) on a list of numbers, which `step` changes in place."""

    values: list[float]
    first: list[float] = field(default_factory=list)
    second: list[float] = field(default_factory=list)
    count: int = 0

    def step(self, gradient: Sequence[float], rate: float) -> None:
        """One step. The first has the length rate |g| / (|g| + 1e-8) in each number."""
        a, b = BETAS
        self.count += 1
        zeros = [0.0] * len(self.values)
        self.first = [a * m + (1.0 - a) * g for m, g in zip(self.first or zeros, gradient, strict=True)]
        self.second = [b * v + (1.0 - b) * g * g for v, g in zip(self.second or zeros, gradient, strict=True)]
        m_scale, v_scale = 1.0 - a**self.count, 1.0 - b**self.count
        for i, (m, v) in enumerate(zip(self.first, self.second, strict=True)):
            self.values[i] -= rate * (m / m_scale) / (math.sqrt(v / v_scale) + EPSILON)


def softmax(x: Sequence[float]) -> list[float]:
    """exp(x_k), divided by their sum; a common shift of x changes nothing but rounding."""
    largest = max(x)
    raw = [math.exp(x_k - largest) for x_k in x]
    whole = total(raw)
    return [term / whole for term in raw]


@dataclass(frozen=True)
class Mixture:
    """W as a function of (x, g), for the models of a round. Parameters that no client changed are as sent."""

    sent: Arrays
    updates: Updates
    names: tuple[str, ...]  # the parameters that a client changed

    @classmethod
    def of(cls, sent: Arrays, models: Sequence[Arrays]) -> Mixture:
        """The mixture of these models."""
        updates = updates_of(sent, models)
        return cls(sent, updates, tuple(n for n in Layout.of(sent).parameters if updates.is_changed(n)))

    def at(self, values: Sequence[float], buffers: Arrays) -> Arrays:
        """W with these buffers, in the sent dtypes and order; `values` is (x_1, ..., x_m, g)."""
        gamma = math.exp(values[-1])
        mean = self.updates.summed(softmax(values[:-1]))
        moving = {name: self.sent[name] for name in self.names}
        moved = blockwise(lambda w, d: like(gamma * (float64(w) + d), w), moving, mean)
        return {name: moved.get(name, buffers.get(name, array)) for name, array in self.sent.items()}

    def gradient(self, values: Sequence[float], of_model: Arrays) -> list[float]:
        """The gradient by (x_1, ..., x_m, g), from that of the loss at W, by parameter."""
        weights, gamma = softmax(values[:-1]), math.exp(values[-1])
        G = {name: float64(array) for name, array in of_model.items()}
        products = self.updates.products(G)  # <G, w_k - w>
        mean = total(share * product for share, product in zip(weights, products, strict=True))
        by_weights = [gamma * share * (product - mean) for share, product in zip(weights, products, strict=True)]
        along = total(inner_products(G, self.sent, self.names).values())  # <G, w>
        return [*by_weights, gamma * (along + mean)]


@dataclass(frozen=True)
class Learnt:
    """What a round has learnt."""

    model: Arrays  # w^, in the sent dtypes
    weights: list[float]  # lambda
    gamma: float
    losses: list[float]  # mean loss of the batches of each epoch


def learnt(
    sent: Arrays,
    models: Sequence[Arrays],
    shares: Sequence[float],
    proxy: Proxy,
    *,
    epochs: int,
    lr: float,
    batch_size: int,
    seed: int,
    server_round: int,
) -> Learnt:
    """w^ (LA3), with what was learnt. Without epochs it has FedAvg's parameters; its buffers are those sent.

    If no client changed a parameter, there is nothing to weigh, and w^ is the model that was sent.
    """
    mixture, held = Mixture.of(sent, models), held_of(sent)
    adam = Adam([*map(math.log, shares), 0.0])
    buffers = {name: sent[name] for name in Layout.of(sent).buffers}
    losses = []
    for epoch in range(epochs if mixture.names else 0):
        rate = lr * 0.5 ** (epoch // HALVED_EVERY)
        order = seeds.generator(seed, "fedlaw", server_round, epoch).permutation(len(proxy))
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        batch_losses = []
        for number, positions in enumerate(batches):
            drawn = seeds.derive(seed, "fedlaw dropout", server_round, epoch * len(batches) + number)
            at_w = proxy.gradient(put_back(mixture.at(adam.values, buffers), held), positions, drawn)
            buffers |= taken_out({n: array for n, array in at_w.buffers.items() if n in buffers}, held)
            adam.step(mixture.gradient(adam.values, taken_out(at_w.parameters, held)), rate)
            batch_losses.append(at_w.loss)
        losses.append(total(batch_losses) / len(batch_losses))
    weights, gamma = softmax(adam.values[:-1]), math.exp(adam.values[-1])
    return Learnt(mixture.at(adam.values, buffers), weights, gamma, losses)


# ---------------------------------------------------------------- the strategy


class FedLAW(RuleStrategy):
    """FedLAW as a Flower strategy. It uses extra data at the server, `proxy`, which FedAvg does not have.

    `proxy`: the proxy set and the network, see `Proxy`. In a run it is made from `task.proxy`; the examples are
    then in no test set and in no client's training set, of any method that is run with the same value.
    `server_epochs` E_s >= 0, passes over the proxy set in each round; `lr` > 0, Adam's rate; `batch_size` >= 1.

    gamma is not clamped and can exceed 1 (B-29). It cannot be inside FedLWS, AdaDecay or AWD, which shrink the
    model too. Parameters that no client changed are neither weighed nor shrunk.

    Metrics: `fedlaw/gamma`; `fedlaw/weight_min`, `fedlaw/weight_max`, the smallest and largest lambda_k;
    `fedlaw/proxy_examples`; with epochs also `fedlaw/loss_first`, `fedlaw/loss_last`, the mean loss on the proxy
    set during the first and the last one.
    """

    needs = Needs.EACH

    def __init__(
        self,
        *,
        proxy: Proxy | None = None,
        server_epochs: Annotated[
            int, Setting("E_s, passes over the proxy set in each round", least=0, most=MOST_EPOCHS)
        ] = 100,
        lr: Annotated[
            float, Setting("Adam's rate; the authors have 0.01 for CIFAR-10, else 0.005", above=0)
        ] = 0.005,
        batch_size: Annotated[
            int, Setting("number of proxy examples in a mini-batch", least=1, most=MOST_STEPS)
        ] = 128,
        weighting: Weighting = "examples",
        **options: Unpack[RuleOptions],
    ) -> None:
        super().__init__(weighting=weighting, **options)
        check(FedLAW, locals())
        self.proxy = proxy
        self.server_epochs = server_epochs
        self.lr = lr
        self.batch_size = batch_size
        self.server_round = 0

    def begin_round(self, server_round: int, asked: int) -> None:
        """The round is kept for the aggregation. Raises ConfigError without a proxy set."""
        self._present()
        self.server_round = server_round

    def check_model(self, model: Arrays) -> None:
        """Raises ConfigError if a last mini-batch has one example, which has no variance for BatchNorm."""
        rest = 0 if self.proxy is None else len(self.proxy) % self.batch_size
        size = self.batch_size if rest == 0 else rest
        normalises = any(name.endswith("running_var") for name in model)
        require(
            self.proxy is None or size > 1 or not normalises,
            "batch_size",
            self.batch_size,
            f"one that does not leave a single example of {len(self.proxy or ())} for the last mini-batch: the "
            "model has BatchNorm",
        )

    def rule(self, sent: Arrays, cohort: Cohort, state: Any) -> RoundResult:
        """See `learnt`."""
        proxy = self._present()
        fit = learnt(
            sent,
            cohort.models,
            cohort.shares(self.weighting),
            proxy,
            epochs=self.server_epochs,
            lr=self.lr,
            batch_size=self.batch_size,
            seed=self.seed,
            server_round=self.server_round,
        )
        metrics: Metrics = {
            "fedlaw/gamma": fit.gamma,
            "fedlaw/weight_min": min(fit.weights),
            "fedlaw/weight_max": max(fit.weights),
            "fedlaw/proxy_examples": len(proxy),
        }
        if fit.losses:
            metrics |= {"fedlaw/loss_first": fit.losses[0], "fedlaw/loss_last": fit.losses[-1]}
        return RoundResult(fit.model, state, metrics)

    def _present(self) -> Proxy:
        return given("proxy", self.proxy, "a proxy set with a network; see strategies.fedlaw.Proxy")
