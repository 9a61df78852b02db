"""Properties of metrics by name: which values are better, how clients' values are combined, how it is displayed.

The properties of `<rule>/<symbol>` also apply to its layers, `<rule>/<symbol>/<layer>`. The properties of
`<rule>/*` apply to all metrics of the rule that have no entry of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from . import wire
from .errors import ConfigError
from .scores import SCORES, Pool, Score

Better = Literal["larger", "smaller"]
OverClients = Literal["mean", "min", "max", "none"]


@dataclass(frozen=True)
class Metric:
    """The properties of a metric. The defaults are those of a metric that is not declared.

    A client's value outside of [`least`, `most`], or far from the other clients' values compared with `scale`, is
    left out of the round's value (`strategies/figures.py`).
    """

    better: Better | None = None  # which values are better; None: neither, so there is no best round and no target
    over_clients: OverClients = "mean"  # how clients' values are combined; none: not combined (ids, counts, flags)
    unit: str = ""  # of a displayed value, which is the value times `factor`
    factor: float = 1.0
    name: str = ""  # displayed name, with {} for the symbol; if empty, the metric's name without / and _
    least: float = -math.inf  # smallest possible value
    most: float = math.inf  # largest possible value
    scale: float = 1.0  # size of a usual value; values up to 50 times this are plausible whatever others report
    finish: Callable[[Sequence[float]], float] | None = None  # the figure, from a list of rates (`scores.py`)
    pool: Pool | None = None  # the figure of all clients, from the bins of each (`score_bins.py`)


def of_score(score: Score) -> Metric:
    """The properties of a figure of predictions."""
    return Metric(
        score.better,
        unit="%" if score.percent else "",
        factor=100.0 if score.percent else 1.0,
        least=-score.most if score.signed else 0.0,
        most=score.most,
        finish=None if score.finish is None else score.of,
        pool=score.pool,
    )


LOSS: Final = Metric("smaller", least=0.0)
ACCURACY: Final = Metric("larger", unit="%", factor=100.0, least=0.0, most=1.0)
NEUTRAL: Final = Metric()  # neither larger nor smaller values are better; clients' values are averaged
SHARE: Final = Metric(least=0.0, most=1.0)

AGREED: Final = "median/"
"""Prefix of the value of a metric that more than half of the clients reached; written by the server only."""

ERROR: Final = "error"
"""Last part of the name of a metric: how far a figure from bins of scores can be from that of the scores."""

DEVIATION: Final = "deviation"
"""Last part of the name of a metric: the standard deviation of a figure, from the numbers of its rows."""

SCREENING: Final = "screening/"
"""Prefix of the metrics that count a round's replies; written by the server only."""

FACTS: dict[str, Metric] = {
    wire.NUM_EXAMPLES: Metric(over_clients="none"),
    wire.CLIENT_ID: Metric(over_clients="none"),
    wire.STATE_LOST: Metric(over_clients="none"),
    wire.STATE_HELD: Metric(over_clients="none"),
    wire.FROZEN_HELD: Metric(over_clients="none"),
    "done/*": Metric(over_clients="none"),
    "test/loss": LOSS,
    **{f"test/{name}": of_score(score) for name, score in SCORES.items()},
    **{f"{wire.LOCAL}/{name}": of_score(score) for name, score in SCORES.items()},
    **{f"{wire.LOCAL}/{name}/{ERROR}": SHARE for name, score in SCORES.items() if score.pool},
    f"{wire.LOCAL}/auroc/{DEVIATION}": SHARE,
    wire.MEASURED: Metric(over_clients="none"),
    wire.TRAIN_LOSS: LOSS,
    wire.TRAIN_ACCURACY: ACCURACY,
    "train_loss": LOSS,  # Flower's name; its QFedAvg raises the value to a power
    wire.TRAIN_STEPS: Metric(least=0.0, scale=10_000.0),
    f"{wire.LOCAL}/loss": LOSS,
    "seconds/*": Metric("smaller", unit="s", name="{} time", least=0.0, scale=3600.0),
    "bytes/*": Metric("smaller", unit="bytes", name="{}load", least=0.0, scale=1e9),
    **{f"ccvr/{name}": of_score(score) for name, score in SCORES.items()},
    "ccvr/loss": LOSS,
    "ccvr/*": NEUTRAL,
    f"{SCREENING}*": NEUTRAL,
    f"{AGREED}*": NEUTRAL,
    "norms/*": NEUTRAL,
    "privacy/*": NEUTRAL,
    wire.CLIPPED: SHARE,
    "fednnnn/*": NEUTRAL,
    "fedalr/*": NEUTRAL,
    "fedlws/*": NEUTRAL,
    "two_d_lrd/*": NEUTRAL,
    "scaffold/*": NEUTRAL,
    "feddyn/*": NEUTRAL,
    "fednova/*": NEUTRAL,
    "q_fedavg/*": NEUTRAL,
    "feddisco/*": NEUTRAL,
    "fedlaw/*": NEUTRAL,
    "feddisco/labels": Metric(over_clients="none"),
    "l_dawa/*": NEUTRAL,
    "adadecay/*": NEUTRAL,
    "awd/*": NEUTRAL,
    "fedmgda_plus/*": NEUTRAL,
    "q_fedavg/loss": LOSS,
    "fednlr/*": NEUTRAL,
    "fednlr/rate_min": Metric(over_clients="min", least=0.0),
    "fednlr/rate_max": Metric(over_clients="max", least=0.0),
    "fednlr/rate_mean": Metric(least=0.0),
    "fednlr/below": SHARE,
}
"""All metrics of this version. A user-defined rule adds its own with `declare`."""


