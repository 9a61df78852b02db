"""The example of four hospitals: the published tables as they are, or tables of that form that the test makes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from desk import play
from real_data import REAL

from lab.prediction.model import load

EXAMPLE = Path(__file__).resolve().parents[1] / "examples/heart"
SITES = ("cleveland", "hungarian", "switzerland", "va")
PUBLISHED = REAL / "heart-disease"


def made(seed: int, sign: str) -> str:
    """A table in the published form: numbers for words, no header, `sign` for cells without a value."""
    rng = np.random.default_rng(seed)
    n = 150
    age, rate = rng.integers(30, 80, n), rng.integers(90, 190, n)
    ill = (age - 0.5 * rate + rng.normal(0, 10, n) > -15) * rng.integers(1, 5, n)
    columns = [
        age, rng.integers(0, 2, n), rng.integers(1, 5, n), rng.integers(100, 180, n), rng.integers(150, 400, n),
        rng.integers(0, 2, n), rng.integers(0, 3, n), rate, rng.integers(0, 2, n), rng.uniform(0, 4, n).round(1),
        rng.integers(1, 4, n), rng.integers(0, 4, n), rng.choice([3, 6, 7], n), ill,
    ]  # fmt: skip
    table = pd.DataFrame(columns).T
    table = table.mask(rng.random(table.shape) < 0.1).fillna(sign)
    for full in (0, 1, 2, 13):  # these are never missing
        table[full] = columns[full]
    return table.to_csv(header=False, index=False)


@pytest.fixture(params=["as made here", "as published"])
def sites(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    if request.param == "as published" and not PUBLISHED.is_dir():
        pytest.skip(f"the published tables are not at {PUBLISHED}")
    for number, name in enumerate(SITES):
        shutil.copy(EXAMPLE / f"sites/{name}.toml", tmp_path)
        if request.param == "as published":
            shutil.copy(PUBLISHED / f"processed.{name}.data", tmp_path)
        else:
            (tmp_path / f"processed.{name}.data").write_text(made(number, "?" if number % 2 else "-9"))
    return [tmp_path / f"{name}.toml" for name in SITES]


def test_four_hospitals_learn_together_and_the_model_is_used(sites: list[Path], tmp_path: Path) -> None:
    files = ",".join(f"'{site}'" for site in sites)
    outcome = play(
        tmp_path, f"parts={EXAMPLE / 'heart.py'}", "task=heart", "model=mlp", "task.metrics=[auroc]", "rounds=10",
        "clients=4", "partition=own", f"partition.files=[{files}]", "client.batch_size=16", "name=heart",
        small=False,
    )  # fmt: skip
    assert outcome.rows[-1]["local/auroc"] > 0.75
    found = load(outcome.folder).predict(sites[1])
    text = sites[1].with_name("processed.hungarian.data").read_text()
    assert len(found) == len(text.splitlines())
    assert found["p(yes)"].between(0, 1).all()
