"""The figures of a comparison at each site, and over all of them by a bootstrap within each site."""

from __future__ import annotations

from collections.abc import Sequence

from fedstride.seeds import MAX_SEED
from fedstride.tasks.evaluation.comparison import At, Columns, Pairs, at_site, bootstrapped
from fedstride.tasks.evaluation.per_row import joined

ALL = "all"
"""The name of all sites together."""


def everywhere(names: Sequence[str], sites: Sequence[Columns], pairs: Pairs) -> list[At]:
    """On the rows of each site, and then on those of all sites together."""
    at_sites = [at_site(*named, pairs, place) for place, named in enumerate(zip(names, sites, strict=True))]
    return [*at_sites, over_all(sites, pairs, MAX_SEED)]


def over_all(sites: Sequence[Columns], pairs: Pairs, seed: int) -> At:
    """On the rows of all sites together, each site a stratum."""
    columns = {
        column: [joined([site[column][place] for site in sites]) for place in range(len(by_seed))]
        for column, by_seed in sites[0].items()
    }
    sizes = [next(iter(site.values()))[0].rows for site in sites]
    return bootstrapped(ALL, sizes, columns, pairs, seed)
