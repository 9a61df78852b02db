"""A slow, plain computation of the methods of docs/methods.md, with which the tests compare the code.

Written from the equations and decisions of that page alone, and without the code. A model is a dict of arrays in
order, parameters and buffers. All arithmetic is float64. Parameters are returned in float64 and are not cast back.
Integer and boolean buffers keep the dtype that was sent, because this dtype is what makes them buffers; their
averages are whole numbers already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Model = dict[str, Array]
Gradient = Callable[[Model], Model]

BUFFER_NAMES = ("running_mean", "running_var", "num_batches_tracked")
TIE = 1e-12  # a vote whose share is this close to one half is a tie


# ---- what a model is made of ----
def is_buffer(name: str, array: Array) -> bool:
    return name.split(".")[-1] in BUFFER_NAMES or np.asarray(array).dtype.kind in "iub"


def parameters(model: Model) -> list[str]:
    return [name for name, array in model.items() if not is_buffer(name, array)]


def module_of(name: str) -> str:
    """The name up to its last dot; a name without a dot is a layer of its own."""
    return name.rsplit(".", 1)[0]


def layers(model: Model) -> dict[str, list[str]]:
    """grouping="module": the parameters of each layer, in order of first appearance."""
    result: dict[str, list[str]] = {}
    for name in parameters(model):
        result.setdefault(module_of(name), []).append(name)
    return result


def reference_groups(model: Model) -> list[list[str]]:
    """grouping="reference" (A3-3): a group ends with each parameter whose name contains "bias"."""
    groups: list[list[str]] = []
    rest: list[str] = []
    for name in parameters(model):
        rest.append(name)
        if "bias" in name:
            groups.append(rest)
            rest = []
    if rest and groups:
        groups[-1] = groups[-1] + rest
    elif rest:
        groups.append(rest)
    return groups


# ---- arithmetic ----
def f64(array: Array) -> Array:
    return np.array(array, dtype=np.float64)


def inner_product(a: Model, b: Model, names: Sequence[str]) -> float:
    return float(sum(np.sum(f64(a[name]) * f64(b[name])) for name in names))


def norm(a: Model, names: Sequence[str]) -> float:
    return float(np.sqrt(inner_product(a, a, names)))


def unit(g: Model) -> Model:
    length = norm(g, list(g))
    return {name: g[name] / length if length > 0.0 else np.zeros_like(g[name]) for name in g}


def difference(a: Model, b: Model) -> Model:
    """a - b over the parameters."""
    return {name: f64(a[name]) - f64(b[name]) for name in parameters(b)}


def zeros(model: Model) -> Model:
    return {name: np.zeros_like(f64(model[name])) for name in parameters(model)}


def weighted_sum(models: Sequence[Model], weights: Sequence[float]) -> Model:
    pairs = list(zip(models, weights, strict=True))
    return {name: np.asarray(sum(x * f64(model[name]) for model, x in pairs)) for name in models[0]}


def rounding(model: Model, names: Sequence[str]) -> float:
    """eps ||w||, of arrays that may differ in dtype."""
    return float(np.sqrt(sum((np.finfo(model[n].dtype).eps * norm(model, [n])) ** 2 for n in names)))


def build(sent: Model, step: Model, buffers: Model) -> Model:
    """sent + step for the parameters, the given buffers for the rest, in the order of `sent`."""
    return {n: buffers[n] if n in buffers else f64(array) + step[n] for n, array in sent.items()}


def average_buffers(sent: Model, clients: Sequence[Model], shares: Sequence[float]) -> Model:
    names = [name for name, array in sent.items() if is_buffer(name, array)]
    result = weighted_sum([{name: client[name] for name in names} for client in clients], shares)
    for name, mean in result.items():
        kind = sent[name].dtype.kind
        if kind == "b":
            result[name] = np.where(np.abs(mean - 0.5) <= TIE, sent[name], mean > 0.5)
        elif kind in "iu":
            result[name] = np.asarray(np.rint(mean)).astype(sent[name].dtype)  # rint: half to even
    return result


# ---- 1 FedNNNN, Momentum ----
class FedNNNN:
    """Keeps d (eq. 12). `skipped`: A1-4 held, so w' = w (with `per_layer`: it held for every layer)."""

    def __init__(self, beta: float, gamma: float, per_layer: bool = False) -> None:
        self.beta, self.gamma, self.per_layer = beta, gamma, per_layer
        self.d: Model = {}

    def round(self, sent: Model, clients: Sequence[Model], shares: Sequence[float]) -> dict[str, Any]:
        names = parameters(sent)
        self.d = self.d or zeros(sent)
        deltas = [difference(client, sent) for client in clients]
        mean = weighted_sum(deltas, shares)

        def n_and_e(group: Sequence[str]) -> tuple[float, float]:
            expected = sum(share * norm(delta, group) for share, delta in zip(shares, deltas, strict=True))
            return norm(mean, group), float(expected)

        parts = layers(sent)
        step = zeros(sent)
        moved = False
        for group in list(parts.values()) if self.per_layer else [names]:
            n, e = n_and_e(group)
            moved_arrays = [x for x in group if any(np.any(client[x] != sent[x]) for client in clients)]
            if n <= 1e-8 * e or (n <= e / 2 and n <= rounding(sent, moved_arrays)):
                continue  # A1-4: w' = w, d' = d
            moved = True
            for name in group:
                self.d[name] = self.gamma * self.d[name] + self.beta * (e / n) * mean[name]
                step[name] = self.d[name]
        buffers = average_buffers(sent, clients, shares)
        whole_n, whole_e = n_and_e(names)
        return {
            "average": build(sent, mean, buffers),
            "sent": build(sent, step, buffers),
            "N": whole_n,
            "E": whole_e,
            "skipped": not moved,
            "layer_N": {layer: n_and_e(group)[0] for layer, group in parts.items()},
            "layer_E": {layer: n_and_e(group)[1] for layer, group in parts.items()},
        }


