"""Builds the strategy of a run, and the configuration that is sent to clients, from the run's configuration."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from flwr.app import ConfigRecord
from flwr.serverapp.strategy import Strategy

from client_app.registry import OBJECTIVES, RULES, Training
from fedstride.arrays.named import Arrays, Declared
from fedstride.errors import ConfigError, require
from fedstride.messages import wire
from fedstride.messages.code_digest import client_code
from fedstride.tasks.proxy import NONE
from fedstride.tasks.registry import MODELS, PARTITIONS, TASKS
from fedstride.tasks.spec import Spec
from fedstride.user_parts import find
from strategies.norm_analysis import NormAnalysis
from strategies.registry import PRIVACY, STRATEGIES
from strategies.shell.rule_strategy import RuleStrategy
from strategies.shell.wrapper import Wrapper

from .config.allowed_by_user import CHANGED_DATA, CLIENT_CODE
from .config.keys import chain, label
from .config.schema import Config

ALL_NODES = {"fraction_train": 1.0, "min_train_nodes": 1, "min_evaluate_nodes": 1, "min_available_nodes": 1}
"""Options of Flower's strategies: use all nodes. The loop over rounds draws the cohort itself, and the strategy
sees only the nodes of the cohort."""


def build_strategy(
    config: Config,
    model: Arrays | None = None,
    spec: Spec | None = None,
    at_server: Mapping[str, Any] = MappingProxyType({}),
) -> NormAnalysis:
    """The strategy of a run. The outermost wrapper is the norm analysis. Flower's own strategies get a `Wrapper`.

    `model`: the run's initial model, if it is there; it declares its buffers. `spec`: of its task, if it has been
    read. `at_server`: what a rule may need of the server's own data, by the name of its parameter, if they have
    been read: `proxy`, `test_labels`. Raises ConfigError, with the key `strategy.KEY` or `privacy.KEY`, for values
    that are not allowed together or do not fit the model or the task.
    """
    learning = learning_at_server(config)
    require(
        not learning or config.task.proxy != NONE,
        "task.proxy",
        NONE,
        f"test or train_holdout with strategy={''.join(learning[:1])}, which uses examples at the server; "
        "set it for every method that is compared, so that all are measured on the same examples",
    )
    facts = {
        "num_clients": config.clients,
        "clients_a_round": config.cohort_size,
        "num_classes": None if spec is None else spec.classes,
        "client_lr": config.client.lr,
        "client_lr_decay": config.client.lr_decay,
        "proxy": None,
        "test_labels": None,
        **at_server,
    }
    strategy = _protected(_build(config.strategy, "strategy", config, model, facts), config)
    screening = getattr(strategy, "screening", config.screening)
    if config.privacy.name == "none":
        return NormAnalysis(strategy, screening=screening)
    return NormAnalysis(strategy, weighting="uniform", screening=screening)  # privacy weighs all clients alike


def _protected(strategy: Strategy, config: Config) -> Strategy:
    """The strategy inside the privacy wrapper, so that no strategy sees an unprotected update."""
    name = config.privacy.name
    require(
        not (name == "local" and config.evaluate_clients),
        "evaluate_clients",
        True,
        "false with privacy=local: clients do not report metrics of their data",
    )
    require(
        name == "none" or config.best is None or config.best.startswith("test/"),
        "best",
        config.best,
        "a metric that the server computes on its own data, such as "
        "test/accuracy: no noise protects clients' metrics",
    )
    facts = {"screening": getattr(strategy, "screening", config.screening), "clients_a_round": config.cohort_size}
    try:
        protected: Strategy = PRIVACY.make(config.privacy, strategy, **facts)
    except ConfigError as error:
        text = str(error)  # begins with "strategy " if privacy does not support the strategy
        raise ConfigError(text if text.startswith("strategy ") else f"privacy.{text}") from error
    return protected


def _build(choice: Any, path: str, config: Config, model: Arrays | None, facts: Mapping[str, Any]) -> Strategy:
    wraps = STRATEGIES.wraps(choice.name)
    inner = [_build(choice.inner, f"{path}.inner", config, model, facts)] if wraps else []
    buffers = sorted(model.buffers) if isinstance(model, Declared) else ()
    ours = {"screening": config.screening, "buffers": buffers}
    kind = STRATEGIES.load(choice.name)
    is_rule = isinstance(kind, type) and issubclass(kind, RuleStrategy)
    wanted = _wanted(choice.name, kind, facts)
    try:
        if wraps:
            wrapper = cast(Wrapper, STRATEGIES.make(choice, *inner, **ours, **wanted))
            if model is not None:
                wrapper.check_model(model)
            return wrapper
        if is_rule:
            rule = cast(RuleStrategy, STRATEGIES.make(choice, **ALL_NODES, **ours, **wanted, seed=config.seed))
            if model is not None:
                rule.check_model(model)
            return rule
        return Wrapper(STRATEGIES.make(choice, **ALL_NODES, **wanted), screening=config.screening, buffers=buffers)
    except ConfigError as error:
        text = str(error)  # begins with "strategy " if the inner strategy is not allowed
        raise ConfigError(text if text.startswith("strategy ") else f"{path}.{text}") from error


def learning_at_server(config: Config) -> list[str]:
    """The strategies of a run that have a parameter `proxy`."""
    names = [spec.name for spec in chain(config.strategy)]
    return [name for name in names if "proxy" in inspect.signature(STRATEGIES.load(name)).parameters]


def _wanted(name: str, kind: Any, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that a strategy's constructor has as parameters which are not settings."""
    wanted = set(inspect.signature(kind).parameters) - set(STRATEGIES.fields(name))
    return {key: value for key, value in facts.items() if key in wanted}


