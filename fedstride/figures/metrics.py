"""Properties of metrics by name: which values are better, how clients' values are combined, how it is displayed.

The properties of `<rule>/<symbol>` also apply to its layers, `<rule>/<symbol>/<layer>`. The properties of
`<rule>/*` apply to all metrics of the rule that have no entry of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Final, Literal

from ..errors import ConfigError
from ..messages import wire
from . import differences
from .figure import fault_of, form_of
from .intervals_by_counts import LISTS
from .score_bins import unpacked
from .scores import EXACT, SCORES, Pool, Score, score_of

Better = Literal["larger", "smaller"]
OverClients = Literal["mean", "min", "max", "none"]


@dataclass(frozen=True)
class Metric:
    """The properties of a metric. The defaults are those of a metric that is not declared.

    A client's value outside of [`least`, `most`], or far from the other clients' values compared with `scale`, is
    left out of the round's value (`strategies/replies/figures.py`).
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
    pool: Pool | None = None  # the figure of all clients, from the bins or the state of each
    check: Callable[[Sequence[float]], str | None] | None = None  # why such bins or state cannot count
    form: Callable[[Sequence[float]], int] | None = None  # the same number for bins or states of the same form
    words: str = ""  # what has this form, for messages


def of_score(score: Score) -> Metric:
    """The properties of a figure of predictions."""
    metric = Metric(
        score.better,
        unit="%" if score.percent else score.unit,
        factor=100.0 if score.percent else 1.0,
        least=-score.most if score.signed else 0.0,
        most=score.most,
        finish=None if score.finish is None else score.of,
        pool=score.pool,
    )
    if score.has_bins:
        words = "bins of {} classes or labels"
        return replace(metric, check=_fault_of_bins, form=lambda numbers: len(unpacked(numbers)), words=words)
    if (figure := score.figure) is not None:
        words = "a state of another form"
        return replace(
            metric,
            least=figure.least,
            most=figure.most,
            check=partial(fault_of, figure),
            form=form_of,
            words=words,
        )
    return metric


def _fault_of_bins(numbers: Sequence[float]) -> str | None:
    try:
        unpacked(numbers)
    except ValueError as fault:
        return str(fault)
    return None


LOSS: Final = Metric("smaller", least=0.0)
ACCURACY: Final = Metric("larger", unit="%", factor=100.0, least=0.0, most=1.0)
NEUTRAL: Final = Metric()  # neither larger nor smaller values are better; clients' values are averaged
SHARE: Final = Metric(least=0.0, most=1.0)

DIFFERENCE: Final = Metric(
    pool=differences.pooled,
    check=differences.fault_of,
    form=lambda numbers: differences.WHOLE,
    words="a difference",
)

AGREED: Final = "median/"
"""Prefix of the value of a metric that more than half of the clients reached; written by the server only."""

ERROR: Final = "error"
"""Last part of the name of a metric: how far a figure from bins of scores can be from that of the scores."""

DEVIATION: Final = "deviation"
"""Last part of the name of a metric: the standard deviation of a figure, from the numbers of its rows."""

SMALLEST: Final = "fewest"
"""Last part of the name of a metric: the rows of the class or label that has fewest, or of those without it."""

MEASURED: Final = ("test", wire.LOCAL, "ccvr")
"""The places where figures of predictions are measured: the first parts of their names."""

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
    **{f"{wire.LOCAL}/{name}/{ERROR}": SHARE for name, score in SCORES.items() if score.has_bins},
    f"{wire.LOCAL}/auroc/{DEVIATION}": SHARE,
    **{f"{wire.LOCAL}/{name}/{SMALLEST}": Metric(over_clients="none") for name in (*EXACT, *LISTS)},
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
    wire.RELEASES: Metric(over_clients="none"),
    wire.CLIPPED: SHARE,
    f"{wire.MEMBERSHIP}/*": Metric(over_clients="none"),
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
    "validated/*": NEUTRAL,
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
    """The properties of a metric, or None if it is not declared.

    A user-defined figure has its own, if its file is loaded; else those that a run's folder says (`recall`).
    """
    rule, _, rest = name.partition("/")
    if rule == wire.AGAINST:
        return replace(fact(f"{wire.LOCAL}/{rest}"), better=None)  # it is only measured, and decides nothing
    if rule == wire.DIFFERENCE:
        return _of_difference(rest)
    symbol = rest.partition("/")[0]
    if rule in MEASURED and name not in FACTS and (metric := _own(symbol)) is not None:
        return metric
    keys = (name, f"{rule}/{symbol}", f"{rule}/*") if rest else (name,)
    return next((FACTS[key] for key in keys if key in FACTS), None)


