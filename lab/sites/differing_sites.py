"""Which sites have other values than the rest, column by column.

Each site is tested against all others together (`histograms.py`). With c columns and s sites, a site is another
one in a column if p c s <= 5 % (Bonferroni): if all sites are alike, the probability that any of them is named in
any column is then at most 5 %. The site with the smallest p-value is taken out, and the rest is tested again with
the same factor, so that one site does not make the others look different. Of two sites, both are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedstride.tasks.statistics.description import PRESENT, DescribedColumn, Description, Told

from .histograms import Histogram, difference, hidden, histogram_of, without

LEVEL = 0.05
"""The probability that a site is named although all are alike."""

UNIT_FACTOR = 3.0
"""How often larger or smaller, mean and deviation both, the values of a site are before its unit is doubted."""

ALIKE_FACTOR = 2.0
"""How much the factors of mean and deviation may differ, so that one factor explains both."""


class Outlier(NamedTuple):
    """A site whose values in a column are not like those of the others; `p` is corrected."""

    site: str
    column: int
    p: float


def outliers(said: Mapping[str, Description], asked: Sequence[DescribedColumn]) -> list[Outlier]:
    """The sites that differ, by column. `said`: of each site that described its data, by name."""
    columns = {at: by_site for at in range(len(asked)) if len(by_site := _histograms(said, asked[at], at)) > 1}
    tests = sum(map(len, columns.values()))
    return [
        Outlier(site, at, p) for at, histograms in columns.items() for site, p in _named(histograms, tests).items()
    ]


def unit_factor(site: str, column: int, said: Mapping[str, Description]) -> float | None:
    """By how much this site's values are larger than the others', if that one factor explains mean and deviation.

    None if it does not. Then the site may have another unit.
    """
    one = said[site].columns[column]
    others = [
        description.columns[column] for name, description in said.items() if name != site and description.columns
    ]
    others = [other for other in others if other.std > 0 and other.present]
    if one.std <= 0 or not others:
        return None
    rows = sum(other.present for other in others)
    mean = sum(other.mean * other.present for other in others) / rows
    deviation = sum(other.std * other.present for other in others) / rows
    if not mean or one.mean / mean <= 0:
        return None
    factor, spread = one.mean / mean, one.std / deviation
    far = min(factor, spread) > UNIT_FACTOR or max(factor, spread) < 1 / UNIT_FACTOR
    return factor if far and 1 / ALIKE_FACTOR < factor / spread < ALIKE_FACTOR else None


def _named(histograms: Mapping[str, Histogram], tests: int) -> dict[str, float]:
    """The sites that are not like the others in one column, each with its corrected p-value."""
    left = dict(histograms)
    p_values: dict[str, float] = {}
    while len(left) > 1:
        values = {
            site: value
            for site, one in left.items()
            if (value := difference(one, [other for name, other in left.items() if name != site])) is not None
        }
        if not values:
            break
        worst = min(values, key=lambda site: values[site])
        if (p := values[worst] * tests) > LEVEL:
            break
        if len(left) == 2:
            return {**p_values, **dict.fromkeys(left, p)}
        p_values[worst] = p
        del left[worst]
    return p_values


def _histograms(said: Mapping[str, Description], column: DescribedColumn, at: int) -> dict[str, Histogram]:
    """What the sites said of one column; of categories, what all of them said."""
    told: dict[str, Told] = {
        site: description.columns[at]
        for site, description in said.items()
        if description.columns and description.columns[at].state == PRESENT and description.columns[at].counts
    }
    count = len(column.categories)
    histograms = {site: histogram_of(answer, said[site].rows, count) for site, answer in told.items()}
    if count and told:
        not_said = hidden(list(told.values()))
        histograms = {site: histogram and without(histogram, not_said) for site, histogram in histograms.items()}
    return {site: histogram for site, histogram in histograms.items() if histogram is not None}
