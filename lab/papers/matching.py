"""Decides whether a run has the setting of a paper's column, and lists differences from the paper.

If a paper does not state a value, any value matches. If a paper states a value that a run does not have, the
run does not match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from server_app.config.keys import by_key
from server_app.config.presets.facts_of_papers import UNSTATED
from server_app.config.presets.vocabulary import (
    ALIASES,
    FIELDS,
    OF_PROXY_SETS,
    OF_THE_RUN,
    MethodParts,
    keys_of_the_run,
    method_of,
    model_of,
    parameters,
    task_of,
)
from server_app.config.schema import Config

from ..results.grouping import method_values, plain
from ..results.run_folders import Run
from . import PaperColumn, PaperRow, PaperTable, experiment_of

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
    "class_groups": lambda p, clients: {"balanced": True},
    "by_group": lambda p, clients: {"scheme": "feature_shift"},
}
"""The papers' name of a partition, if it is another one, and properties without a key in its configuration."""

PLAIN = MethodParts(()).calibration
"""A method that evaluates its model as it is."""

NO_SETTINGS = ("layers", "tuned_from_epoch", "original_on_c2", "best_baseline")
"""Properties of a column that say what is measured, and nothing about the run."""


def canonical(method: str) -> str:
    """The same name for `fednlr` and `fedavg+fednlr`: the second. A method that we do not have keeps its name."""
    ours = method_of(method)
    return method if ours is None else ours.label


def calibration_of(line: PaperRow) -> str:
    """What the method of this row does with a copy of the model after training; `PLAIN` for nothing."""
    ours = method_of(line.method)
    return PLAIN if ours is None else ours.calibration


def stated(config: Config) -> dict[str, Any]:
    """The values of a configuration for the fields of an experiment; participation as the share that is drawn."""
    values = by_key(config)
    fields = {name: values[key] for name, key in FIELDS.items() if name != "clients"}
    return {**fields, "participation": config.cohort_size / config.clients}


def misfits(table: PaperTable, column: PaperColumn, config: Config) -> list[str]:
    """The differences between the run and the column's setting; empty if the run matches."""
    if "aggregate" in column.fields:
        return ["the column is computed from the others"]
    differences: list[str] = []
    for name, wanted in column.fields.items():
        match name:
            case "dataset":
                why = PARTS_OF.get(config.task.name, ("", ""))[1]
                differences += _wrong("task", config.task.name, task_of(wanted), why)
            case "model":
                differences += _model_misfits(wanted, config)
            case "partition":
                differences += partition_misfits(wanted, config)
            case "setting":  # its values are in experiments.yaml
                behind = experiment_of(table.name, column.key) or {}
                for key in ("learning_rate", "batch_size", "participation"):
                    differences += _wrong(key, stated(config)[key], behind.get(key, UNSTATED))
            case "learning_rate":
                differences += _wrong("client.lr", config.client.lr, wanted)
            case _ if name not in NO_SETTINGS:
                wanted_here = parameters("fednlr", {name: wanted}) or {name: wanted}
                for key, value in wanted_here.items():
                    setting = key.rpartition(".")[2]
                    differences += _wrong(setting, getattr(config.client, setting, None), value)
    return differences


def _model_misfits(wanted: str, config: Config) -> list[str]:
    """The name, and the settings of a network that is a model with settings."""
    differences = []
    for key, value in model_of(wanted).items():
        has = config.model.name if key == "model" else getattr(config.model, key.rpartition(".")[2], None)
        differences += _wrong(key, has, value)
    return differences


def partition_misfits(wanted: Mapping[str, Any], config: Config) -> list[str]:
    """The differences between the run's partition and a paper's."""
    name = config.partition.name
    convert = AS_IN_PAPERS.get(name)
    as_in_papers = convert(config.partition, config.clients) if convert else {}
    has = {"scheme": name, **vars(config.partition), **as_in_papers, "clients": config.clients}
    differences = _wrong("partition", has["scheme"], wanted["scheme"])
    if differences:  # another scheme has other parameters, which cannot be compared
        return differences + _wrong("clients", config.clients, wanted.get("clients", UNSTATED))
    return [text for key, value in wanted.items() if key != "scheme" for text in _wrong(key, has.get(key), value)]


def _wrong(key: str, has: object, wanted: object, why: str = "") -> list[str]:
    if wanted == UNSTATED or has == wanted:
        return []
    return [f"{key} is {plain(has)}{f' ({why})' if why else ''}, not {plain(wanted)}"]


def is_line(table: PaperTable, column: PaperColumn, line: PaperRow, run: Run) -> bool:
    """Whether a run with the column's setting belongs to this row, which includes its variant and calibration."""
    if not (line.is_method or line.method in ALIASES) or canonical(line.method) != canonical(run.method):
        return False
    if calibration_of(line) not in (PLAIN, run.config.calibration.name):  # it does not change what is trained
        return False
    if line.variant is None:
        return True
    settings = _method_settings(table, column, line)
    stated = settings.get("variants", {}).get(line.variant)
    has = {**_by_last_part(run.config), **by_key(run.config)}
    wanted = {**(stated or {}), **keys_of_the_run(settings, line.variant)}
    compared = [key for key in wanted if key not in (*OF_THE_RUN, *OF_PROXY_SETS)]
    return stated is not None and all(has.get(key) == wanted[key] for key in compared)


def deviations(table: PaperTable, column: PaperColumn, line: PaperRow, config: Config) -> list[str]:
    """The differences between the run and the paper's experiment, such as `rounds 5 (paper: 100)`."""
    behind = experiment_of(table.name, column.key) or {}
    settings = _method_settings(table, column, line)
    wanted_here = {**behind, **{key: settings[key] for key in OF_THE_RUN if key in settings}}
    pairs = [(key, value, wanted_here.get(key, UNSTATED)) for key, value in stated(config).items()]
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
    for key, value in parameters(line.method, settings, line.variant).items():
        setting = key.rpartition(".")[2]
        if setting in OF_THE_RUN:  # compared above
            continue
        pairs.append((setting, has.get(setting, UNSTATED), value))
    return [
        f"{key} {plain(have)} (paper: {plain(wanted)})"
        for key, have, wanted in pairs
        if UNSTATED not in (have, wanted) and have != wanted
    ]


def _method_settings(table: PaperTable, column: PaperColumn, line: PaperRow) -> Mapping[str, Any]:
    methods = (experiment_of(table.name, column.key) or {}).get("methods") or {}
    settings: Mapping[str, Any] = methods.get(line.method) or {}
    return settings


def _by_last_part(config: Config) -> dict[str, Any]:
    return {key.rsplit(".", 1)[-1]: value for key, value in method_values(config).items()}