class Momentum:
    """d' = gamma d + mean update, w' = w + d' (eq. 10, 11)."""

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self.d: Model = {}

    def round(self, sent: Model, clients: Sequence[Model], shares: Sequence[float]) -> Model:
        mean = weighted_sum([difference(client, sent) for client in clients], shares)
        self.d = self.d or zeros(sent)
        self.d = {name: self.gamma * self.d[name] + mean[name] for name in mean}
        return build(sent, self.d, average_buffers(sent, clients, shares))


# ---- 2 Fedalr ----
class Fedalr:
    """Keeps G and t. `scale` is "unit", "mean_norm" or "raw" (A2-1, A2-2); weights are 1/m (A2-4)."""

    def __init__(self, scale: str, server_lr: float) -> None:
        assert scale in ("unit", "mean_norm", "raw")
        self.scale, self.server_lr, self.t = scale, server_lr, 0
        self.G: Model = {}

    def round(self, sent: Model, clients: Sequence[Model]) -> dict[str, Any]:
        names, m = parameters(sent), len(clients)
        shares = [1.0 / m] * m
        g = [difference(sent, client) for client in clients]
        u = [unit(one) for one in g]
        self.t += 1
        mean_u = weighted_sum(u, shares)
        before = self.G or zeros(sent)
        self.G = {n: mean_u[n] / self.t + before[n] * (self.t - 1) / self.t for n in names}
        g_norm = norm(self.G, names)
        c = [inner_product(one, self.G, names) for one in u]  # 0 where u_k = 0 (A2-5)
        eta = [float(np.exp(one - 1.0)) for one in c]
        s = self.server_lr * (sum(norm(one, names) for one in g) / m if self.scale == "mean_norm" else 1.0)
        direction = weighted_sum(g if self.scale == "raw" else u, [one / m for one in eta])
        step = {name: -s * direction[name] for name in names}
        return {
            "model": build(sent, step, average_buffers(sent, clients, shares)),
            "eta": eta,
            "c": c,
            "cosine": [one / g_norm if g_norm > 0.0 else 0.0 for one in c],  # ||u_k|| is 1, or c is 0
            "G_norm": g_norm,
            "step": norm(step, names),
        }


# ---- 3 FedLWS ----
def lws_groups(model: Model, granularity: str, grouping: str) -> dict[str, list[str]]:
    if granularity == "model":
        return {"model": parameters(model)}
    assert granularity == "layer" and grouping in ("module", "reference")
    if grouping == "module":
        return layers(model)
    groups = reference_groups(model)
    labelled = {module_of(group[0]): group for group in groups}
    if len(labelled) != len(groups):
        raise ValueError("two groups would have the same label")
    return labelled


