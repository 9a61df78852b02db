"""From a configuration to the objects of a run: the strategy, and what clients are told.

Knows which class stands behind which name; does not know rounds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from flwr.app import ConfigRecord
from flwr.serverapp import strategy as flower_strategies
from flwr.serverapp.strategy import Strategy

import strategies
from fedstride import wire
from fedstride.errors import ConfigError, require
from fedstride.flat import flatten
from fedstride.schema import Config, LocalPrivacyConfig, StrategyConfig
from strategies.norms import NormAnalysis
from strategies.privacy import DifferentialPrivacy

OURS: dict[str, Callable[..., Strategy]] = {
    "fedavg": strategies.FedAvg,
    "norm_norm": strategies.NormNorm,
    "momentum": strategies.Momentum,
    "fednnnn": strategies.FedNNNN,
    "fedalr": strategies.Fedalr,
}
WRAPPERS: dict[str, Callable[..., Strategy]] = {"fedlws": strategies.FedLWS, "two_d_lrd": strategies.TwoDLRD}
FLOWERS: dict[str, Callable[..., Strategy]] = {
    "fedadam": flower_strategies.FedAdam,
    "fedavgm": flower_strategies.FedAvgM,
    "fedmedian": flower_strategies.FedMedian,
    "krum": flower_strategies.Krum,
}


def build_strategy(config: Config) -> NormAnalysis:
    """The strategy of a run. Outermost stands the norm analysis, which also screens for Flower's own.

    The loop draws the cohort and shows the strategy no other nodes, so each takes all it sees.
    Raises ConfigError naming the key `strategy....` for a value out of range.
    """
    # With clipping no update is too long, and one client must not decide whether another takes part.
    longest = math.inf if config.privacy.name in ("server_side", "client_side") else config.screen_factor
    screening: dict[str, Any] = {"quorum": config.quorum, "screen_factor": longest}
    strategy = _protected(_build(config.strategy, "strategy", config), config, screening)
    return NormAnalysis(strategy, weighting=_weighting(config), **screening)


def _weighting(config: Config) -> str | None:
    """How the norm analysis weighs: as the strategy does, but privacy makes all clients alike."""
    return None if config.privacy.name == "none" else "uniform"


def _protected(strategy: Strategy, config: Config, screening: dict[str, Any]) -> Strategy:
    """The strategy behind the run's privacy; outside all others, so that none sees an update as it came."""
    spec = config.privacy
    if not isinstance(spec, LocalPrivacyConfig):
        return strategy
    require(
        not (spec.name == "local" and config.evaluate_clients),
        "evaluate_clients",
        True,
        "false with privacy=local: clients tell no figures of their data",
    )
    require(
        config.best.startswith("test/"),
        "best",
        config.best,
        "a figure of the server's own data with privacy, as test/accuracy: clients' figures are not noised",
    )
    settings = {key: value for key, value in vars(spec).items() if key != "name"}
    if settings.get("clipped_count_stddev", 0.0) is None:
        settings["clipped_count_stddev"] = config.cohort_size / 20.0  # the paper's advice
    try:
        return DifferentialPrivacy(strategy, where=spec.name.removesuffix("_side"), **settings, **screening)
    except ConfigError as error:
        raise ConfigError(f"privacy.{error}") from error


def _build(spec: StrategyConfig, path: str, config: Config) -> Strategy:
    all_nodes = {"fraction_train": 1.0, "min_train_nodes": 1, "min_evaluate_nodes": 1, "min_available_nodes": 1}
    screening = {"quorum": config.quorum, "screen_factor": config.screen_factor}
    settings: dict[str, Any] = {
        field.name: getattr(spec, field.name)
        for field in dataclasses.fields(spec)
        if field.name not in ("name", "inner")
    }
    inner = getattr(spec, "inner", None)
    try:
        if spec.name in WRAPPERS:
            assert inner is not None
            held = _build(inner, f"{path}.inner", config)
            return WRAPPERS[spec.name](held, **settings, **screening)
        if spec.name in OURS:
            return OURS[spec.name](**settings, **screening, **all_nodes, seed=config.seed)
        return FLOWERS[spec.name](**settings, **all_nodes)
    except ConfigError as error:
        text = str(error)
        raise ConfigError(text if text.startswith("strategy.") else f"{path}.{text}") from error


def label(config: Config) -> str:
    """The strategy as the papers' tables write it: base first, then what is put around it."""
    names: list[str] = []
    spec: StrategyConfig | None = config.strategy
    while spec is not None:
        names.append(spec.name)
        spec = getattr(spec, "inner", None)
    return "+".join(reversed(names))


def client_config(config: Config) -> ConfigRecord:
    """What every client is told, as plain values (the schema's keys, dotted)."""
    return ConfigRecord(
        {
            wire.SEED: config.seed,
            wire.NUM_CLIENTS: config.clients,
            **flatten("client", config.client),
            **flatten("objective", config.objective),
            **flatten("task", config.task),
            **flatten("model", config.model),
            **flatten("partition", config.partition),
            **_local_noise(config),
        }
    )


def _local_noise(config: Config) -> dict[str, float]:
    """So that clients know from the roll call on what they tell nobody."""
    spec = config.privacy
    if spec.name != "local" or not isinstance(spec, LocalPrivacyConfig):
        return {}
    return {wire.CLIPPING_NORM: spec.clipping_norm, wire.NOISE_MULTIPLIER: spec.noise_multiplier}
