"""Reads the tables of the five papers, `papers.yaml`, and finds the experiment behind a column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedstride.errors import unknown
from server_app.config.presets.facts_of_papers import experiment, experiment_names


@dataclass(frozen=True)
class PaperColumn:
    """A column: its setting as stated by the paper (dataset, partition, model, ...), as in papers.yaml."""

    key: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class PaperRow:
    """A row: a method (in tables of settings, a label) and its numbers; None if the paper prints none."""

    method: str
    variant: str | None
    values: tuple[Any, ...]
    std: tuple[float, ...] | None
    is_method: bool


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper, as printed."""

    name: str  # <paper>/<table>
    title: str  # title of the paper
    caption: str
    metric: str
    unit: str
    statistic: str
    note: str
    columns: tuple[PaperColumn, ...]
    rows: tuple[PaperRow, ...]


def table_names() -> list[str]:
    """The names of all tables, such as `fednnnn/table2`, in the order of the file."""
    return [f"{paper}/{table}" for paper, entry in _read().items() for table in entry["tables"]]


def paper_table(name: str) -> PaperTable:
    """A table by its name. Raises ConfigError, with similar names, for an unknown one."""
    if name not in table_names():
        raise unknown("table of a paper", name, table_names())
    paper, _, key = name.partition("/")
    entry = _read()[paper]
    table = entry["tables"][key]
    return PaperTable(
        name=name,
        title=entry["title"],
        caption=table["caption"],
        metric=table["metric"],
        unit=table["unit"],
        statistic=table["statistic"],
        note=table.get("note", ""),
        columns=tuple(PaperColumn(c["key"], {k: v for k, v in c.items() if k != "key"}) for c in table["columns"]),
        rows=tuple(_line(row) for row in table["rows"]),
    )


def _line(row: Mapping[str, Any]) -> PaperRow:
    std = row.get("std")
    return PaperRow(
        method=row.get("method") or row["label"],
        variant=row.get("variant") or row.get("parameter"),
        values=tuple(row["values"]),
        std=None if std is None else tuple(std),
        is_method="method" in row,
    )


def experiment_of(table: str, column: str) -> dict[str, Any] | None:
    """The settings of a column of a table; None if the paper does not give them."""
    paper, _, key = table.partition("/")
    for name in experiment_names():
        settings = experiment(name)
        results = settings["results"] or {}
        if name.startswith(f"{paper}/") and results.get("table") == key and results["column"] in (column, None):
            return settings
    return None


@cache
def _read() -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader gives the same result ten times faster
    with (Path(__file__).parent / "papers.yaml").open("rb") as file:
        tree: dict[str, Any] = yaml.load(file, loader)
    return tree
