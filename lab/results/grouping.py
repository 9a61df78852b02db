"""Groups runs by method and setting, as the rows and columns of tables and plots.

Keys of a configuration belong to the method, to the setting, or to neither (`Influence`). A label shows only the
keys that differ between the runs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fedstride.plain_numbers import is_number
from fedstride.settings import Influence
from server_app.config.keys import keys
from server_app.config.schema import TABLES, Config

from .run_folders import Run

Values = dict[str, Any]
"""Plain values by key, such as `fednnnn.beta` of a method or `partition.alpha` of a setting."""

Order = tuple[tuple[int, float, str], ...]
"""Sort key of rows and columns: numbers by value, before words."""


def method_values(config: Config) -> Values:
    """The values of the method: server rules (base first), objective, client rule; keys as `fednnnn.beta`.

    Of a rule that is there twice, the outer one has keys as `fedlws#2.beta`.
    """
    method_keys = [key for key in keys(config) if key.kind is Influence.METHOD]
    # `keys` lists a strategy's keys from the outermost wrapper to the base; tables name the base first.
    inside_out = sorted(method_keys, key=lambda key: (list(TABLES).index(key.group), -key.path.count(".")))
    places: dict[str, list[str]] = {}
    values = {}
    for key in inside_out:
        place = key.path.rpartition(".")[0]
        found = places.setdefault(key.part, [place])
        if place not in found:
            found.append(place)
        number = found.index(place) + 1
        part = key.part if number == 1 else f"{key.part}#{number}"
        values[f"{part}.{key.field.name}"] = key.value
    return values


def setting_values(run: Run) -> Values:
    """All values, except method and seed, on which a result depends; the cohort always as a number.

    Not only settings: a data set may be all that was published, or a part.
    """
    config = run.config
    chosen = {
        group: getattr(config, group).name for group, table in TABLES.items() if table.kind is Influence.SETTING
    }
    parts_first = sorted(keys(config), key=lambda key: not key.group)
    values = {key.path: key.value for key in parts_first if key.kind is Influence.SETTING}
    return {**chosen, **{k: v for k, v in values.items() if k not in ("fraction", "cohort")}} | {
        "cohort": config.cohort_size,
        "examples": run.subset or "all",
    }


# ---------------------------------------------------------------- labels


def differing(values: Sequence[Values]) -> list[str]:
    """The keys with different values, among the dicts that contain them, in order of first appearance."""
    seen: dict[str, set[str]] = {}
    for of_run in values:
        for key, value in of_run.items():
            seen.setdefault(key, set()).add(json.dumps(value))
    return [key for key, texts in seen.items() if len(texts) > 1]


def describe(values: Values, keys: Sequence[str]) -> str:
    """A label such as `alpha=0.1, lr=0.05`; a key is shortened to its last part if that is unambiguous."""
    short = Counter(key.rsplit(".", 1)[-1] for key in keys)
    names = {key: tail if short[tail := key.rsplit(".", 1)[-1]] == 1 else key for key in keys}
    return ", ".join(f"{names[key]}={plain(values[key])}" for key in keys if key in values)


def plain(value: Any) -> str:
    """A value as it is written in an override."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(plain(item) for item in value) + "]"
    if (
        isinstance(value, float) and float(f"{value:g}") == value
    ):  # short form if it is exact; otherwise all digits
        return f"{value:g}"
    return str(value)


def summary(config: Config) -> str:
    """A short label of the setting, for runs whose settings do not differ."""
    partition = [config.partition.name]
    for key in ("alpha", "classes_per_client"):
        if hasattr(config.partition, key):
            partition.append(f"{key}={plain(getattr(config.partition, key))}")
    protected = [] if config.privacy.name == "none" else [f"privacy {config.privacy.name}"]
    return ", ".join([config.task.name, " ".join(partition), f"{config.clients} clients", *protected])


# ---------------------------------------------------------------- groups


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed."""

    method: str  # with the values that distinguish it from other variants of the method
    setting: str  # the values that distinguish it from other settings; a summary if there is only one
    runs: tuple[Run, ...]  # by seed
    order: tuple[Order, Order] = field(repr=False)  # sort keys of its row and its column in a table

    @property
    def config(self) -> Config:
        """The configuration of the first run; the others differ only in the seed and in keys without effect."""
        return self.runs[0].config

    @property
    def identity(self) -> str:
        """The method with all its values, which does not depend on the other runs, as its label does."""
        return json.dumps([self.runs[0].method, method_values(self.config)])


def newest(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """For each method, setting and seed only the newest run, completed runs preferred; remarks on the others.

    Otherwise a repeated run would count twice in a mean.
    """
    kept: dict[str, Run] = {}
    remarks = []
    for run in sorted(runs, key=lambda run: (run.completed, run.started, run.folder)):
        key = _key(run)
        if key in kept:
            remarks.append(f"left out: {kept[key].folder} has the method, setting and seed of {run.folder}")
        kept[key] = run
    return [run for run in runs if kept[_key(run)] is run], remarks


def _key(run: Run) -> str:
    return json.dumps([run.method, method_values(run.config), setting_values(run), run.config.seed])


def group(runs: Sequence[Run], *, without: str | None = None) -> list[Group]:
    """Group runs by method and setting, FedAvg first; runs that are not completed form separate, marked groups.

    `without`: a key in which the runs of a group may differ.
    """
    settings = [setting_values(run) for run in runs]
    setting_keys = [key for key in differing(settings) if key != without]
    variants = {
        method: [
            key
            for key in differing([method_values(run.config) for run in runs if run.method == method])
            if key != without
        ]
        for method in {run.method for run in runs}
    }
    by_order: dict[tuple[Order, Order], list[Run]] = {}
    labels: dict[tuple[Order, Order], tuple[str, str]] = {}
    for run, setting in zip(runs, settings, strict=True):
        values, keys = method_values(run.config), variants[run.method]
        row = " ".join([run.method, *([describe(values, keys)] if keys else [])])
        row += "" if run.completed else f" ({run.state})"
        column = describe(setting, setting_keys) if setting_keys else summary(run.config)
        first = (0 if run.method == "fedavg" else 1, 0.0, run.method)
        order = (
            (first, *(order_of(values.get(key)) for key in keys), order_of(row)),
            tuple(order_of(setting.get(key)) for key in setting_keys),
        )
        by_order.setdefault(order, []).append(run)
        labels[order] = (row, column)
    return [
        Group(*labels[order], tuple(sorted(by_order[order], key=lambda run: run.config.seed)), order)
        for order in sorted(by_order)
    ]


def order_of(value: Any) -> tuple[int, float, str]:
    """A sort key of values: numbers by value, before words."""
    return (0, float(value), "") if is_number(value) else (1, 0.0, str(value))