def declare(rule: str, facts: Mapping[str, Metric]) -> None:
    """Add the properties of a rule's metrics, by symbol.

    Example: `declare("myrule", {"rate_min": Metric(over_clients="min")})`. Raises ConfigError for a metric that is
    already declared with other properties.
    """
    for symbol, fact in facts.items():
        key = f"{rule}/{symbol}"
        if FACTS.setdefault(key, fact) != fact:
            raise ConfigError(f"the metric {key!r} is already declared with other properties; choose another name")


def declared(name: str) -> Metric | None:
    """The properties of a metric, or None if it is not declared."""
    rule, _, rest = name.partition("/")
    symbol = rest.partition("/")[0]
    keys = (name, f"{rule}/{symbol}", f"{rule}/*") if rest else (name,)
    return next((FACTS[key] for key in keys if key in FACTS), None)


def fact(name: str) -> Metric:
    """The properties of a metric; the defaults if it is not declared."""
    return declared(name) or Metric()


def finished(name: str, value: Any) -> Any:
    """The figure that a list of rates is for; any other value as it is. See `scores.py`."""
    finish = fact(name).finish
    return finish(value) if finish is not None and isinstance(value, list) else value


def over_clients(name: str) -> OverClients:
    """How the clients' values of this metric are combined; `none` for ids, counts and flags."""
    return fact(name).over_clients


def shown(name: str) -> str:
    """The displayed name of a metric, as in `test accuracy` or `aggregate time`."""
    symbol = name.partition("/")[2]
    return fact(name).name.format(symbol) or name.replace("/", " ").replace("_", " ")


def with_unit(name: str) -> str:
    """The displayed name of a metric with its unit, for titles and axes, as in `test accuracy (%)`."""
    unit = fact(name).unit
    return f"{shown(name)} ({unit})" if unit else shown(name)


def as_text(name: str, value: object) -> str:
    """A value for people, as in `96.00 %` or `0.9712`; `not measured` without a finite number."""
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return "not measured"
    known = fact(name)
    if known.unit == "%":
        return f"{known.factor * value:.2f} %"
    return f"{known.factor * value:.4f}" if known.most == 1.0 else f"{known.factor * value:.4g}"


def require_direction(name: str) -> Better:
    """Whether larger or smaller values of this metric are better. Raises ConfigError if neither is."""
    better = fact(name).better
    if better is None:
        raise ConfigError(
            f"{name} has no best value and no target, because neither larger nor smaller values of it are better; "
            f"use one of {', '.join(directed())}"
        )
    return better


def directed() -> list[str]:
    """The metrics for which larger or smaller values are better, by their names in FACTS."""
    return [name for name, metric in FACTS.items() if metric.better is not None]


def is_better(name: str, value: float, than: float) -> bool:
    """Whether `value` is better than `than`. Raises ConfigError like `require_direction`."""
    return value < than if require_direction(name) == "smaller" else value > than
