"""The command `python -m benchmarks [NAME ...]`: run measurements and print their ratios."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pkgutil
import statistics
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import benchmarks
from benchmarks import Measured
from server_app.records.versions import hardware, versions

UNITS = {"s": (1e3, "ms"), "B": (1e-6, "MB"), "1": (1e2, "%")}
"""How values are printed: factor and unit."""


def main() -> None:
    """Parse, measure, print."""
    known = names()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=benchmarks.__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("name", nargs="*", choices=[*known, []], help="what to measure; default: everything")
    parser.add_argument("--repeats", type=int, default=9, help="how often each is measured (default 9)")
    parser.add_argument("--only", default="", help="measure only what has this text in its name")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to this file")
    given = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's second command finds the bytecode of the first
    machine = {"versions": versions(), "hardware": hardware(), "load at the start": os.getloadavg()[0]}
    records = [measure(name, given.repeats, given.only) for name in given.name or known]
    for what, value in machine.items():
        print(f"{what}: {value}")
    if given.json:
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        given.json.write_text(json.dumps({"date": when, **machine, "measurements": records}, indent=2) + "\n")


def names() -> list[str]:
    """The measurements: the modules of this package, without those that only help."""
    return [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_")]


def measure(name: str, repeats: int, only: str) -> dict[str, Any]:
    """One measurement, printed as a table. Returns its record."""
    module = import_module(f"benchmarks.{name}")
    timings = list(module.timings(repeats, only))
    measured = [timing for timing in timings if isinstance(timing, Measured)]
    remarks = [remark for remark in timings if isinstance(remark, str)]
    print("\n".join([f"{name}, in units of {module.FLOOR}\n", table(measured), *remarks, ""]), flush=True)
    return {"name": name, "floor": module.FLOOR, "values": collected(measured), "remarks": remarks}


def table(measured: Iterable[Measured]) -> str:
    """A line for each name: the median of the ratios, the smallest and the largest, and the median values."""
    measured = list(measured)
    units = {timing.name: timing.unit for timing in measured}
    width = max([28, *(len(name) + 2 for name in units)])
    lines = [f"{'':<{width}}{'ratio':>8}{'from':>8}{'to':>8}{'value':>12}{'floor':>12}"]
    for name, pairs in collected(measured).items():
        ratios = [value / floor for value, floor in pairs]
        factor, unit = UNITS[units[name]]
        value, floor = (f"{factor * statistics.median(column):.1f} {unit}" for column in zip(*pairs, strict=True))
        spread = f"{statistics.median(ratios):>8.2f}{min(ratios):>8.2f}{max(ratios):>8.2f}"
        lines.append(f"{name:<{width}}{spread}{value:>12}{floor:>12}")
    return "\n".join(lines)


def collected(measured: Iterable[Measured]) -> dict[str, list[tuple[float, float]]]:
    """(value, floor) of every repetition, by name."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for timing in measured:
        pairs.setdefault(timing.name, []).append((timing.value, timing.floor))
    return pairs


if __name__ == "__main__":
    main()
