"""The pictures that can be drawn from run folders.

Knows their names and what a run must have measured for each; how they are drawn stands in the modules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from fedstride.errors import ConfigError, unknown

from ..results.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Kind:
    """A picture: what it shows, the metric that a run must have for it, and where it is drawn."""

    about: str
    needs: str | None  # a metric's name, or the beginning of one
    place: str  # module:function below this package
    advice: str = ""  # how a run comes to have the metric

    def shown(self, runs: Sequence[Run]) -> list[Run]:
        """Those of the runs that have what the picture shows."""
        return [run for run in runs if self.needs is None or _has(run, self.needs)]


KINDS: dict[str, Kind] = {
    "accuracy": Kind("test accuracy against rounds", "test/accuracy", "curves:accuracy"),
    "seconds": Kind("test accuracy against seconds", "test/accuracy", "curves:seconds"),
    "norms": Kind("N, E and the step, whole and per layer", "norms/N", "norms:norms"),
    "fedlws": Kind("FedLWS: gamma and tau per layer", "fedlws/gamma/", "fedlws:fedlws", "strategy=fedlws"),
    "fedalr": Kind("Fedalr: every client's rate", "fedalr/eta", "fedalr:fedalr", "strategy=fedalr"),
    "two_d_lrd": Kind("2D-LRD: detector and rates", "two_d_lrd/S", "two_d_lrd:two_d_lrd", "strategy=two_d_lrd"),
    "fednlr": Kind("FedNLR: rates of the neurons", "fednlr/rate_mean/", "fednlr:fednlr", "client=fednlr"),
    "labels": Kind("who holds which classes", None, "labels:labels"),
}


def kind(name: str) -> Kind:
    """A picture by name. Raises ConfigError with the nearest names for one that does not exist."""
    if name not in KINDS:
        raise unknown("picture", name, KINDS)
    return KINDS[name]


def draw(name: str, runs: Sequence[Run]) -> Figure:
    """The picture of those of the runs that have what it shows.

    Raises ConfigError for an unknown name or where no run has it.
    """
    chosen = kind(name)
    shown = chosen.shown(runs)
    if not shown:
        advice = f": it comes with {chosen.advice}" if chosen.advice else ""
        raise ConfigError(f"none of {len(runs)} runs has {chosen.needs}, which the picture {name} shows{advice}")
    module, _, function = chosen.place.partition(":")
    drawer: Callable[[Sequence[Run]], Figure] = getattr(import_module(f".{module}", __package__), function)
    return drawer(shown)


def _has(run: Run, needs: str) -> bool:
    return any(
        value is not None and (key.startswith(needs) if needs.endswith("/") else key == needs)
        for row in run.rows
        for key, value in row.items()
    )
