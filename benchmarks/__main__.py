"""The command `python -m benchmarks NAME`: run one measurement and print its ratios."""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import statistics
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import benchmarks
from benchmarks import Timing
from server_app.machine import hardware, versions


def main() -> None:
    """Parse, measure, print."""
    names = [found.name for found in pkgutil.iter_modules(benchmarks.__path__) if found.name != "__main__"]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=benchmarks.__doc__)
    parser.add_argument("name", choices=names, help="what to measure")
    parser.add_argument("--repeats", type=int, default=9, help="how often each call is timed (default 9)")
    parser.add_argument("--only", default="", help="time only what has this text in its name")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all times to this file")
    given = parser.parse_args()
    measurement = import_module(f"benchmarks.{given.name}")
    machine = {"versions": versions(), "hardware": hardware(), "load at the start": os.getloadavg()[0]}
    timed = list(measurement.timings(given.repeats, given.only))
    print(f"{given.name}, in units of {measurement.FLOOR}\n")
    print(table(timed))
    print()
    for what, found in machine.items():
        print(f"{what}: {found}")
    if given.json:
        record = {"name": given.name, "floor": measurement.FLOOR, **machine, "timings": collected(timed)}
        given.json.write_text(json.dumps(record, indent=2) + "\n")


def table(timed: Iterable[Timing]) -> str:
    """A line for each name: the median of the ratios, the smallest and the largest, and median milliseconds."""
    lines = [f"{'':<28}{'ratio':>8}{'from':>8}{'to':>8}{'ms':>10}{'floor ms':>10}"]
    for name, pairs in collected(timed).items():
        ratios = [call / floor for call, floor in pairs]
        call, floor = (1000 * statistics.median(each) for each in zip(*pairs, strict=True))
        spread = f"{statistics.median(ratios):>8.2f}{min(ratios):>8.2f}{max(ratios):>8.2f}"
        lines.append(f"{name:<28}{spread}{call:>10.1f}{floor:>10.1f}")
    return "\n".join(lines)


def collected(timed: Iterable[Timing]) -> dict[str, list[tuple[float, float]]]:
    """(seconds, floor) of every repetition, by name."""
    found: dict[str, list[Any]] = {}
    for timing in timed:
        found.setdefault(timing.name, []).append((timing.seconds, timing.floor))
    return found


if __name__ == "__main__":
    main()
