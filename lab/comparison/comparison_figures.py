"""The figures of a comparison at each site, and over all of them by a bootstrap within each site.

Over all sites, each is a stratum. A site with fewer rows than an interval needs would count with its figure, and
with hardly any of the chance that is in it: of a single row with none. So it does not count over all, in figures
and in differences, and is named. A site with enough rows counts, also if its models agree on each row: to leave it
out for that would favour a difference. If no site has enough rows, all count, and there is no interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedstride.figures import intervals
from fedstride.seeds import MAX_SEED
from fedstride.tasks.evaluation.comparison import At, Columns, Pairs, at_site, bootstrapped
from fedstride.tasks.evaluation.per_row import joined

ALL = "all"
"""The name of all sites together."""


def everywhere(names: Sequence[str], sites: Sequence[Columns], pairs: Pairs) -> list[At]:
    """On the rows of each site, and then, if there are several, on those of all sites together."""
    at_sites = [at_site(*named, pairs, place) for place, named in enumerate(zip(names, sites, strict=True))]
    if len(at_sites) == 1:
        return at_sites
    counts = [intervals.enough(at_site.rows) for at_site in at_sites]
    if not any(counts):
        return [*at_sites, over_all(sites, pairs, MAX_SEED)]
    together = over_all([site for site, enough in zip(sites, counts, strict=True) if enough], pairs, MAX_SEED)
    few = [at_site.site for at_site, enough in zip(at_sites, counts, strict=True) if not enough]
    return [*at_sites, replace(together, left_out=few)]


def over_all(sites: Sequence[Columns], pairs: Pairs, seed: int) -> At:
    """On the rows of these sites together, each site a stratum."""
    columns = {
        column: [joined([site[column][place] for site in sites]) for place in range(len(by_seed))]
        for column, by_seed in sites[0].items()
    }
    sizes = [next(iter(site.values()))[0].rows for site in sites]
    return bootstrapped(ALL, sizes, columns, pairs, seed)
