"""The figure by which a run is judged if the one that decides was not measured, and why that was not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedstride.figures.intervals_by_counts import LISTS
from fedstride.figures.metrics import fact, shown
from fedstride.figures.scores import EXACT, SCORES
from fedstride.messages import wire

from ..config.schema import Config
from ..records.row_values import number

if TYPE_CHECKING:
    from .sites import SiteRecord

NAMED = 8
"""Sites that are named, at most."""


def measured_metric(config: Config, rows: Sequence[Mapping[str, Any]]) -> str:
    """The metric that decides; if no row has it, the first of the run's figures at the same place that one has."""
    place = config.headline.partition("/")[0]
    others = [f"{place}/{name}" for name in (*(config.task.metrics or ()), "loss")]
    if place not in (wire.LOCAL, "test"):
        others = []
    directed = [metric for metric in others if fact(metric).better is not None]
    return next((metric for metric in (config.headline, *directed) if _has(rows, metric)), config.headline)


def why_not_measured(config: Config, rows: Sequence[Mapping[str, Any]], sites: Sequence[SiteRecord]) -> str:
    """That the metric that decides is in no row, the likely reason and what to change; empty if one has it.

    What a node keeps back it does not say, so the reason is what would have this effect.
    """
    metric = config.headline
    if _has(rows, metric):
        return ""
    said = f"{shown(metric)} was not measured in any round"
    said = said[0].upper() + said[1:]
    place, _, name = metric.partition("/")
    if place != wire.LOCAL or not any(site.evaluated for site in sites):
        return f"{said}."
    by_class = name in EXACT or name in LISTS
    if not _at_nodes(config):
        return f"{said}{': likely no site holds out rows of two classes' if by_class else ''}."
    measured = [f"{site.name} {site.measured}" for site in sites if site.measured and site.figures]
    then = "set a larger `holdout` for the run, or a smaller `min_rows` at the nodes"
    if not measured:
        return f"{said}: each site holds out fewer rows than `min_rows` of its node's policy; {then}."
    held = ", ".join(measured[:NAMED]) + (", ..." if len(measured) > NAMED else "")
    if name in SCORES and not by_class:
        return f"{said}: no site sent it (rows measured: {held})."
    needs = f"at least `min_rows` (in a node's policy) held-out rows{' of each class' if by_class else ''}"
    return f"{said}: no site sent it, likely because it needs {needs} (rows measured: {held}); {then}."


def _has(rows: Sequence[Mapping[str, Any]], metric: str) -> bool:
    return any(number(row, metric) is not None for row in rows)


def _at_nodes(config: Config) -> bool:
    """Whether the sites have their own data and policies: then the run does not know their files."""
    return config.partition.name == "own" and not getattr(config.partition, "files", None)
