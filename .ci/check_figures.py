"""Names the printed figures that are older than the code: `uv run python .ci/check_figures.py`.

A table of README.md or docs/ with the columns `overrides` and `fingerprint` says of each row what was run, and a
fingerprint of what made its figures: projections of the model after three rounds of the quickstart with these
overrides, with five of twenty clients in each to save time. If the code now gives another fingerprint, the row's
command is run again, and its figures and fingerprint are replaced. Where that takes too long for now, `(older)`
behind the fingerprint says it to the reader; the script names such rows, and fails for the others.

The weights of the same run differ from processor to processor: sums have other last digits, and where an
activation is almost zero, its gradient is there or is not. So the numbers of a fingerprint may differ by `WITHIN`.
With overrides as arguments the script prints their fingerprint:
`uv run python .ci/check_figures.py method=feddyn client.lr=0.1`.
"""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
# The kernels that most processors have, so that fingerprints of two processors differ as little as possible.
KERNELS = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "COMPATIBLE"}
SHORT = ("rounds=3", "clients=20", "cohort=5", "evaluate_every=3", "checkpoint_every=0")
OVERRIDES, FINGERPRINT = "overrides", "fingerprint"
DIRECTIONS = 4
# Between kernels for SSE2, AVX2 and AVX-512 the models of these rows differed by at most 0.014 in length, and a
# projection by at most 0.03; models of two methods by 0.017 (FedProx and FedAvg) to more than 1.
WITHIN = 0.05
MARK = "(older)"


class Row(NamedTuple):
    """A row of printed figures."""

    where: str  # README.md:187
    method: str  # as the page names it
    overrides: str
    fingerprint: str
    is_marked: bool  # as older than the code


def rows(page: Path) -> Iterator[Row]:
    """The rows with a fingerprint on a page, from all tables with both columns."""
    head: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.startswith("|"):
            head = []
            continue
        cells = [cell.strip().strip("`*") for cell in line.strip().strip("|").split("|")]
        head = head or cells
        if FINGERPRINT in head and OVERRIDES in head and cells != head and not re.fullmatch(r"[-: ]*", cells[0]):
            row = dict(zip(head, cells, strict=True))
            if row[OVERRIDES]:  # a heading between rows has none
                unmarked = row[FINGERPRINT].removesuffix(MARK)
                yield Row(
                    f"{page.name}:{number}",
                    cells[0],
                    row[OVERRIDES],
                    unmarked.strip("` "),
                    unmarked != row[FINGERPRINT],
                )


def fingerprint(overrides: str) -> str:
    """Projections of the model after the short run with these overrides, and the loss of a calibration of it.

    A direction has +1 or -1 for each weight: projections of two models differ by about the models' distance.
    """
    sys.path.insert(0, str(ROOT / "tests"))
    import numpy as np
    from desk import play, weights
    from safetensors.numpy import load

    with TemporaryDirectory() as folder:
        outcome = play(Path(folder), *SHORT, *overrides.split(), small=False)
        arrays = load(weights(outcome.folder))
    model = np.concatenate([arrays[name].astype(np.float64).ravel() for name in sorted(arrays)])
    numbers = [float(np.sum(model * direction)) for direction in directions(model.size)]
    if "ccvr/loss" in outcome.rows[-1]:
        numbers.append(outcome.rows[-1]["ccvr/loss"])
    return " ".join(f"{number:.2f}" for number in numbers)


def directions(size: int) -> Iterator[Any]:
    """Rows of `size` signs, float64: the same with any version of NumPy."""
    import numpy as np

    for index in range(DIRECTIONS):
        drawn = hashlib.shake_256(str(index).encode()).digest(size // 8 + 1)
        bits = np.unpackbits(np.frombuffer(drawn, np.uint8), count=size)
        yield 2.0 * bits - 1.0


def agree(one: str, other: str) -> bool:
    """Whether two fingerprints are of the same code: each number within `WITHIN`."""
    pairs = list(itertools.zip_longest(one.split(), other.split()))
    try:
        return bool(pairs) and all(abs(float(a) - float(b)) <= WITHIN for a, b in pairs)
    except (TypeError, ValueError):  # the lengths differ, or a text is not a number
        return False


def fingerprints(overrides: Sequence[str]) -> dict[str, str]:
    """The fingerprint of each, computed in as many processes as there are cores."""
    wanted = list(dict.fromkeys(overrides))
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        return dict(zip(wanted, pool.map(fingerprint, wanted), strict=True))


def faults(page_rows: Sequence[Row], now: dict[str, str]) -> list[str]:
    """A line for each row whose figures the code no longer gives and that does not say so, or says so wrongly."""
    lines = []
    for row in page_rows:
        is_older = not agree(row.fingerprint, now[row.overrides])
        if is_older and not row.is_marked:
            lines.append(
                f"{row.where}: the figures of {row.method} ({row.overrides}) are of "
                f"{row.fingerprint or 'nothing'}, now {now[row.overrides]}: run the row's command again and "
                f"replace figures and fingerprint, or write {MARK} behind the fingerprint"
            )
        elif row.is_marked and not is_older:
            lines.append(
                f"{row.where}: the figures of {row.method} ({row.overrides}) are of this code: remove {MARK}"
            )
    return lines


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 if a page gives figures that are older than the code without saying so."""
    if arguments:
        print(fingerprint(" ".join(arguments)))
        return 0
    page_rows = [row for page in PAGES for row in rows(page)]
    lines = faults(page_rows, fingerprints([row.overrides for row in page_rows]))
    print(
        *lines,
        *(f"{row.where}: {row.method} is marked as older than the code" for row in page_rows if row.is_marked),
        f"{len(page_rows)} rows of figures compared",
        sep="\n",
    )
    return 1 if lines else 0


if __name__ == "__main__":
    os.environ.update(KERNELS)  # before torch is imported, here and in the processes
    sys.exit(main(sys.argv[1:]))
