"""Plots from run folders: the table of all kinds, and the metric that a run needs for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from fedstride.errors import ConfigError, unknown
from fedstride.figures.metrics import shown

from ..results.grouping import group
from ..results.run_folders import Run, by_headline

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn

    from .panels import PlotFigure


HEADLINE = "the metric that decides"
DRAWN = "a partition of the task's own data"


@dataclass(frozen=True)
class PlotKind:
    """A kind of plot: what it shows, which metric a run needs for it, and the function that describes it."""

    about: str  # with {metric} for the displayed names of the metrics that decide
    needs: str  # a metric's name, its first part if it ends with /, or its last; HEADLINE; or DRAWN
    place: str  # module:function below this package
    advice: str = ""  # the choice with which a run has the metric

    def shown(self, runs: Sequence[Run]) -> list[Run]:
        """The runs that have the metric."""
        return [run for run in runs if _has(run, self.needs)]

    def figure(self, runs: Sequence[Run], colours: Mapping[str, int]) -> PlotFigure:
        """The figure of these runs. `colours`: of `numbers_of_methods`. Raises DataError."""
        module, _, function = self.place.partition(":")
        make: Callable[..., PlotFigure] = getattr(import_module(f".{module}", __package__), function)
        return make(runs, colours)

    def title(self, runs: Sequence[Run]) -> str:
        """What the plot of these runs shows."""
        return self.about.format(metric=", ".join(map(shown, by_headline(runs))))


KINDS: dict[str, PlotKind] = {
    "accuracy": PlotKind("{metric} against rounds", HEADLINE, "curves:accuracy"),
    "seconds": PlotKind("{metric} against seconds", HEADLINE, "curves:seconds"),
    "norms": PlotKind("N, E and step, of the whole model and per layer", "norms/N", "norms:norms"),
    "fedlws": PlotKind("FedLWS: gamma and tau per layer", "fedlws/gamma/", "fedlws:fedlws", "strategy=fedlws"),
    "fedalr": PlotKind("Fedalr: rate of every client", "fedalr/eta", "fedalr:fedalr", "strategy=fedalr"),
    "two_d_lrd": PlotKind(
        "2D-LRD: detector and rates", "two_d_lrd/S", "two_d_lrd:two_d_lrd", "strategy=two_d_lrd"
    ),
    "fednlr": PlotKind(
        "FedNLR: learning rates of the neurons", "fednlr/rate_mean/", "fednlr:fednlr", "client=fednlr"
    ),
    "reliability": PlotKind(
        "predicted probabilities and shares observed, in ten bins",
        "/reliability",
        "reliability:reliability",
        "reliability in task.metrics",
    ),
    "labels": PlotKind("training examples of each class at each client", DRAWN, "partition_labels:labels"),
}


def kind(name: str) -> PlotKind:
    """A kind of plot by name. Raises ConfigError, with similar names, for an unknown one."""
    if name not in KINDS:
        raise unknown("plot", name, KINDS)
    return KINDS[name]


def draw(name: str, runs: Sequence[Run]) -> Drawn:
    """Draw the plot of this kind from all runs that have its metric.

    Raises ConfigError for an unknown name, and if no run has the metric.
    """
    chosen = kind(name)
    drawn = chosen.shown(runs)
    if not drawn:
        advice = f": runs with {chosen.advice} have it" if chosen.advice else ""
        raise ConfigError(f"none of {len(runs)} runs has {chosen.needs}, which the plot {name} shows{advice}")
    from .canvas import drawn as as_drawn

    return as_drawn(chosen.figure(drawn, numbers_of_methods(drawn)))


def numbers_of_methods(runs: Sequence[Run]) -> dict[str, int]:
    """The place of each method (`Group.identity`) among these runs: its colour in all figures of them.

    The labels of a method are not the same in all figures: they have what distinguishes the runs of the figure.
    """
    order = sorted(group(runs), key=lambda run_group: run_group.order[0])
    return {name: number for number, name in enumerate(dict.fromkeys(run_group.identity for run_group in order))}


def _has(run: Run, needs: str) -> bool:
    if needs is DRAWN:
        return run.config.partition.name != "own"
    needs = run.figure if needs is HEADLINE else needs
    return any(value is not None and _fits(key, needs) for row in run.rows for key, value in row.items())


def _fits(key: str, needs: str) -> bool:
    if needs.startswith("/"):
        return key.endswith(needs)
    return key.startswith(needs) if needs.endswith("/") else key == needs
