"""What a run's records say of each site: its rows, its figures with intervals, the rounds that it attended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedstride.figures.intervals import FEWEST, Interval, enough
from fedstride.figures.intervals_by_counts import RATES, of_area, of_rate
from fedstride.figures.metrics import DEVIATION, SMALLEST, as_text, fact
from fedstride.messages import wire

from ..config.schema import Config
from ..evaluation import membership
from ..evaluation.differences import ModelPair, pairs_in
from ..records.row_values import Row, number
from .client_rows import AREA, NO_REPLY

WIDEST = 0.2
"""The widest interval of a figure in [0, 1] with which a site says something of the model."""

TOO_WIDE = f"the interval is wider than {WIDEST:g}"
TOO_FEW = f"fewer than {FEWEST} rows"
NO_FIGURE = "no figure"
TOO_FEW_OF_A_CLASS = f"fewer than {FEWEST} rows of a class"

USED = "used"
ASKED = (USED, "rejected", NO_REPLY)
"""What a site's row says of a round in which it was asked."""


SHARES = frozenset(f"{wire.LOCAL}/{name}" for name in RATES)
"""Figures with Wilson's interval."""


@dataclass(frozen=True)
class SiteFigure:
    """A figure of some rows, and its interval of 95 % by the number of rows; None where it is not known.

    `rows`: how many were measured; `fewest`: of a figure by class, how many the class has that has fewest.
    """

    metric: str
    value: float
    interval: Interval | None = None
    rows: float | None = None
    fewest: float | None = None

    @property
    def text(self) -> str:
        """As in `0.9152 (0.8713 to 0.9590)`."""
        if self.interval is None:
            return as_text(self.metric, self.value)
        low, high = (as_text(self.metric, end) for end in self.interval)
        return f"{as_text(self.metric, self.value)} ({low} to {high})"

    @property
    def why_it_says_little(self) -> str:
        """Why the model cannot be judged by it: too wide an interval, or too few rows; empty if it can."""
        if self.interval is not None and fact(self.metric).most <= 1.0 and self._width > WIDEST:
            return TOO_WIDE
        return self.why_its_rows_are_few

    @property
    def why_its_rows_are_few(self) -> str:
        """Why no figure of these rows says something; empty if one can, or if their number is not known."""
        if self.rows is not None and not enough(int(self.rows)):
            return TOO_FEW
        return TOO_FEW_OF_A_CLASS if self.fewest is not None and not enough(int(self.fewest)) else ""

    @property
    def _width(self) -> float:
        return 0.0 if self.interval is None else self.interval[1] - self.interval[0]


@dataclass
class SiteRecord:
    """A client of the run, by the name in its records."""

    name: str
    rows: int | None = None  # on which it trained in the last round that was used
    measured: int | None = None  # on which its figures were measured; 0 if it holds out too few to say one
    figures: dict[str, SiteFigure] = field(default_factory=dict)  # of the last evaluation that was used
    pairs: dict[str, ModelPair] = field(default_factory=dict)  # of two models, by figure
    tested: Row = field(default_factory=dict)  # the last row that says something of a membership test
    asked: int = 0  # rounds
    attended: int = 0  # rounds in which its reply was used
    reason: str = ""  # why its last reply was not used

    def add(self, row: Mapping[str, Any]) -> None:
        """Take over a row of the site."""
        status = row.get("status")
        self.asked += status in ASKED
        if _whole(row, wire.MEASURED) == 0:
            self.measured = 0
        if status != USED:
            self.reason = str(row.get("reason", ""))
            return
        self.attended += 1
        self.reason = ""
        if row.get("round"):  # in round 0 nothing is trained
            self.rows = _whole(row, wire.NUM_EXAMPLES) or self.rows
        figures = figures_in(row)
        if figures:
            self.figures, self.measured = figures, _whole(row, wire.MEASURED)
            self.pairs = pairs_in(row)
        if any(key.startswith(membership.START) for key in row):
            self.tested = dict(row)

    @property
    def evaluated(self) -> bool:
        """Whether it was measured, or would have been with more rows."""
        return bool(self.figures) or self.measured == 0

    def why_it_says_little(self, metric: str) -> str:
        """Why the site cannot be judged by its figure of this metric; empty if it can."""
        if self.measured == 0:
            return "it holds out fewer rows than it says something of"
        figure = self.figures.get(metric)
        if figure is None:
            return NO_FIGURE
        return figure.why_it_says_little


class Sites:
    """The sites of a run, from the rows of its clients, which are added round by round."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._found: dict[Any, SiteRecord] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """Take over the rows of a round."""
        for row in rows:
            client = row.get("client")
            if client is None:  # a node that was refused
                continue
            if client not in self._found:
                self._found[client] = SiteRecord(name_of(self._config, client))
            self._found[client].add(row)

    @property
    def all(self) -> list[SiteRecord]:
        """The sites, in the order of their numbers and then of their names."""
        return [self._found[client] for client in sorted(self._found, key=_order)]

    @property
    def smallest(self) -> int | None:
        """The number of the site with the fewest rows; None if the sites have names, which only nodes know."""
        sizes = {client: site.rows for client, site in self._found.items() if site.rows is not None}
        site_number = min(sizes, key=lambda client: (sizes[client], _order(client)), default=None)
        return site_number if isinstance(site_number, int) else None


def _order(client: Any) -> tuple[bool, Any]:
    """A sort key: numbers, as numbers, before names."""
    return isinstance(client, str), client


def name_of(config: Config, client: Any) -> str:
    """The name that a site states, or its number, with the name of its file where the run names the files."""
    files = getattr(config.partition, "files", None) or []
    has_file = isinstance(client, int) and 0 <= client < len(files)
    return f"{client} ({Path(files[client]).stem})" if has_file else str(client)


def over_all(row: Mapping[str, Any], sites: Iterable[SiteRecord]) -> dict[str, SiteFigure]:
    """The figures of a round's row, over all sites or on the server's test set. `sites`: that were measured."""
    return figures_in(row, float(sum(site.measured or 0 for site in sites)) or None)


def figures_in(row: Mapping[str, Any], measured: float | None = None) -> dict[str, SiteFigure]:
    """The figures of an evaluation in a row of a site or a round, user-defined ones too.

    `measured`: its rows; None: as the row says.
    """
    of_sites = number(row, wire.MEASURED) if measured is None else measured
    figures = {}
    for metric in row:
        prefix, _, name = metric.partition("/")
        if prefix not in (wire.LOCAL, "test") or "/" in name or metric == wire.MEASURED:
            continue  # local/auroc/error, for example, belongs to a figure and is none itself
        value = number(row, metric)
        if value is not None:
            rows = of_sites if prefix == wire.LOCAL else None
            figures[metric] = _figure(metric, value, rows, row)
    return figures


def _figure(metric: str, value: float, rows: float | None, row: Mapping[str, Any]) -> SiteFigure:
    """With its interval. Wilson's is right of any number of rows; that of an AUROC needs enough of each class."""
    figure = SiteFigure(metric, value, None, rows, number(row, f"{metric}/{SMALLEST}"))
    deviation = number(row, f"{metric}/{DEVIATION}")
    if metric == AREA and deviation is not None:
        few = figure.fewest is not None and not enough(int(figure.fewest))
        return figure if few else replace(figure, interval=of_area(value, deviation))
    inside = fact(metric).least <= value <= fact(metric).most
    if metric not in SHARES or not inside or rows is None or rows < 1:
        return figure
    return replace(figure, interval=of_rate(value, rows))


def _whole(row: Mapping[str, Any], name: str) -> int | None:
    value = number(row, name)
    return None if value is None else int(value)
