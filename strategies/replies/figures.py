"""Figures: numbers that clients report, and how the figures of a round are combined.

A client reports what it likes, so no client alone decides a combined figure:

1. A value counts if it is a finite number in the metric's range (`fedstride/figures/metrics.py`), or a list of
   such numbers, in the form (a number, or a list of this length) that most clients report.
2. It must be plausible: within 100 (|c| + d + s) of c, the median of the clients' values, where d is the median
   distance from c and s the metric's `scale`. The band is this wide so that honest values stay in it also if the
   clients' data differ much. Without s, a loss of 0.5 would be implausible among losses of 1e-6.
3. A metric has a combined figure if more than half of the replies have such a value. The mean is over these, with
   their weights; nothing else is changed, so if all count it is exactly sum_k p_k v_k.

Bins of scores and states of figures (`score_bins.py` and `figure_states.py` in `fedstride/figures/`) are such a
list too. Their form is the number of their classes or labels, or the names and shapes of their arrays; 2 does
not apply (whatever they say, the client has its weight and no more), and in place of a mean, the figure is that
of all clients' examples (`pooled_scores.py` and `figure.py`, beside them). What the entries of a state can be is
the figure's to say.

Medians count clients, not examples: a client can claim any number of examples. Two clients have no majority, so
if their values are too far apart, neither counts for the other and there is no combined figure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from fedstride.arrays.float64_sums import total
from fedstride.errors import printable
from fedstride.figures.metrics import Metric, OverClients, fact, finished
from fedstride.figures.pooled_scores import Pooled
from fedstride.messages.limits import MAX_LIST
from fedstride.plain_numbers import is_number

BAND = 100.0
"""Half the width of the plausible band, in units of |c| + d + s."""

NUMBER = -1
"""The form of a plain number. The form of a list is its length."""

SHOWN_NAME = 60
"""Number of characters of a metric's name in a note or in the log."""

Value = float | list[float]


@dataclass(frozen=True)
class Selection:
    """Which clients' values of a metric count, by the client's place among the replies."""

    used: Mapping[int, Value] = field(default_factory=dict)  # as reported
    left_out: Mapping[int, str] = field(default_factory=dict)  # the reason why a reported value does not count


def form_of(value: object) -> int | None:
    """NUMBER, the length of a list of numbers, or None for anything else."""
    if isinstance(value, list):
        return len(value) if all(is_number(item) for item in value) else None
    return NUMBER if is_number(value) else None


def recorded_form(value: object, known: Metric) -> int | None:
    """The form in which a value can stand in a client's row: of bins it is a number, the figure."""
    form = form_of(value)
    return form if known.pool is None or form is None else NUMBER


def fault_of(value: object, known: Metric) -> str | None:
    """Why a value cannot count, regardless of what the others report; None if it can."""
    form = form_of(value)
    if form is None:
        return f"{type(value).__name__}, not a number or a list of numbers"
    if form > MAX_LIST:
        return f"a list of {form} numbers, the most is {MAX_LIST}"
    if known.check is not None and isinstance(value, list):
        return known.check(_column(value))
    for item in _column(value):  # type: ignore[arg-type]
        if not math.isfinite(item):
            return f"{item} is not finite"
        if not known.least <= item <= known.most:
            return f"{item:.12g} is not in [{known.least:g}, {known.most:g}]"
    return None


def select(name: str, reported: Sequence[object]) -> Selection:
    """The values of this metric that count; `reported` has one value per reply, None if it has none."""
    known = fact(name)
    values: dict[int, Value] = {}
    left_out: dict[int, str] = {}
    for place, value in enumerate(reported):
        if value is None:
            continue
        if fault := fault_of(value, known):
            left_out[place] = fault
        else:
            values[place] = value  # type: ignore[assignment]
    forms = {place: _form(value, known) for place, value in values.items()}
    common = _common_form(forms.values())
    if common is None:
        return Selection({}, left_out)
    for place in [place for place, form in forms.items() if form != common]:
        left_out[place] = f"{_in_words(forms[place], known)}, most clients report {_in_words(common, known)}"
        del values[place]
    are_bins = known.pool is not None and common != NUMBER
    for place, text in {}.items() if are_bins else _implausible(values, known.scale).items():
        del values[place]
        left_out[place] = text
    return Selection(values, dict(sorted(left_out.items())))


