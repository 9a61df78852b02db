"""Is the model of one run good enough, and at every site? In words, from the figure that decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedstride.errors import FedstrideError, counted
from fedstride.figures.metrics import ERROR, as_text, fact, is_better, require_direction, shown
from fedstride.messages import wire
from server_app.reports.sites import SiteFigure, SiteRecord, Sites, over_all
from server_app.reports.unmeasured import why_not_measured

from .run_folders import Run
from .tables import Statistic

YES, NO, OPEN = "yes", "no", "it cannot be said"

IN_IT, TOO_LITTLE = "the interval contains the target", "too few rows were measured"
UNKNOWN = "it has no figure"
"""Why it cannot be said."""


@dataclass(frozen=True)
class Quality:
    """The answer, what is known of the sites, and warnings."""

    text: str
    sites: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def sites_of(run: Run) -> list[SiteRecord]:
    """The sites in a run's records; none if these cannot be read."""
    sites = Sites(run.config)
    try:
        sites.add(run.clients.rows)
    except (ValueError, FedstrideError):  # the section on failures says so
        return []
    return sites.all


def quality(run: Run, target: float | None = None) -> Quality:
    """The answer for one run. `target`: of the metric that decides; None: the run's own, if it has one."""
    metric, sites = run.figure, sites_of(run)
    wanted = run.config.target if target is None and metric == run.headline else target
    figure, why = _last(run, sites), why_not_measured(run.config, run.rows, sites)
    unfinished = () if run.completed else (f"The run {run.remark}.",)
    if figure is None:
        return Quality(f"No figure. {why}", warnings=unfinished)
    return Quality(
        _answer(figure, wanted, _of_what(metric, sites)),
        (*([why] if why else []), *_of_bins(run), *_at_sites(metric, sites, wanted)),
        (*unfinished, *_warnings(metric, sites)),
    )


def _last(run: Run, sites: Sequence[SiteRecord]) -> SiteFigure | None:
    """The figure that decides, of the last round in which it was measured."""
    metric = run.figure
    for row in reversed(run.rows):
        if (figure := over_all(row, sites).get(metric)) is not None and (row["round"] or not run.config.rounds):
            return figure
    value = Statistic().of(run.rows, metric)
    return None if value is None else SiteFigure(metric, value)


def _of_bins(run: Run) -> list[str]:
    """How far the figure can be from that of the scores themselves, if it is from bins of them."""
    error = Statistic().of(run.rows, f"{run.figure}/{ERROR}")
    if not error:
        return []
    within = as_text(run.figure, error)
    return [
        f"It is from bins of scores, and within {within} of the figure of the scores, which stay at the sites."
    ]


def _of_what(metric: str, sites: Sequence[SiteRecord]) -> str:
    """On what it was measured. A site of one class counts in the AUROC over all, and has none of its own."""
    measured = [site for site in sites if site.figures]
    alone = sum(metric in site.figures for site in measured)
    if not metric.startswith(f"{wire.LOCAL}/") or not measured:
        return ""
    of_sites = counted(len(measured), "site")
    if alone < len(measured):
        return f", measured at {of_sites}, of which {alone} have a figure of their own"
    rows = [site.measured for site in measured if site.measured is not None]
    return f", measured on {sum(rows):,} rows of {of_sites}" if len(rows) == alone else f", measured at {of_sites}"


def _answer(figure: SiteFigure, target: float | None, what: str) -> str:
    metric = figure.metric
    said = f"{shown(metric)} is {_with_interval(figure)}{what}"
    if target is None:
        return f"{said[0].upper()}{said[1:]}. Whether that is good enough, a target decides: --target VALUE."
    return (
        f"Is it good enough? Over all: {reaches(figure, target)}. {said[0].upper()}{said[1:]}; the target is "
        + (f"{as_text(metric, target)}.")
    )


