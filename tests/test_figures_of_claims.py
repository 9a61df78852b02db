"""The figures of docs/reproduction.md are those of the records in docs/records; its intervals are by the rule of
`fedstride report` for two methods."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable
from pathlib import Path

import pytest
from scripts import ROOT, loaded

from lab.results.paired_differences import Paired, paired
from lab.results.run_folders import load

PAGE = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
Curves = dict[int, dict[int, float]]
"""The test accuracy in percent, by seed and round."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of all runs whose records are kept."""
    folder = tmp_path_factory.mktemp("records")
    loaded("studies/records.py").unpack(ROOT / "docs/records", folder)
    return folder


def curves(kept: Path, pattern: str) -> Curves:
    runs = [load(folder) for folder in sorted(kept.glob(pattern))]
    return {
        run.config.seed: {row["round"]: 100 * row["test/accuracy"] for row in run.rows if "test/accuracy" in row}
        for run in runs
    }


def at(found: Curves, number: int) -> dict[int, float]:
    return {seed: curve[number] for seed, curve in sorted(found.items())}


def spread(values: Iterable[float]) -> str:
    figures = list(values)
    return f"{statistics.mean(figures):.2f} ± {statistics.stdev(figures):.2f}"


def difference(first: dict[int, float], second: dict[int, float]) -> Paired:
    assert first.keys() == second.keys() and len(first) == 3
    return paired([first[seed] - second[seed] for seed in first])


def row(claim: str) -> str:
    """The line of a table that begins with this."""
    [line] = re.findall(rf"^\| {re.escape(claim)} \|.*$", PAGE, re.MULTILINE)
    return str(line)


def paragraph(start: str) -> str:
    """The paragraph that begins with this, on one line."""
    [found] = [each for each in PAGE.split("\n\n") if each.startswith(start)]
    return " ".join(found.split())


def check_verdict(claim: str, result: Paired) -> None:
    assert f"{abs(result.mean):.2f}" in row(claim)
    assert f"{result.low:.2f} to {result.high:.2f}" in row(claim)
    said = row(claim).rpartition(" | ")[2]
    assert ("not confirmed" in said) == (not result.decided or result.mean < 0)


TWO = {  # the runs of the claim's method, of the other one, and the round
    "L1": ("fedlws-table1/*-fedavg+fedlws-*", "fedlws-table1/*-fedavg-seed*", 200),
    "D1": ("two_d_lrd-fig1-1/*", "two_d_lrd-fig1-300/*", None),
    "D2": ("two_d_lrd-fig1/d2-iid/*", "two_d_lrd-fig1/d2-0.01/*", 2000),
    "D3": ("two_d_lrd-fig2/later-*", "two_d_lrd-fig2/constant-*", None),
}


@pytest.mark.parametrize("claim", TWO)
def test_three_seeds_of_two_methods(kept: Path, claim: str) -> None:
    """At the end of the runs, which may have different numbers of rounds."""
    first, second, number = TWO[claim]
    last = [
        {seed: curve[number or max(curve)] for seed, curve in sorted(curves(kept, pattern).items())}
        for pattern in (first, second)
    ]
    for figures in last:
        assert spread(figures.values()) in row(claim)
    check_verdict(claim, difference(*last))


@pytest.mark.parametrize("iterations", [600, 1200, 3000, 6000, 12000, 30000, 60000])
def test_the_table_of_averages_less_often(kept: Path, iterations: int) -> None:
    """Claim D1. Of 600 and 3,000 iterations the records do not have all rows."""
    cells = [cell.strip() for cell in row(f"{iterations:,}").split("|")[2:-1]]
    found = {interval: curves(kept, f"two_d_lrd-fig1-{interval}/*") for interval in (1, 30, 300)}
    printed = dict(zip(found, cells, strict=False))
    figures = {
        interval: at(seeds, iterations // interval)
        for interval, seeds in found.items()
        if all(iterations // interval in curve for curve in seeds.values())
    }
    for interval, values in figures.items():
        assert printed[interval] == spread(values.values())
    if iterations in (600, 3000):
        assert "(" not in cells[-1] and 300 not in figures
    else:
        result = difference(figures[1], figures[300])
        assert cells[-1] == f"{result.mean:.2f} ({result.low:.2f} to {result.high:.2f})"


@pytest.mark.parametrize(("number", "said"), [(100, "2.8 after 100 rounds"), (500, "1.22 after 500")])
def test_skew_after_fewer_rounds(kept: Path, number: int, said: str) -> None:
    """Claim D2."""
    first, second, _ = TWO["D2"]
    result = difference(at(curves(kept, first), number), at(curves(kept, second), number))
    digits = 1 if number == 100 else 2
    text = paragraph("D2: ")
    start = text.index(said)
    assert said.startswith(f"{result.mean:.{digits}f} ")
    assert f"{result.low:.{digits}f} to {result.high:.{digits}f}" in text[start : start + 50]


SINGLE = {  # runs of seed 1: the line of the table, and the columns of these rounds
    "fednnnn-table2/mnist_noniid_b-fedavg-seed1": ("N1", [100]),
    "fednnnn-table2/mnist_noniid_b-fednnnn-seed1": ("N1", [100]),
    "fednnnn-table2/mnist_iid_b-fedavg-seed1": ("N3", [100]),
    "fednnnn-table2/mnist_iid_b-fednnnn-seed1": ("N3", [100]),
    "fedlws-table1/fashionmnist_a0.1-feddisco-seed1": ("FedDisco", [200, 100]),
    "fedlws-table1/fashionmnist_a0.1-feddisco+fedlws-seed1": ("FedDisco + FedLWS", [200, 100]),
    "two_d_lrd-table3/cifar10-fedavg-seed1": ("FedAvg (D4)", [3000]),
    "two_d_lrd-table3/cifar10-two_d_lrd-seed1": ("2D-LRD (D4)", [3000]),
    "two_d_lrd-fig5/*decay=additive": ("Additive-Tuning", [3000]),
    "two_d_lrd-fig5/*decay=all": ("All-Decreasing", [3000]),
}


@pytest.mark.parametrize("runs", SINGLE)
def test_one_seed(kept: Path, runs: str) -> None:
    line, rounds = SINGLE[runs]
    [(seed, curve)] = curves(kept, runs).items()
    assert seed == 1
    for number in rounds:
        assert f"{curve[number]:.2f}" in row(line)
    if max(curve) == 3000:  # the means of every 20th of 100 rounds
        for last in (3000, 1000, 2000, 2500):
            assert f"{statistics.mean(curve[k] for k in range(last - 80, last + 1, 20)):.2f}" in row(line)
