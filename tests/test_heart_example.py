"""The example of four hospitals: the published tables as they are, or tables of that form that the test makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from desk import play
from heart_tables import EXAMPLE, PUBLISHED, data_files, tables

from lab.prediction.model import load


@pytest.fixture(params=["as made here", "as published"])
def sites(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    published = request.param == "as published"
    if published and not PUBLISHED.is_dir():
        pytest.skip(f"the published tables are not at {PUBLISHED}")
    tables(tmp_path, published)
    return data_files(tmp_path)


@pytest.mark.slow
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
