"""Properties of metrics by name: which values are better, how clients' values are combined, how it is displayed.

The properties of `<rule>/<symbol>` also apply to its layers, `<rule>/<symbol>/<layer>`. The properties of
`<rule>/*` apply to all metrics of the rule that have no entry of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from . import wire
from .errors import ConfigError

Better = Literal["larger", "smaller"]
OverClients = Literal["mean", "min", "max", "none"]


@dataclass(frozen=True)
class Metric:
    """The properties of a metric. The defaults are those of a metric that is not declared."""

    better: Better | None = None  # which values are better; None: neither, so there is no best round and no target
    over_clients: OverClients = "mean"  # how clients' values are combined; none: not combined (ids, counts, flags)
    unit: str = ""  # of a displayed value, which is the value times `factor`
    factor: float = 1.0
    name: str = ""  # displayed name, with {} for the symbol; if empty, the metric's name without / and _


LOSS: Final = Metric("smaller")
ACCURACY: Final = Metric("larger", unit="%", factor=100.0)
NEUTRAL: Final = Metric()  # neither larger nor smaller values are better; clients' values are averaged

FACTS: dict[str, Metric] = {
    wire.NUM_EXAMPLES: Metric(over_clients="none"),
    wire.CLIENT_ID: Metric(over_clients="none"),
    wire.STATE_LOST: Metric(over_clients="none"),
    wire.STATE_HELD: Metric(over_clients="none"),
    "done/*": Metric(over_clients="none"),
    "test/loss": LOSS,
    "test/accuracy": ACCURACY,
    wire.TRAIN_LOSS: LOSS,
    wire.TRAIN_ACCURACY: ACCURACY,
    wire.TRAIN_STEPS: NEUTRAL,
    wire.EVAL_LOSS: LOSS,
    wire.EVAL_ACCURACY: ACCURACY,
    "seconds/*": Metric("smaller", unit="s", name="{} time"),
    "bytes/*": Metric("smaller", unit="bytes", name="{}load"),
    "screening/*": NEUTRAL,
    "norms/*": NEUTRAL,
    "privacy/*": NEUTRAL,
    "fednnnn/*": NEUTRAL,
    "fedalr/*": NEUTRAL,
    "fedlws/*": NEUTRAL,
    "two_d_lrd/*": NEUTRAL,
    "scaffold/*": NEUTRAL,
    "feddyn/*": NEUTRAL,
    "fednlr/*": NEUTRAL,
    "fednlr/rate_min": Metric(over_clients="min"),
    "fednlr/rate_max": Metric(over_clients="max"),
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


def over_clients(name: str) -> OverClients:
    """How the clients' values of this metric are combined; `none` for ids, counts and flags."""
    return fact(name).over_clients


def shown(name: str) -> str:
    """The displayed name of a metric, as in `test accuracy` or `aggregate time`."""
    symbol = name.partition("/")[2]
    return fact(name).name.format(symbol) or name.replace("/", " ").replace("_", " ")


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
