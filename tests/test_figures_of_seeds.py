"""Tables that print the figure of each seed: the means beside them, and what docs/baselines.md says of them."""

from __future__ import annotations

import re
import statistics
from typing import NamedTuple

import pytest
from scripts import ROOT

from lab.results.paired_differences import Paired, paired

EACH = re.compile(r"\d+\.\d+(?:, \d+\.\d+){2}")
MEAN = re.compile(r"(?P<mean>\d+\.\d+) ± (?P<spread>\d+\.\d+)")
PAGES = sorted((ROOT / "docs").glob("*.md"))


class Row(NamedTuple):
    """A line of a table: its first cell, the mean ± deviation, and the figures of the seeds."""

    method: str
    mean: str
    spread: str
    seeds: list[float]
    step: float  # of the last digit of a seed's figure


def rows(text: str) -> list[Row]:
    """All lines with figures of three seeds; the mean is in the nearest cell before them that has one."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        means = [MEAN.match(cell) for cell in cells]
        own = [i for i, cell in enumerate(cells) if EACH.fullmatch(cell)]
        several = sum(m is not None for m in means[: own[0]]) == len(own) > 1 if own else False
        for k, i in enumerate(own):
            before = [m for m in means[:i] if m]
            match = before[k] if several else before[-1] if before else None
            if match:
                figures = [float(each) for each in cells[i].split(", ")]
                digits = len(cells[i].split(", ")[0].partition(".")[2])
                found.append(Row(cells[0], match["mean"], match["spread"], figures, 10.0**-digits))
    return found


@pytest.mark.parametrize("page", [page.name for page in PAGES if rows(page.read_text(encoding="utf-8"))])
def test_means_are_those_of_the_seeds(page: str) -> None:
    for row in rows((ROOT / "docs" / page).read_text(encoding="utf-8")):
        assert abs(float(row.mean) - statistics.mean(row.seeds)) < 0.5 * row.step + 0.0051, row
        assert abs(float(row.spread) - statistics.stdev(row.seeds)) < row.step + 0.0051, row


BASELINES = (ROOT / "docs/baselines.md").read_text(encoding="utf-8")


def listed(text: str) -> set[str]:
    return set(re.split(r", | and ", text))


def test_what_three_seeds_decide() -> None:
    """The first table of docs/baselines.md, by the rule of `fedstride report`, each against its own FedAvg."""
    table = {row.method: row.seeds for row in rows(BASELINES.partition("FedNLR together with")[0])}
    uniform, plain = table.pop("FedAvg (1/m)"), table.pop("FedAvg")
    assert len(table) > 30

    def against(method: str) -> Paired:
        other = uniform if "(1/m)" in method else plain
        return paired([a - b for a, b in zip(table[method], other, strict=True)])

    decided = {method: against(method).mean for method in table if against(method).decided}
    said = " ".join(BASELINES.split())
    found = re.search(r"with the same weights, (.+?) are better; (.+?) are worse\. Nothing else is decided", said)
    assert found is not None
    assert listed(found[1]) == {method for method, mean in decided.items() if mean > 0}
    assert listed(found[2]) == {method for method, mean in decided.items() if mean < 0}
