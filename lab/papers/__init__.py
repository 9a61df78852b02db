"""The five papers' tables and settings, as data in this folder.

Knows the two files and their forms; does not know runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedstride.errors import unknown

UNSTATED = "unstated"
"""What stands where a paper leaves something open."""


@dataclass(frozen=True)
class Column:
    """A column: what the paper says of its setting (dataset, partition, model, ...), as in papers.yaml."""

    key: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """A row: a method (or, in tables of settings, a label) and its numbers, None where none is printed."""

    method: str
    variant: str | None
    values: tuple[Any, ...]
    std: tuple[float, ...] | None
    is_method: bool


@dataclass(frozen=True)
class PaperTable:
    """A table as printed."""

    name: str  # <paper>/<table>
    title: str  # of the paper
    caption: str
    metric: str
    unit: str
    statistic: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[Line, ...]


def table_names() -> list[str]:
    """All tables, as `fednnnn/table2`, in the papers' order."""
    return [f"{paper}/{table}" for paper, entry in _read("papers").items() for table in entry["tables"]]


def paper_table(name: str) -> PaperTable:
    """A table by its name. Raises ConfigError with the nearest names for one that does not exist."""
    if name not in table_names():
        raise unknown("table of a paper", name, table_names())
    paper, _, key = name.partition("/")
    entry = _read("papers")[paper]
    table = entry["tables"][key]
    return PaperTable(
        name=name,
        title=entry["title"],
        caption=table["caption"],
        metric=table["metric"],
        unit=table["unit"],
        statistic=table["statistic"],
        note=table.get("note", ""),
        columns=tuple(Column(c["key"], {k: v for k, v in c.items() if k != "key"}) for c in table["columns"]),
        rows=tuple(_line(row) for row in table["rows"]),
    )


def _line(row: Mapping[str, Any]) -> Line:
    std = row.get("std")
    return Line(
        method=row.get("method") or row["label"],
        variant=row.get("variant") or row.get("parameter"),
        values=tuple(row["values"]),
        std=None if std is None else tuple(std),
        is_method="method" in row,
    )


def experiment_names() -> list[str]:
    """All experiments, as `fednnnn/table2_mnist_iid_b`, in the papers' order."""
    return list(_read("experiments")["experiments"])


def experiment(name: str) -> dict[str, Any]:
    """The settings of an experiment, complete; what the fields mean stands at the head of experiments.yaml.

    Raises ConfigError with the nearest names for one that does not exist.
    """
    if name not in experiment_names():
        raise unknown("experiment of a paper", name, experiment_names())
    found: dict[str, Any] = _read("experiments")["experiments"][name]
    return found


def experiment_of(table: str, column: str) -> dict[str, Any] | None:
    """The settings behind a column of a table, where the paper gives them."""
    paper, _, key = table.partition("/")
    for name, found in _read("experiments")["experiments"].items():
        if name.startswith(f"{paper}/") and found.get("results") == {"table": key, "column": column}:
            return dict(found)
    return None


@cache
def _read(name: str) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same result, ten times as fast
    with (Path(__file__).parent / f"{name}.yaml").open("rb") as file:
        tree: dict[str, Any] = yaml.load(file, loader)
    return tree