def _with_interval(figure: SiteFigure) -> str:
    if figure.interval is None:
        return as_text(figure.metric, figure.value)
    low, high = (as_text(figure.metric, end) for end in figure.interval)
    return f"{as_text(figure.metric, figure.value)} (95 % interval {low} to {high})"


def reaches(figure: SiteFigure, target: float) -> str:
    """Whether a figure reaches a target: yes or no if its whole interval does or does not, else open.

    Open too if it says little, whatever its value.
    """
    if figure.why_it_says_little:
        return OPEN
    if figure.interval is None:
        return YES if not is_better(figure.metric, target, figure.value) else NO
    answers = {not is_better(figure.metric, target, end) for end in figure.interval}
    return OPEN if len(answers) == 2 else YES if answers.pop() else NO


def _at_sites(metric: str, sites: Sequence[SiteRecord], target: float | None) -> list[str]:
    """The best and the worst site; with a target, the sites that reach it, that do not, and that are open.

    A site whose figure says little is neither the best nor the worst, and one without a figure is open.
    """
    measured = [(site, site.figures[metric]) for site in sites if metric in site.figures]
    if not measured or not _has_direction(metric):
        return []
    smaller = fact(metric).better == "smaller"
    judged = [pair for pair in measured if not pair[1].why_it_says_little]
    ordered = sorted(judged, key=lambda pair: pair[1].value, reverse=not smaller)
    lines = []
    if target is not None:
        lines.append(f"At every site? {_counted(metric, sites, target)}")
    if len(ordered) > 1:
        (best, first), (worst, last) = ordered[0], ordered[-1]
        lines.append(f"Best site: {best.name}, {first.text}. Worst site: {worst.name}, {last.text}.")
    return lines


def _counted(metric: str, sites: Sequence[SiteRecord], target: float) -> str:
    answers: dict[str, list[str]] = {YES: [], NO: [], OPEN: []}
    reasons = set()
    for site in sites:
        figure = site.figures.get(metric)
        answer = OPEN if figure is None else reaches(figure, target)
        answers[answer].append(site.name)
        if answer == OPEN:
            reasons.add(_why_open(site, figure))
    if len(answers[YES]) == len(sites):
        return f"Yes, at each of {len(sites)}."
    parts = [f"yes at {_named(answers[YES])}", f"no at {_named(answers[NO])}"]
    parts.append(f"it cannot be said at {_named(answers[OPEN])}, because {' or '.join(sorted(reasons))}")
    said = [part for part, answer in zip(parts, answers.values(), strict=True) if answer]
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def _why_open(site: SiteRecord, figure: SiteFigure | None) -> str:
    if figure is None:
        return TOO_LITTLE if site.measured == 0 else UNKNOWN
    return TOO_LITTLE if figure.why_it_says_little else IN_IT


def _named(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _warnings(metric: str, sites: Sequence[SiteRecord]) -> list[str]:
    """The sites that say nothing of the model, and those whose reply was not used in each round."""
    if not any(site.figures for site in sites):
        return []
    without = [site for site in sites if metric not in site.figures and site.measured != 0]
    few = [(site, why) for site in sites if site not in without and (why := site.why_it_says_little(metric))]
    said = [f"{site.name} ({_rows(site)}, {why})" for site, why in few]
    none = [site.name + (f" ({_rows(site)})" if site.measured else "") for site in without]
    absent = [f"{site.name} ({site.attended} of {site.asked})" for site in sites if site.attended < site.asked]
    return [
        *([f"Too few rows to say: {_named(said)}."] if said else []),
        *([f"No {shown(metric)}: {_named(none)}."] if none else []),
        *([f"Rounds in which a reply was used: {_named(absent)}."] if absent else []),
    ]


def _rows(site: SiteRecord) -> str:
    return "rows not counted" if site.measured is None else f"{site.measured} rows measured"


def _has_direction(metric: str) -> bool:
    try:
        require_direction(metric)
    except FedstrideError:
        return False
    return True
