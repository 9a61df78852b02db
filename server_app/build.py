"""From a configuration to the objects of a run: the strategy, and what clients are told.

Knows what a run gives to every strategy; does not know which strategies there are, nor rounds.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, cast

from flwr.app import ConfigRecord
from flwr.serverapp.strategy import Strategy

from client_app.parts import OBJECTIVES, RULES
from fedstride import wire
from fedstride.errors import ConfigError, require
from fedstride.own import find
from fedstride.tasks.parts import MODELS, PARTITIONS, TASKS
from strategies.base import RuleStrategy
from strategies.norms import NormAnalysis
from strategies.parts import PRIVACY, STRATEGIES
from strategies.wrapper import Wrapper

from .config.schema import Config

ALL_NODES = {"fraction_train": 1.0, "min_train_nodes": 1, "min_evaluate_nodes": 1, "min_available_nodes": 1}
"""The loop draws the cohort and shows the strategy no other nodes, so each takes all that it sees."""


def build_strategy(config: Config, buffers: Sequence[str] = ()) -> NormAnalysis:
    """The strategy of a run, with the norm analysis outermost. Flower's own strategies get a plain `Wrapper`.

    `buffers`: names of the arrays that the run's model registers as buffers. Raises ConfigError, naming the key
    `strategy....`, for values that do not go together.
    """
    strategy = _protected(_build(config.strategy, "strategy", config, tuple(buffers)), config)
    screening = getattr(strategy, "screening", config.screening)
    weighting = None if config.privacy.name == "none" else "uniform"  # privacy makes all clients alike
    return NormAnalysis(strategy, weighting=weighting, screening=screening)


def _protected(strategy: Strategy, config: Config) -> Strategy:
    """The strategy behind the run's privacy; outside all others, so that none sees an update as it came."""
    name = config.privacy.name
    require(
        not (name == "local" and config.evaluate_clients),
        "evaluate_clients",
        True,
        "false with privacy=local: clients tell no figures of their data",
    )
    require(
        name == "none" or config.best.startswith("test/"),
        "best",
        config.best,
        "a figure of the server's own data with privacy, as test/accuracy: clients' figures are not noised",
    )
    facts = {"screening": getattr(strategy, "screening", config.screening), "clients_a_round": config.cohort_size}
    try:
        protected: Strategy = PRIVACY.make(config.privacy, strategy, **facts)
    except ConfigError as error:
        text = str(error)  # what cannot stand behind privacy is named itself
        raise ConfigError(text if text.startswith("strategy ") else f"privacy.{text}") from error
    return protected


def _build(spec: Any, path: str, config: Config, buffers: tuple[str, ...]) -> Strategy:
    wraps = STRATEGIES.wraps(spec.name)
    inner = [_build(spec.inner, f"{path}.inner", config, buffers)] if wraps else []
    ours = {"screening": config.screening, "buffers": buffers}
    kind = STRATEGIES.load(spec.name)
    is_rule = isinstance(kind, type) and issubclass(kind, RuleStrategy)
    try:
        if wraps:
            return cast(Strategy, STRATEGIES.make(spec, *inner, **ours))
        if is_rule:
            return cast(Strategy, STRATEGIES.make(spec, **ALL_NODES, **ours, **_of_the_run(kind, config)))
        return Wrapper(STRATEGIES.make(spec, **ALL_NODES), screening=config.screening, buffers=buffers)
    except ConfigError as error:
        raise ConfigError(f"{path}.{error}") from error


def _of_the_run(kind: Any, config: Config) -> dict[str, Any]:
    """What a rule takes from the run: the seed, and the number of clients if its constructor has it."""
    clients = {"num_clients": config.clients} if "num_clients" in inspect.signature(kind).parameters else {}
    return {"seed": config.seed, **clients}


def client_config(config: Config) -> ConfigRecord:
    """What every client is told, as plain values: keys as in a configuration, and the names of `wire.py`."""
    return ConfigRecord(
        {
            wire.SEED: config.seed,
            wire.NUM_CLIENTS: config.clients,
            **RULES.flatten(config.client),
            **OBJECTIVES.flatten(config.objective),
            **TASKS.flatten(config.task),
            **MODELS.flatten(config.model),
            **PARTITIONS.flatten(config.partition),
            **({} if config.parts is None else {wire.PARTS: [find(config.parts).name]}),
            **_local_noise(config),
        }
    )


def _local_noise(config: Config) -> dict[str, float]:
    """So that clients know from the roll call on what they tell nobody."""
    spec: Any = config.privacy
    if spec.name != "local":
        return {}
    return {wire.CLIPPING_NORM: spec.clipping_norm, wire.NOISE_MULTIPLIER: spec.noise_multiplier}