def client_config(config: Config, spec: Spec) -> ConfigRecord:
    """The configuration that every client gets, as plain values. The keys are dotted, or from `wire.py`."""
    return ConfigRecord(
        {
            wire.SEED: config.seed,
            wire.NUM_CLIENTS: config.clients,
            wire.STRATEGY: label(config),
            wire.PRIVACY: config.privacy.name,
            wire.HOLDOUT: config.holdout or 0.0,
            **({wire.FOLD: config.fold} if config.fold else {}),
            wire.SPLIT_SEED: config.split_seed,
            **spec.flatten(),
            **({} if config.train is None else {wire.TRAIN: list(config.train)}),
            **RULES.flatten(config.client),
            **OBJECTIVES.flatten(config.objective),
            **TASKS.flatten(config.task),
            **MODELS.flatten(config.model),
            **PARTITIONS.flatten(config.partition),
            **({} if config.parts is None else {wire.PARTS: [find(config.parts).name]}),
            **({wire.CHANGED_DATA: True} if CHANGED_DATA in config.allow else {}),
            **_local_noise(config),
        }
    )


def code_of_clients(config: Config) -> str:
    """The digest of the client's code that goes with this server; empty if the user permits any."""
    if CLIENT_CODE in config.allow:
        return ""
    package = Path(inspect.getfile(Training)).resolve().parent
    return client_code(package, [] if config.parts is None else [config.parts])


def message_config(config: Config, spec: Spec, word: str, more: Mapping[str, Any]) -> ConfigRecord:
    """The configuration in every message of a run: that of all clients, the run's word, and more.

    `more`: the digest of what is frozen, and what a roll call asks for.
    """
    return ConfigRecord({**client_config(config, spec), **more, wire.RUN: word})


def _local_noise(config: Config) -> dict[str, float]:
    """The settings of local noise. Clients need them from the roll call on, because they report less with it."""
    spec: Any = config.privacy
    if spec.name != "local":
        return {}
    return {wire.CLIPPING_NORM: spec.clipping_norm, wire.NOISE_MULTIPLIER: spec.noise_multiplier}
