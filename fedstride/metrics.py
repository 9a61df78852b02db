"""What is known of a metric by its name: which values are better, how clients' values combine, how it is shown.

Knows names and facts; does not know values. What holds for `<rule>/<symbol>` holds for each of its layers,
`<rule>/<symbol>/<layer>`; what holds for `<rule>/*` holds for those of the rule that have no fact of their own.
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
    """The facts of a metric. The defaults are those of a metric that nobody has declared."""

    better: Better | None = None  # which values are better; None: neither, so there is no best round and no target
    over_clients: OverClients = "mean"  # of the values that clients report; none: it is no figure, but says who
    unit: str = ""  # of a value times `factor`
    factor: float = 1.0
    name: str = ""  # as shown, with {} for the symbol; where empty, the name itself without its signs


LOSS: Final = Metric("smaller")
ACCURACY: Final = Metric("larger", unit="%", factor=100.0)
FIGURE: Final = Metric()  # a mean over clients, or the server's own; neither better nor worse

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
    wire.TRAIN_STEPS: FIGURE,
    wire.EVAL_LOSS: LOSS,
    wire.EVAL_ACCURACY: ACCURACY,
    "seconds/*": Metric("smaller", unit="s", name="{} time"),
    "bytes/*": Metric("smaller", unit="bytes", name="{}load"),
    "screening/*": FIGURE,
    "norms/*": FIGURE,
    "privacy/*": FIGURE,
    "fednnnn/*": FIGURE,
    "fedalr/*": FIGURE,
    "fedlws/*": FIGURE,
    "two_d_lrd/*": FIGURE,
    "scaffold/*": FIGURE,
    "feddyn/*": FIGURE,
    "fednlr/*": FIGURE,
    "fednlr/rate_min": Metric(over_clients="min"),
    "fednlr/rate_max": Metric(over_clients="max"),
}
"""All that this version reports. A rule of one's own adds to it with `declare`."""


def declare(rule: str, facts: Mapping[str, Metric]) -> None:
    """Add the facts of a rule's metrics, by symbol: `declare("myrule", {"rate_min": Metric(over_clients="min")})`.

    Raises ConfigError for a metric that is declared already with other facts.
    """
    for symbol, fact in facts.items():
        key = f"{rule}/{symbol}"
        if FACTS.setdefault(key, fact) != fact:
            raise ConfigError(f"the metric {key!r} is declared already, with other facts: choose another name")


def declared(name: str) -> Metric | None:
    """The facts of a metric, None where nobody has declared any."""
    rule, _, rest = name.partition("/")
    symbol = rest.partition("/")[0]
    keys = (name, f"{rule}/{symbol}", f"{rule}/*") if rest else (name,)
    return next((FACTS[key] for key in keys if key in FACTS), None)


def fact(name: str) -> Metric:
    """The facts of a metric; the defaults where nobody has declared any."""
    return declared(name) or Metric()


def over_clients(name: str) -> OverClients:
    """How the values that clients report under this name become one: `none` where it is no metric."""
    return fact(name).over_clients


def shown(name: str) -> str:
    """The name of a metric as a title has it: `test accuracy`, `aggregate time`."""
    symbol = name.partition("/")[2]
    return fact(name).name.format(symbol) or name.replace("/", " ").replace("_", " ")


def require_direction(name: str) -> Better:
    """Which values of this metric are better. Raises ConfigError where neither larger nor smaller ones are."""
    better = fact(name).better
    if better is None:
        raise ConfigError(
            f"{name} has no best value and no target, since neither larger nor smaller values of it are better: "
            f"use one of {', '.join(directed())}"
        )
    return better


def directed() -> list[str]:
    """The metrics that have a better direction, as in FACTS."""
    return [name for name, metric in FACTS.items() if metric.better is not None]


def is_better(name: str, value: float, than: float) -> bool:
    """Whether one value of this metric is better than another. Raises ConfigError as `require_direction`."""
    return value < than if require_direction(name) == "smaller" else value > than
