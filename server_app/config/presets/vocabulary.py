"""The papers' terms in ours: data sets, networks, partitions and methods of `conf/papers/experiments.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from client_app.registry import OBJECTIVES, RULES
from fedstride.parts import Table
from fedstride.plain_numbers import is_number
from fedstride.tasks.registry import PARTITIONS
from strategies.registry import STRATEGIES

from ..calibrations import CALIBRATIONS
from .facts_of_papers import UNSTATED

FIELDS = {
    "rounds": "rounds",
    "clients": "clients",
    "participation": "fraction",
    "batch_size": "client.batch_size",
    "learning_rate": "client.lr",
    "momentum": "client.momentum",
    "weight_decay": "client.weight_decay",
}
"""Fields of an experiment whose value is a number, and their keys."""

TASKS_OF = {"fashionmnist": "fashion_mnist", "kws": "speech_commands"}
"""Tasks that have another name than the papers' data set."""

MODELS_OF = {"mlp2_25": {"model": "mlp", "model.width": 25}}
"""Networks of the papers that are a model with settings."""

SCHEMES = {"label_sorted": "sorted_shards", "feature_shift": "by_group"}
"""Partitions that always have another name than the papers' scheme."""

PARAMETERS = {"C": "attenuation", "server_learning_rate": "server_lr", "virtual_features": "draws"}
"""Parameters of methods that have another name here."""

ALIASES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "constant": ("fedavg", {}),
    "ad": ("two_d_lrd", {"decay": "all"}),
    "at": ("two_d_lrd", {"decay": "additive"}),
}
"""Methods of the papers that are a part with settings."""

METHOD_TABLES: tuple[Table, ...] = (STRATEGIES, RULES, OBJECTIVES, CALIBRATIONS)
"""The tables whose parts make up a method."""

OF_THE_RUN = ("rounds",)
"""Parameters of a method that are keys of the run. They apply while the first part of the method is chosen."""

PROXY_SETS: Mapping[str, Mapping[str, Any]] = {"long_tailed": {"task.proxy_smallest": 0.1}}
"""The papers' words for a proxy set, as keys of the run (B-30)."""

OF_PROXY_SETS = ("proxy_classes", "imbalance")
"""Parameters of a variant that describe its proxy set."""


def task_of(dataset: str) -> str:
    """The task that is a paper's data set."""
    return TASKS_OF.get(dataset, dataset)


def model_of(name: str) -> dict[str, Any]:
    """The keys, with `model`, that choose a paper's network."""
    return MODELS_OF.get(name, {"model": name})


