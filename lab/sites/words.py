"""What a site said of a column, in words, and what differs between sites, one line for each thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fedstride.tasks.statistics.description import (
    BELOW,
    LACKS,
    NOT_SAID,
    OTHER,
    PRESENT,
    DescribedColumn,
    Description,
    Told,
    near,
)

from .differing_sites import Outlier, unit_factor

NO_MEAN = "no mean"
WHY_NO_MEAN = f"{NO_MEAN}: fewer rows than the site's min_rows have one of the column's few values"
NONE = "none"
"""In place of a share of no rows."""


def number(value: float) -> str:
    """A number with three digits."""
    return f"{value:.3g}"


def share(part: float, whole: float) -> str:
    """A share in percent."""
    return f"{100 * part / whole:.0f} %" if whole else ""


def missing(told: Told, said: Description) -> str:
    """The share of rows without a usable value."""
    if told.state != PRESENT:
        return ""
    if told.missing == BELOW:
        return f"below {said.min_rows}"
    if not told.counts:
        return f"all but below {said.min_rows}"
    return NONE if told.missing == 0 else share(told.missing, said.rows)


def moments(column: DescribedColumn, told: Told) -> str:
    """Mean and deviation, or that a site does not say them of the numbers of an example."""
    if told.std != NOT_SAID:
        return f"{number(told.mean)} ± {number(told.std)}"
    return "" if column.predicted or not told.counts else NO_MEAN


def percentile(told: Told, wanted: float) -> str:
    """The edge of a bin that is nearest to a percentile, with the share of values below it."""
    nearest = near(told, wanted)
    return "" if nearest is None else f"{number(nearest[0])} ({100 * nearest[1]:.0f} %)"


def of_number(column: DescribedColumn, told: Told, said: Description) -> str:
    """All that is said of a column of numbers."""
    if told.state != PRESENT:
        return state(told)
    if told.std == NOT_SAID and not told.counts:
        return "too few values"
    low, high = percentile(told, 0.05), percentile(told, 0.95)
    range_of = f"{low} to {high}" if low != high else low
    lacking = f"{missing(told, said)} missing" if told.missing else ""
    return ", ".join(filter(None, [moments(column, told), range_of, lacking]))


def of_category(at: int, told: Told, said: Description) -> str:
    """The rows of one category."""
    if told.state != PRESENT:
        return state(told)
    if not told.counts:
        return "too few values"
    count = told.counts[at]
    if count < 0:
        return f"below {said.min_rows}" if count == BELOW else "not said"
    return f"{count} ({share(count, said.rows - max(told.missing, 0))})"


def state(told: Told) -> str:
    """Why a site says nothing of a column."""
    return {LACKS: "no such column", OTHER: "other cells"}.get(told.state, "")


def verdict(told: Mapping[str, Description | None]) -> str:
    """What to say if no line says that something differs."""
    answered = sum(description is not None for description in told.values())
    if answered == len(told) > 0:
        return "Nothing differs"
    if answered > 1:
        return "Nothing differs between the sites that answered"
    return "Only one site answered, so nothing is compared" if answered else "No site said anything"


def differences(
    said: Mapping[str, Description], asked: Sequence[DescribedColumn], outliers: Sequence[Outlier]
) -> list[str]:
    """One line for each thing by which a site differs from what the run says, or from the others."""
    lines = [line for site, description in said.items() for line in _of_site(site, description, asked)]
    for site in said:
        its_outliers = [outlier for outlier in outliers if outlier.site == site]
        if its_outliers:
            columns = ", ".join(f"{asked[outlier.column].name} (p = {outlier.p:.1g})" for outlier in its_outliers)
            lines.append(f"{site}: distributed differently than at the other sites: {columns}")
        lines += [
            line
            for outlier in its_outliers
            if (line := _of_unit(site, asked[outlier.column].name, outlier.column, said))
        ]
    return lines


def _of_site(site: str, said: Description, asked: Sequence[DescribedColumn]) -> Iterator[str]:
    if said.few:
        yield f"{site}: it has fewer than min_rows = {said.min_rows} rows, and says nothing else"
        return
    told = list(zip(asked, said.columns, strict=True))
    if not said.readable:
        yield f"{site}: {_unreadable(told)} in its own log"
    if said.unnamed:
        yield f"{site}: columns that the run does not name: {said.unnamed}; their names are in its own log"
    if lacks := [column.name for column, answer in told if answer.state == LACKS]:
        yield f"{site}: it has no column {', '.join(lacks)}"
    if other := [column.name for column, answer in told if answer.state == OTHER]:
        yield f"{site}: other cells or categories than the run says, in {', '.join(other)}"
    for column, answer in told:
        if answer.unknown:
            few = f"some, in fewer than {said.min_rows} rows"
            count = few if answer.unknown == BELOW else str(answer.unknown)
            yield f"{site}: {column.name}: categories that the run does not name: {count}; its own log has them"
        if column.predicted and column.categories and (BELOW in answer.counts):
            rare = [name for name, count in zip(column.categories, answer.counts, strict=True) if count == BELOW]
            classes = ", ".join(f"'{name}'" for name in rare)
            yield f"{site}: {column.name}: classes with fewer than {said.min_rows} rows: {classes}"
        if answer.state == PRESENT and not answer.counts and column.binned:
            yield f"{site}: {column.name}: fewer than {said.min_rows} rows have a value"


def _unreadable(told: Sequence[tuple[DescribedColumn, Told]]) -> str:
    """What of a site cannot be read: single cells, or the table, which has not the columns of the run."""
    if all(answer.state == PRESENT for _, answer in told):
        return "not all cells can be read; how many and which is"
    return "a run cannot read this table; why is"


def _of_unit(site: str, column: str, at: int, said: Mapping[str, Description]) -> str:
    factor = unit_factor(site, at, said)
    if factor is None:
        return ""
    return f"{site}: {column}: its values are about {number(factor)} times theirs: is its unit the same?"
