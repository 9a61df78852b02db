"""A round in one line: of the log, of `fedstride run`, and of `fedstride watch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fedstride.figures.metrics import as_text, shown

from ..records.row_values import number, total

LOSS = "train/loss"


class Texts(NamedTuple):
    """What a line says of a round; empty where the row says nothing."""

    round: str
    loss: str
    figure: str
    clients: str
    seconds: str


def texts(row: Mapping[str, Any], metric: str) -> Texts:
    """The figures of a row; `metric` is the one that decides."""
    loss = None if metric == LOSS else number(row, LOSS)  # else it would stand there twice
    seconds = [name for name in row if name.startswith("seconds/")]
    return Texts(
        f"{row['round']:>3}",
        "" if loss is None else f"{loss:.4f}",
        "" if row.get(metric) is None else as_text(metric, row[metric]),
        str(row.get("clients", "")),
        f"{total(row, seconds):.1f}" if seconds else "",
    )


def line(row: Mapping[str, Any], metric: str) -> str:
    """A round in words. With privacy it has no figure from clients' training: anybody may read the log."""
    said = texts(row, metric)
    parts = [
        f"round {said.round}",
        f"train loss {said.loss}" if said.loss and "privacy/stddev" not in row else "",
        f"{shown(metric)} {said.figure:>8}" if said.figure else "",
        f"{said.clients} clients" if said.clients else "",
        f"{said.seconds} s" if said.seconds else "",
    ]
    return "   ".join(part for part in parts if part)


def head(metric: str) -> str:
    """The titles of the columns of `columns`."""
    loss = "" if metric == LOSS else "   train loss"
    return f" round{loss}   {shown(metric):>13}   clients   seconds"


def columns(row: Mapping[str, Any], metric: str) -> str:
    """A round under `head(metric)`."""
    said, width = texts(row, metric), max(13, len(shown(metric)))
    loss = [] if metric == LOSS else [(said.loss, 10)]
    cells = [(said.round, 6), *loss, (said.figure, width), (said.clients, 7), (said.seconds or "0.0", 7)]
    return "   ".join(f"{text:>{wide}}" for text, wide in cells)
