"""The four tables of examples/heart: as published, if they are on this machine, or of that form as made here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from real_data import REAL

EXAMPLE = Path(__file__).resolve().parents[1] / "examples/heart"
SITES = ("cleveland", "hungarian", "switzerland", "va")
VARIABLE = "FEDSTRIDE_DATA"
"""Names the folder of data sets, as for all tasks that read files."""


def found() -> Path | None:
    """The folder with the four published files: of the variable, the example's own, or that of all data sets."""
    of_variable = [Path(os.environ[VARIABLE]) / "heart-disease"] if os.environ.get(VARIABLE) else []
    for folder in (*of_variable, EXAMPLE / "sites", REAL / "heart-disease"):
        if all((folder / f"processed.{name}.data").is_file() for name in SITES):
            return folder
    return None


WHERE = f"the published tables are in none of ${VARIABLE}/heart-disease, {EXAMPLE}/sites, {REAL}/heart-disease"
PUBLISHED = found() or Path(os.devnull)
published = pytest.mark.skipif(found() is None, reason=WHERE)


def tables(folder: Path, as_published: bool) -> None:
    """The four files in a folder."""
    for number, name in enumerate(SITES):
        if as_published:
            shutil.copy(PUBLISHED / f"processed.{name}.data", folder)
        else:
            (folder / f"processed.{name}.data").write_text(made(number, "?" if number % 2 else "-9"))


def data_files(folder: Path) -> list[Path]:
    """The data files of the sites, copied beside the tables."""
    return [Path(shutil.copy(EXAMPLE / f"sites/{name}.toml", folder)) for name in SITES]


def made(seed: int, sign: str) -> str:
    """A table in the published form: numbers for words, no header, `sign` for cells without a value."""
    rng = np.random.default_rng(seed)
    n = 146  # so no site's last mini-batch of 25 has fewer rows than a policy demands: a node leaves those out
    age, rate = rng.integers(30, 80, n), rng.integers(90, 190, n)
    ill = (age - 0.5 * rate + rng.normal(0, 10, n) > -15) * rng.integers(1, 5, n)
    columns = [
        age, rng.integers(0, 2, n), rng.integers(1, 5, n), rng.integers(100, 180, n), rng.integers(150, 400, n),
        rng.integers(0, 2, n), rng.integers(0, 3, n), rate, rng.integers(0, 2, n), rng.uniform(0, 4, n).round(1),
        rng.integers(1, 4, n), rng.integers(0, 4, n), rng.choice([3, 6, 7], n), ill,
    ]  # fmt: skip
    table = pd.DataFrame(columns).T
    table = table.mask(rng.random(table.shape) < 0.1).astype(object).fillna(sign)
    for full in (0, 1, 2, 13):  # these are never missing
        table[full] = columns[full]
    return table.to_csv(header=False, index=False)