def fedlws(
    sent: Model,
    clients: Sequence[Model],
    result: Model,
    *,
    beta: float,
    granularity: str = "layer",
    grouping: str = "module",
    tau_min: float | None = None,
    tau_max: float | None = None,
    terms: str = "both",
    fixed: Sequence[float] | None = None,
) -> dict[str, Any]:
    """`result` is the wrapped strategy's model (the one that is sent on); its buffers pass unchanged."""
    groups = lws_groups(sent, granularity, grouping)
    if fixed is not None and len(fixed) != len(groups):
        raise ValueError(f"{len(fixed)} factors for {len(groups)} groups")
    m = len(clients)
    g = [difference(client, sent) for client in clients]
    mean_g = weighted_sum(g, [1.0 / m] * m)  # A3-2: unweighted
    s = difference(result, sent)
    model = {name: np.array(a) if is_buffer(name, a) else f64(a) for name, a in result.items()}
    trained = [n for n in parameters(sent) if any(np.any(client[n] != sent[n]) for client in clients)]
    gamma: dict[str, float] = {}
    tau: dict[str, float] = {}
    for index, (label, names) in enumerate(groups.items()):
        group = [name for name in names if name in trained]  # A3-11
        tau[label] = sum(norm(difference(one, mean_g), group) for one in g) / m
        product = max(beta * tau[label], -np.inf if tau_min is None else tau_min)
        product = min(product, np.inf if tau_max is None else tau_max)
        length = norm(sent, group)
        # A3-6: a layer of zeros is not shrunk; with ||w_l|| > 0 the denominator is positive
        gamma[label] = 1.0 if length == 0.0 else length / (product * norm(s, group) + length)
        if fixed is not None and group:
            gamma[label] = float(fixed[index])
        for name in group:
            factor, w = gamma[label], f64(sent[name])
            shrunk = {  # A3-7
                "both": factor * f64(result[name]),
                "optimization": w + factor * s[name],
                "regularization": factor * w + s[name],
            }
            model[name] = np.asarray(shrunk[terms])
    return {"model": model, "gamma": gamma, "tau": tau}


# ---- 4 2D-LRD ----
class Pflug:
    """`S_before` is S after adding this round's inner product and before the test, `S` after the test."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.r, self.r0, self.d, self.S = 0, 0, 0, 0.0
        self.g: Model = {}

    def round(self, theta_prev: Model, theta: Model) -> dict[str, Any]:
        self.r += 1
        g = difference(theta, theta_prev)
        inner = inner_product(g, self.g, list(g)) if self.g else 0.0  # g_0 = 0
        self.g = g
        self.S += inner
        s_before = self.S
        triggered = self.r > self.window + self.r0 and self.S < 0.0
        if triggered:
            self.d += 1
            self.S, self.r0 = 0.0, self.r
        return {"S_before": s_before, "S": self.S, "inner": inner, "d": self.d, "triggered": triggered}


def rates(eta0: float, C: float, d: int, tau: int, decay: str = "2d") -> list[float]:
    """The rates eta_0 ... eta_{tau-1} of one round; one rate only after the switch (A4-6)."""
    if decay == "all":  # A4-7: no switch is named for it
        return [eta0 * 0.8**d for _ in range(tau)]
    if not C * d < 1.0 - 1e-9:  # A4-3
        return [eta0]
    alpha = 1.0 - C * d
    if decay == "2d":
        return [eta0 * alpha**j for j in range(tau)]
    if decay == "additive":
        return [eta0 if j == 0 else eta0 * alpha for j in range(tau)]
    raise ValueError(decay)


# ---- 5 FedNLR ----
def fednlr_rates(
    h_mean: Array,
    eta: float,
    *,
    layer_index: int,
    n_layers: int,
    units: int,
    mu0: float = 1.0,
    a1: float = 1.0,
    a2: float = 1.0,
) -> Array:
    """The rates of one layer's neurons; `layer_index` is l = 1 ... L, `units` is M_l of eq. 17."""
    h = f64(h_mean)
    mu = mu0 + a1 * layer_index / n_layers + a2 * np.log10(units)
    spread = h.max() - h.min()
    if len(h) == 1 or spread == 0.0 or mu <= 1.0:  # A5-7
        return np.full(len(h), eta, dtype=np.float64)
    temperature = spread / np.log(mu)
    exponentials = np.exp((h - h.max()) / temperature)  # A5-8
    return np.asarray(eta * len(h) * exponentials / exponentials.sum())