def combine(name: str, used: Mapping[int, Value], weights: Sequence[float]) -> Value:
    """The mean of at least one value of equal forms by weight, or their minimum or maximum; see `Metric`.

    `weights` has one number above 0 per reply. A list is combined item by item; bins give a number.
    """
    if (figure := pooled(name, used, weights)) is not None:
        return figure.value
    how = fact(name).over_clients
    kept = [weights[place] for place in used]
    whole = math.fsum(kept)
    shares = [weight / whole for weight in kept]
    columns = [_column(value) for value in used.values()]
    items = [_over_clients(how, item, shares) for item in zip(*columns, strict=True)]
    return items if isinstance(next(iter(used.values())), list) else items[0]


def pooled(name: str, used: Mapping[int, Value], weights: Sequence[float]) -> Pooled | None:
    """The figure of all clients' examples from the bins of each, and its bound; None if these are not bins."""
    pool = fact(name).pool
    clients = [value for value in used.values() if isinstance(value, list)]
    return pool(clients, [weights[place] for place in used]) if pool and clients else None


def real(value: float) -> float:
    """As a float; an int that no float can represent becomes infinite."""
    try:
        return float(value)
    except OverflowError:  # an int of more than 1024 bits
        return math.inf if value > 0 else -math.inf


def agreed(values: Collection[float], better: str | None) -> float | None:
    """The value that more than half of the clients reached, in the direction `better`; None without values."""
    best_first = sorted(values, reverse=better == "larger")
    return best_first[len(best_first) // 2] if best_first else None


def numbers(name: str, used: Mapping[int, Value]) -> dict[int, float]:
    """The figure of each client, by its place among the replies: plain numbers, or computed from rates or bins.

    Other lists have no number, and neither have figures that a client's examples do not allow (an AUROC of one
    class).
    """
    alone = {place: pooled(name, {0: value}, [1.0]) for place, value in used.items()}
    figures = {place: finished(name, used[place]) if one is None else one.value for place, one in alone.items()}
    return {
        place: real(figure)
        for place, figure in figures.items()
        if not isinstance(figure, list) and math.isfinite(real(figure))
    }


def in_words(reasons: Mapping[str, str]) -> str:
    """The reasons why values of these metrics do not count: one printable line with the first three."""
    first = [f"{name[:SHOWN_NAME]} ({reason})" for name, reason in islice(reasons.items(), 3)]
    more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return printable(", ".join(first)) + more


# ---------------------------------------------------------------- helpers


def _column(value: Value) -> list[float]:
    return [real(item) for item in value] if isinstance(value, list) else [real(value)]


def _form(value: Value, known: Metric) -> int | None:
    """The form of a value that has no fault; of bins the number of classes or labels, of a state a hash."""
    return known.form(_column(value)) if known.form and isinstance(value, list) else form_of(value)


def _common_form(forms: Collection[int | None]) -> int | None:
    """The form that more than half of the values have; None if there is none."""
    for form, count in Counter(forms).most_common(1):
        return form if 2 * count > len(forms) else None
    return None


def _in_words(form: int | None, known: Metric) -> str:
    if form == NUMBER:
        return "a number"
    return known.words.format(form) if known.words else f"a list of {form}"


def _implausible(values: Mapping[int, Value], scale: float) -> dict[int, str]:
    """By place: the first number that is too far from the other clients'."""
    columns = {place: _column(value) for place, value in values.items()}
    texts: dict[int, str] = {}
    for item in zip(*columns.values(), strict=True):
        center, width = _band(item, scale)
        for place, number in zip(columns, item, strict=True):
            if abs(number - center) > width:
                texts.setdefault(place, f"{number:g} is not within {width:.3g} of the median {center:g}")
    return texts


def _band(item: Sequence[float], scale: float) -> tuple[float, float]:
    """(center, half width) of the plausible band. All arithmetic may overflow to infinity, which allows more."""
    if max(map(abs, item)) <= BAND / 2 * scale:
        return 0.0, BAND / 2 * scale  # the same result without sorting
    ordered = sorted(item)
    middle = ordered[(len(item) - 1) // 2 : len(item) // 2 + 1]  # one value, or the middle two
    center = min(middle, key=lambda number: (abs(number), number))
    distances = sorted(abs(number - center) for number in item)
    spread = distances[len(item) // 2] if len(item) > 2 else 0.0  # of two, neither may widen the band for itself
    return center, BAND * (abs(center) + spread + scale)


def _over_clients(how: OverClients, values: Sequence[float], shares: Sequence[float]) -> float:
    if how == "min":
        return min(values)
    if how == "max":
        return max(values)
    mean = total(share * value for share, value in zip(shares, values, strict=True))
    # Only rounding can make a mean of finite values infinite.
    return mean if math.isfinite(mean) else min(max(mean, min(values)), max(values))
