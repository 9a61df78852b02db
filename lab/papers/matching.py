"""Decides whether a run has the setting of a paper's column, and lists differences from the paper.

If a paper does not state a value, any value matches. If a paper states a value that a run does not have, the
run does not match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from server_app.config.schema import Config

from ..results.grouping import method_values, plain
from ..results.runs import Run
from . import UNSTATED, Column, Line, PaperTable, experiment_of

PARTS_OF = {"mnist5k": ("mnist", "contains 5,000 of MNIST's 70,000 images")}
"""Tasks that could be mistaken for a paper's data set: that data set, and the difference."""

AS_IN_PAPERS: Mapping[str, Callable[[Any, int], Mapping[str, Any]]] = {
    "iid": lambda p, clients: {"balanced": True},
    "quantity_skew": lambda p, clients: {"scheme": "iid", "balanced": False, "sizes": "power_law"},
    "dirichlet_by_client": lambda p, clients: {"scheme": "dirichlet", "balanced": True},
    "pathological": lambda p, clients: {"scheme": "shards", "balanced": True},
    "two_classes": lambda p, clients: {
        "scheme": "shards",
        "classes_per_client": 2,
        "balanced": p.sizes == "equal",
    },
    "one_class": lambda p, clients: {"scheme": "shards", "classes_per_client": 1},
    "sorted_shards": lambda p, clients: {
        "scheme": "label_sorted" if p.shards_per_client == 1 else "shards",
        "classes_per_client": p.shards_per_client,
        "shards_total": clients * p.shards_per_client,
        "balanced": True,
    },
    "by_group": lambda p, clients: {"scheme": "feature_shift"},
}
"""The papers' name of a partition, if it is another one, and properties without a key in its configuration."""

STATED: Mapping[str, Callable[[Config], Any]] = {
    "rounds": lambda c: c.rounds,
    "participation": lambda c: c.cohort_size / c.clients,
    "batch_size": lambda c: c.client.batch_size,
    "learning_rate": lambda c: c.client.lr,
    "momentum": lambda c: c.client.momentum,
    "weight_decay": lambda c: c.client.weight_decay,
}
"""How to read the settings of an experiment from a configuration."""

PARAMETERS = {"C": "attenuation"}
"""Parameters of the papers that have another name in our configuration."""

ON_FEDAVG = ("fednlr", "two_d_lrd", "fedlws")
"""Add-ons that the papers print without their base method if it is FedAvg."""


def canonical(method: str) -> str:
    """The same name for `fednlr` and `fedavg+fednlr`: the second."""
    return f"fedavg+{method}" if method in ON_FEDAVG else method


def misfits(table: PaperTable, column: Column, config: Config) -> list[str]:
    """The differences between the run and the column's setting; empty if the run matches."""
    if "aggregate" in column.fields:
        return ["the column is computed from the others"]
    found: list[str] = []
    for name, wanted in column.fields.items():
        match name:
            case "dataset":
                found += _wrong("task", config.task.name, wanted, PARTS_OF.get(config.task.name, ("", ""))[1])
            case "model":
                found += _wrong("model", config.model.name, wanted)
            case "partition":
                found += _partition_misfits(wanted, config)
            case "setting":  # its values are in experiments.yaml
                behind = experiment_of(table.name, column.key) or {}
                for key in ("learning_rate", "batch_size", "participation"):
                    found += _wrong(key, STATED[key](config), behind.get(key, UNSTATED))
            case "learning_rate":
                found += _wrong("client.lr", config.client.lr, wanted)
            case _:
                found += _wrong(name, getattr(config.client, name, None), wanted)
    return found


def _partition_misfits(wanted: Mapping[str, Any], config: Config) -> list[str]:
    name = config.partition.name
    convert = AS_IN_PAPERS.get(name)
    as_in_papers = convert(config.partition, config.clients) if convert else {}
    has = {"scheme": name, **vars(config.partition), **as_in_papers, "clients": config.clients}
    found = _wrong("partition", has["scheme"], wanted["scheme"])
    if found:  # another scheme has other parameters, which cannot be compared
        return found + _wrong("clients", config.clients, wanted.get("clients", UNSTATED))
    return [text for key, value in wanted.items() if key != "scheme" for text in _wrong(key, has.get(key), value)]


def _wrong(key: str, has: object, wanted: object, why: str = "") -> list[str]:
    if wanted == UNSTATED or has == wanted:
        return []
    return [f"{key} is {plain(has)}{f' ({why})' if why else ''}, not {plain(wanted)}"]


def is_line(table: PaperTable, column: Column, line: Line, run: Run) -> bool:
    """Whether a run with the column's setting belongs to this row, which includes its variant."""
    if not line.is_method or canonical(line.method) != canonical(run.method):
        return False
    if line.variant is None:
        return True
    stated = _method_settings(table, column, line).get("variants", {}).get(line.variant)
    has = _by_last_part(run.config)
    return stated is not None and all(has.get(key) == value for key, value in stated.items())


def deviations(table: PaperTable, column: Column, line: Line, config: Config) -> list[str]:
    """The differences between the run and the paper's experiment, such as `rounds 5 (paper: 100)`."""
    behind = experiment_of(table.name, column.key) or {}
    pairs = [(key, read(config), behind.get(key, UNSTATED)) for key, read in STATED.items()]
    local = behind.get("local")
    if isinstance(local, Mapping):
        steps = method_values(config).get("two_d_lrd.local_steps") or config.client.local_steps
        pairs.append(("local iterations", steps, local.get("iterations", UNSTATED)))
        pairs.append(
            ("local epochs", None if steps else config.client.local_epochs, local.get("epochs", UNSTATED))
        )
    decay = behind.get("lr_decay", UNSTATED)
    factor = decay.get("factor", UNSTATED) if isinstance(decay, Mapping) else 1.0 if decay == "none" else UNSTATED
    pairs.append(("lr_decay", config.client.lr_decay, factor))
    has = _by_last_part(config)
    pairs.append(("weighting", has.get("weighting", UNSTATED), behind.get("aggregation_weights", UNSTATED)))
    for key, value in _method_settings(table, column, line).items():
        ours = PARAMETERS.get(key, key)
        if ours in has:
            pairs.append((ours, has[ours], value))
    return [
        f"{key} {plain(have)} (paper: {plain(wanted)})"
        for key, have, wanted in pairs
        if UNSTATED not in (have, wanted) and have != wanted
    ]


def _method_settings(table: PaperTable, column: Column, line: Line) -> Mapping[str, Any]:
    methods = (experiment_of(table.name, column.key) or {}).get("methods") or {}
    found: Mapping[str, Any] = methods.get(line.method) or {}
    return found


def _by_last_part(config: Config) -> dict[str, Any]:
    return {key.rsplit(".", 1)[-1]: value for key, value in method_values(config).items()}
