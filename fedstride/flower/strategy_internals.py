"""Flower's own strategies: what they keep between rounds, and what they do with buffers and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from flwr.serverapp import strategy as _strategies
from flwr.serverapp.exception import AggregationError as AggregationError  # private from 1.21 on
from flwr.serverapp.strategy import Strategy
from flwr.serverapp.strategy.fedopt import FedOpt
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

AVERAGES_METRICS = aggregate_metricrecords
"""The default `train_metrics_aggr_fn` of a Flower strategy (from 1.21 on; private in all versions)."""

ADAPTIVE: tuple[Any, ...] = (
    *([_strategies.FedAvgM] if hasattr(_strategies, "FedAvgM") else []),  # not in 1.21
    FedOpt,
)
"""Flower's strategies whose server optimiser treats buffers like parameters (1.39 to 1.42). A momentum or Adam
step on a running variance can make it negative, so our wrappers replace the buffers in the result by their
averages."""


READS_METRICS: tuple[Any, ...] = tuple(
    getattr(_strategies, name)
    for name in ("QFedAvg", "DifferentialPrivacyClientSideAdaptiveClipping")
    if hasattr(_strategies, name)
)
"""Flower's strategies that need a metric of each client for the model, such as its loss."""


def chain(strategy: Strategy) -> Iterator[Strategy]:
    """A strategy and the strategies that it wraps, the outermost first; Flower's privacy wrappers included."""
    inner: Any = strategy
    while isinstance(inner, Strategy):
        yield inner
        inner = getattr(inner, "strategy", None)


def forget_current_arrays(strategy: Strategy) -> None:
    """Make FedAvgM and FedOpt use the model of the next `configure_train` as their current weights.

    FedAvgM (1.39 to 1.42) stores the weights of the first round and then uses its own results only. Without this
    call it would ignore the changes that a wrapper made to a result (A3-9).
    """
    for inner in chain(strategy):
        if isinstance(inner, ADAPTIVE):
            inner.current_arrays = None


# The attributes in which Flower's strategies keep their state between rounds (1.39 to 1.42).
_STATE = ("m_t", "v_t", "momentum_vector")

_ADAPTS, _ADAPTED = "clip_norm_lr", "clipping_norm"
"""Flower's strategies for privacy that have the former adapt the latter from round to round."""


def builtin_state(strategy: Strategy) -> dict[str, Any]:
    """The state of a Flower strategy and of the strategies that it wraps, as a flat dict of arrays."""
    state: dict[str, Any] = {}
    for depth, inner in enumerate(chain(strategy)):
        for attribute in _STATE:
            value = getattr(inner, attribute, None)
            if isinstance(value, dict):
                state |= {f"{depth}.{attribute}/{name}": np.array(array) for name, array in value.items()}
            elif isinstance(value, list):
                state |= {f"{depth}.{attribute}#{i:06d}": np.array(array) for i, array in enumerate(value)}
        if hasattr(inner, _ADAPTS):
            state[f"{depth}.{_ADAPTED}"] = float(getattr(inner, _ADAPTED))
    return state


def load_builtin_state(strategy: Strategy, state: dict[str, Any]) -> None:
    """Restore what `builtin_state` returned."""
    for depth, inner in enumerate(chain(strategy)):
        for attribute in _STATE:
            if not hasattr(inner, attribute):
                continue
            start = f"{depth}.{attribute}"
            named = {k.removeprefix(f"{start}/"): v for k, v in state.items() if k.startswith(f"{start}/")}
            listed = [v for k, v in sorted(state.items()) if k.startswith(f"{start}#")]
            setattr(inner, attribute, named or listed or None)
        if hasattr(inner, _ADAPTS):
            setattr(inner, _ADAPTED, state[f"{depth}.{_ADAPTED}"])


def adapted_norms(strategy: Strategy) -> list[float | None]:
    """The clipping norm of each strategy in the chain, None where it is not adapted."""
    return [getattr(inner, _ADAPTED) if hasattr(inner, _ADAPTS) else None for inner in chain(strategy)]


def reset_builtin_state(strategy: Strategy, norms: list[float | None]) -> None:
    """Begin a new run: without momentum, and with these clipping norms of `adapted_norms`."""
    for inner, norm in zip(chain(strategy), norms, strict=True):
        for attribute in _STATE if isinstance(inner, ADAPTIVE) else ():
            if hasattr(inner, attribute):
                setattr(inner, attribute, None)
        if norm is not None:
            setattr(inner, _ADAPTED, norm)


def is_known(strategy: Strategy) -> bool:
    """Whether `builtin_state` has all that this strategy keeps, without those that it wraps."""
    flowers = type(strategy).__module__.startswith("flwr.")
    return flowers and getattr(strategy, "accountant", None) is None and not hasattr(strategy, "registered_nodes")