def stated(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The values that an experiment states, by key. A field that is open, or has several values, is left out."""
    values: dict[str, Any] = {}
    if entry["dataset"] != UNSTATED:
        values["task"] = task_of(entry["dataset"])
    if entry["model"] != UNSTATED:
        values |= model_of(entry["model"])
    values |= _partition(entry["partition"])
    values |= {key: entry[name] for name, key in FIELDS.items() if is_number(entry[name])}
    values |= _local(entry["local"])
    decay = entry["lr_decay"]
    if decay != UNSTATED:
        values["client.lr_decay"] = 1.0 if decay == "none" else decay["factor"]
    values["weighting"] = entry["aggregation_weights"]
    for name, settings in entry["methods"].items():
        values |= parameters(name, settings)
    return values


def keys_of_the_run(settings: Mapping[str, Any], variant: str | None = None) -> dict[str, Any]:
    """The parameters of a method, or of a variant of it, that are keys of the run, by key."""
    of_variant = settings.get("variants", {}).get(variant, {})
    values = {key: settings[key] for key in OF_THE_RUN if key in settings}
    return {**values, **PROXY_SETS.get(of_variant.get("proxy_classes", ""), {})}


def _partition(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The scheme, if a partition has its name, and its properties; a partition has some of them as settings."""
    scheme = SCHEMES.get(entry["scheme"], entry["scheme"])
    choice = {"partition": scheme} if scheme in PARTITIONS else {}
    known = {f"partition.{key}": value for key, value in entry.items() if is_number(value) or key == "sizes"}
    known |= {f"partition.{key}": value for key, value in entry.items() if isinstance(value, bool)}
    return choice | known


def _local(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, Mapping):
        return {}
    names = {"epochs": "client.local_epochs", "iterations": "client.local_steps"}
    return {names[key]: value for key, value in entry.items() if is_number(value)}


# ---------------------------------------------------------------- methods


@dataclass(frozen=True)
class MethodParts:
    """A method of a paper as parts: strategies (base first), client rule, objective, calibration."""

    strategies: tuple[str, ...]
    client: str = "sgd"
    objective: str = "plain"
    calibration: str = "none"
    settings: Mapping[str, Any] = field(default_factory=dict)  # that belong to its name, as `two_d_lrd.decay`

    @property
    def choices(self) -> dict[str, str]:
        """The choice of each group."""
        return {
            "strategy": "+".join(self.strategies),
            "client": self.client,
            "objective": self.objective,
            "calibration": self.calibration,
        }

    @property
    def label(self) -> str:
        """As in the papers' tables: `fedavg+fedlws`, `fedavg+fednlr`, `fedprox`; a calibration trains nothing."""
        base = [] if self.objective != "plain" and self.strategies[0] == "fedavg" else [self.strategies[0]]
        base += [] if self.objective == "plain" else [self.objective]
        others = [] if self.client == "sgd" else [self.client]
        return "+".join([*base, *self.strategies[1:], *others])

    @property
    def parts(self) -> Iterator[tuple[str, Table]]:
        """Its parts with their tables, the outermost strategy first."""
        for name in (*reversed(self.strategies), self.client, self.objective, self.calibration):
            yield name, next(table for table in METHOD_TABLES if name in table)

    def place(self, part: str) -> str:
        """The key of a part in a configuration: `strategy`, `strategy.inner`, or another group."""
        if part in self.strategies:
            return "strategy" + ".inner" * (len(self.strategies) - 1 - self.strategies.index(part))
        return next(group for group, name in self.choices.items() if name == part)


def method_of(name: str) -> MethodParts | None:
    """The parts of a method such as `fedprox+fedlws`; None if a part of it does not exist."""
    base, client, objective, calibration = "fedavg", "sgd", "plain", "none"
    wrappers: list[str] = []
    settings: dict[str, Any] = {}
    for token in name.split("+"):
        part, alias_settings = ALIASES.get(token, (token, {}))
        settings |= {f"{part}.{key}": value for key, value in alias_settings.items()}
        if part in STRATEGIES:
            if STRATEGIES.wraps(part):
                wrappers.append(part)
            else:
                base = part
        elif part in RULES:
            client = part
        elif part in OBJECTIVES:
            objective = part
        elif part in CALIBRATIONS:
            calibration = part
        else:
            return None
    return MethodParts((base, *wrappers), client, objective, calibration, settings)


def parameters(name: str, settings: Mapping[str, Any], variant: str | None = None) -> dict[str, Any]:
    """The stated parameters of a method as settings of its parts, such as `fedlws.beta: 0.1`.

    Without `variant`, those of the variant whose settings are the defaults, if there are variants.
    """
    method = method_of(name)
    if method is None:
        return {}
    variants: Mapping[str, Mapping[str, Any]] = settings.get("variants", {})
    usual = (entry for entry in variants.values() if _is_default(method, entry))
    of_variant = variants[variant] if variant else next(usual, {})
    values = {}
    for key, value in {**_constant_mu(settings), **of_variant}.items():
        ours = PARAMETERS.get(key, key)
        for part, table in method.parts:
            given = table.fields(part).get(ours)
            if given is not None and (is_number(value) or isinstance(value, (bool, list)) or ours in _WORDS):
                values[f"{part}.{ours}"] = value
    first = name.partition("+")[0]
    values |= {f"{first}.{key}": settings[key] for key in OF_THE_RUN if key in settings}
    return {key: value for key, value in values.items() if value != UNSTATED}


_WORDS = ("granularity", "terms")
"""Parameters whose values are words, with the same words here."""


def _constant_mu(settings: Mapping[str, Any]) -> dict[str, Any]:
    """FedNLR with one mu for all layers (figure 5) is mu_0 = mu without the other two terms (eq. 17)."""
    if not is_number(settings.get("mu")):
        return dict(settings)
    return {"mu0": settings["mu"], "a1": 0, "a2": 0, **settings}


def _is_default(method: MethodParts, settings: Mapping[str, Any]) -> bool:
    defaults = {key: field.default for part, table in method.parts for key, field in table.fields(part).items()}
    return all(defaults.get(PARAMETERS.get(key, key), value) == value for key, value in settings.items())


def weighted() -> list[str]:
    """The strategies whose weights are the run's choice; the others have those of their own paper (FedDyn)."""
    fields = {name: STRATEGIES.fields(name).get("weighting") for name in STRATEGIES}
    return [name for name, field in fields.items() if field is not None and field.default == "examples"]