def _of_difference(rest: str) -> Metric:
    """The properties of the difference of a figure of two models, or of an end of its interval."""
    figure, _, end = rest.partition("/")
    if end:
        return Metric(over_clients="none")
    known = fact(f"{wire.LOCAL}/{figure}")
    most = known.most - known.least
    check = partial(differences.fault_of, most=most)
    return replace(DIFFERENCE, unit=known.unit, factor=known.factor, least=-most, most=most, check=check)


def _own(figure: str) -> Metric | None:
    score = score_of(figure)
    return _recalled.get(figure) if score is None else _of_own(score)


@lru_cache(maxsize=64)
def _of_own(score: Score) -> Metric:
    return of_score(score)


_recalled: dict[str, Metric] = {}  # user-defined figures, as the folders of runs say


def described(figures: Sequence[str] | None) -> dict[str, dict[str, str]]:
    """Of those of these figures that are user-defined, what a run's folder says, for `recall`."""
    metrics = {name: _own(name) for name in figures or () if name not in SCORES}
    return {name: {"better": f.better or "", "unit": f.unit} for name, f in metrics.items() if f is not None}


def recall(figures: Mapping[str, Mapping[str, str]]) -> None:
    """Use what a run's folder says of its user-defined figures, where their file is not loaded.

    If several runs say different things of one name, the last one counts.
    """
    for name, said in figures.items():
        better, unit = said.get("better"), said.get("unit", "")
        factor = 100.0 if unit == "%" else 1.0
        known: dict[str, Better] = {"larger": "larger", "smaller": "smaller"}
        _recalled[name] = Metric(known.get(better or ""), unit=unit, factor=factor)


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


def difference_as_text(name: str, value: float) -> str:
    """A difference of two values with its sign, in the digits of `as_text`: `+1.30 points`, `-0.0032`."""
    known = fact(name)
    if known.unit == "%":
        return f"{known.factor * value:+.2f} points"
    return f"{known.factor * value:+.4f}" if known.most == 1.0 else f"{known.factor * value:+.4g}"


def require_direction(name: str) -> Better:
    """Whether larger or smaller values of this metric are better. Raises ConfigError if neither is."""
    better = fact(name).better
    if better is None:
        raise ConfigError(
            f"{name} has no best value and no target, because neither larger nor smaller values of it are better; "
            f"use one of {', '.join(directed())}"
        )
    return better


def check_target(name: str, target: float) -> None:
    """Raises ConfigError for a value that the metric cannot reach, such as 95 of a fraction."""
    metric = fact(name)
    if metric.unit == "%" and target > 1:
        reason = f"{name} is a fraction, so {target:g} % is {target / 100:g}"
        raise ConfigError(f"target = {target:g} is not allowed: {reason}")
    if not metric.least <= target <= metric.most:
        raise ConfigError(
            f"target = {target:g} is not allowed: {name} is between {metric.least:g} and {metric.most:g}"
        )


def directed() -> list[str]:
    """The metrics for which larger or smaller values are better, by their names in FACTS."""
    return [name for name, metric in FACTS.items() if metric.better is not None]


def is_better(name: str, value: float, than: float) -> bool:
    """Whether `value` is better than `than`. Raises ConfigError like `require_direction`."""
    return value < than if require_direction(name) == "smaller" else value > than