# ---- SCAFFOLD and FedDyn (docs/methods.md, "Baselines"): server and clients ----
class Scaffold:
    """Keeps c and all c_k. `round` is the server's (SC3, SC4), `client` a round of one of them (SC1, SC2)."""

    def __init__(self, num_clients: int, server_lr: float = 1.0) -> None:
        self.num_clients, self.server_lr = num_clients, server_lr
        self.c: Model = {}
        self.of_client: dict[int, Model] = {}

    def client(self, k: int, sent: Model, gradient: Gradient, rates: Sequence[float], rho: float = 0.0) -> Any:
        """w_k and delta_k of a client with this gradient; it keeps c_k+."""
        w, c, c_k = difference(sent, zeros(sent)), self.c or zeros(sent), self.of_client.get(k) or zeros(sent)
        velocity = zeros(sent)
        for eta in rates:
            g = gradient(w)
            velocity = {n: rho * velocity[n] + g[n] for n in w}
            w = {n: w[n] - eta * velocity[n] for n in w}  # OPT
            w = {n: w[n] - eta * (c[n] - c_k[n]) for n in w}  # SC1
        H = sum(rates)
        kept = {n: c_k[n] - c[n] + (f64(sent[n]) - w[n]) / H for n in w} if H else c_k
        self.of_client[k] = kept
        return {**sent, **w}, {n: kept[n] - c_k[n] for n in w}

    def round(self, sent: Model, clients: Sequence[Model], deltas: Sequence[Model]) -> Model:
        m = len(clients)
        mean = weighted_sum([difference(client, sent) for client in clients], [1.0 / m] * m)
        added = weighted_sum(deltas, [1.0 / self.num_clients] * m)
        c = self.c or zeros(sent)
        self.c = {n: c[n] + added[n] for n in c}
        step = {n: self.server_lr * mean[n] for n in mean}
        return build(sent, step, average_buffers(sent, clients, [1.0 / m] * m))


class FedDyn:
    """Keeps u and all u_k. `round` is the server's (DY4, DY5), `client` a round of one of them (DY2, DY3)."""

    def __init__(self, num_clients: int, alpha: float) -> None:
        self.num_clients, self.alpha = num_clients, alpha
        self.u: Model = {}
        self.of_client: dict[int, Model] = {}

    def client(self, k: int, sent: Model, gradient: Gradient, rates: Sequence[float]) -> Model:
        """w_k of a client with this gradient; it keeps u_k."""
        start = difference(sent, zeros(sent))
        w, u_k = start, self.of_client.get(k) or zeros(sent)
        for eta in rates:
            g = gradient(w)
            w = {n: w[n] - eta * (g[n] + self.alpha * (w[n] - start[n]) + self.alpha * u_k[n]) for n in w}
        self.of_client[k] = {n: u_k[n] + (w[n] - start[n]) for n in w}
        return {**sent, **w}

    def round(self, sent: Model, clients: Sequence[Model], shares: Sequence[float] | None = None) -> Model:
        """With `shares`, these replace 1/N and 1/m (weights=size)."""
        m = len(clients)
        deltas = [difference(client, sent) for client in clients]
        added = weighted_sum(deltas, shares or [1.0 / self.num_clients] * m)
        u = self.u or zeros(sent)
        self.u = {n: u[n] + added[n] for n in u}
        p = list(shares or [1.0 / m] * m)
        mean = weighted_sum(deltas, p)
        return build(sent, {n: mean[n] + self.u[n] for n in mean}, average_buffers(sent, clients, p))


# ---- models to try them on ----
def make_model(rng: np.random.Generator, dtype: npt.DTypeLike = np.float32) -> Model:
    def normal(*shape: int) -> Array:
        return rng.normal(size=shape).astype(dtype)

    return {
        "conv1.weight": normal(4, 3, 3, 3),
        "conv1.bias": normal(4),
        "bn1.weight": normal(4),
        "bn1.bias": normal(4),
        "bn1.running_mean": normal(4),
        "bn1.running_var": rng.uniform(0.5, 1.5, size=4).astype(dtype),
        "bn1.num_batches_tracked": np.array(rng.integers(0, 100), dtype=np.int64),
        "fc.weight": normal(5, 8),
        "fc.bias": normal(5),
        "scale": normal(3),
    }


def make_clients(rng: np.random.Generator, model: Model, m: int, size: float = 0.1) -> list[Model]:
    return [{name: perturbed(rng, name, array, size) for name, array in model.items()} for _ in range(m)]


def perturbed(rng: np.random.Generator, name: str, array: Array, size: float) -> Array:
    if array.dtype.kind == "b":
        return np.asarray(rng.random(array.shape) < 0.5)
    if array.dtype.kind in "iu":
        return np.asarray(array + rng.integers(1, 50, size=array.shape)).astype(array.dtype)
    noise = size * rng.normal(size=array.shape)
    if name.endswith("running_var"):
        return np.asarray(f64(array) * np.exp(noise)).astype(array.dtype)  # stays positive
    return np.asarray(f64(array) + noise).astype(array.dtype)
