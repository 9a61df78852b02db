"""Names the printed figures that are older than the code: `uv run python .ci/check_figures.py`.

A table of README.md or docs/ with the columns `overrides` and `digest` says of each row what was run, and a digest
of what made its figures: the model after three rounds of the quickstart with these overrides, with five of twenty
clients in each to save time. If the code now gives another digest, the row's command is run again, and its figures
and digest are replaced. Where that takes too long for now, `(older)` behind the digest says it to the reader; the
script names such rows, and fails for the others.

The digests are those of torch's kernels for AVX2, as the figures are; the script asks for these kernels. With
overrides as arguments it prints their digest: `uv run python .ci/check_figures.py method=feddyn client.lr=0.1`.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
KERNELS = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
SHORT = ("rounds=3", "clients=20", "cohort=5", "evaluate_every=3", "checkpoint_every=0")
OVERRIDES, DIGEST = "overrides", "digest"
MARK = "(older)"


class Row(NamedTuple):
    """A row of printed figures."""

    where: str  # README.md:187
    method: str  # as the page names it
    overrides: str
    digest: str
    is_marked: bool  # as older than the code


def rows(page: Path) -> Iterator[Row]:
    """The rows with a digest on a page, from all tables with both columns."""
    head: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.startswith("|"):
            head = []
            continue
        cells = [cell.strip().strip("`*") for cell in line.strip().strip("|").split("|")]
        head = head or cells
        if DIGEST in head and OVERRIDES in head and cells != head and not re.fullmatch(r"[-: ]*", cells[0]):
            row = dict(zip(head, cells, strict=True))
            if row[OVERRIDES]:  # a heading between rows has none
                unmarked = row[DIGEST].removesuffix(MARK)
                yield Row(
                    f"{page.name}:{number}",
                    cells[0],
                    row[OVERRIDES],
                    unmarked.strip("` "),
                    unmarked != row[DIGEST],
                )


def digest(overrides: str) -> str:
    """Of the model after the short run with these overrides, and of what a calibration of it reached."""
    sys.path.insert(0, str(ROOT / "tests"))
    from desk import play, weights
    from safetensors.numpy import load

    with TemporaryDirectory() as folder:
        outcome = play(Path(folder), *SHORT, *overrides.split(), small=False)
        checksum = hashlib.sha256()
        for name, array in sorted(load(weights(outcome.folder)).items()):
            checksum.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
        calibrated = {key: value for key, value in outcome.rows[-1].items() if key.startswith("ccvr/")}
        checksum.update(repr(sorted(calibrated.items())).encode())
    return checksum.hexdigest()[:8]


def digests(overrides: Sequence[str]) -> dict[str, str]:
    """The digest of each, computed in as many processes as there are cores."""
    wanted = list(dict.fromkeys(overrides))
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        return dict(zip(wanted, pool.map(digest, wanted), strict=True))


def faults(page_rows: Sequence[Row], now: dict[str, str]) -> list[str]:
    """A line for each row whose figures the code no longer gives and that does not say so, or says so wrongly."""
    lines = []
    for row in page_rows:
        is_older = row.digest != now[row.overrides]
        if is_older and not row.is_marked:
            lines.append(
                f"{row.where}: the figures of {row.method} ({row.overrides}) are of {row.digest or 'nothing'}, "
                f"now {now[row.overrides]}: run the row's command again and replace figures and digest, or write "
                f"{MARK} behind the digest"
            )
        elif row.is_marked and not is_older:
            lines.append(
                f"{row.where}: the figures of {row.method} ({row.overrides}) are of this code: remove {MARK}"
            )
    return lines


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 if a page gives figures that are older than the code without saying so."""
    if arguments:
        print(digest(" ".join(arguments)))
        return 0
    page_rows = [row for page in PAGES for row in rows(page)]
    lines = faults(page_rows, digests([row.overrides for row in page_rows]))
    print(
        *lines,
        *(f"{row.where}: {row.method} is marked as older than the code" for row in page_rows if row.is_marked),
        f"{len(page_rows)} rows of figures compared",
        sep="\n",
    )
    return 1 if lines else 0


if __name__ == "__main__":
    if platform.machine() not in ("x86_64", "AMD64"):
        print("not checked: the digests are those of x86-64 with AVX2")
        sys.exit(0)
    os.environ.update(KERNELS)  # before torch is imported, here and in the processes
    sys.exit(main(sys.argv[1:]))
