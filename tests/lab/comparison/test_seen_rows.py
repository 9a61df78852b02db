"""What is measured as held out was in no training, whatever has changed since the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from desk import play

from fedstride.errors import ConfigError, DataError
from lab.comparison.evaluate import measure
from lab.comparison.site_rows import of_files
from lab.prediction.model import Model, load

pytestmark = pytest.mark.slow
COMMON = (
    "task=own_table", "task.columns=[dose]", "task.classes=[no,yes]", "partition=own", "clients=2", "rounds=1",
    "client.batch_size=10", "model=mlp", "model.width=8", "strategy=fedavg",
)  # fmt: skip


@pytest.fixture
def sites(tmp_path: Path) -> list[Path]:
    """Two sites, each with a data file, and a table that has a column which no run names."""
    rng, files = np.random.default_rng(1), []
    for name in ("north", "south"):
        labels = np.where(rng.random(80) < 0.4, "yes", "no")
        made = pd.DataFrame({"dose": rng.normal(size=80), "label": labels, "note": [f"p{n}" for n in range(80)]})
        made.to_csv(tmp_path / f"{name}.csv", index=False)
        (tmp_path / f"{name}.toml").write_text(f'path = "{name}.csv"\n')
        files.append(tmp_path / f"{name}.toml")
    return files


def trained(place: Path, files: list[Path], *overrides: str) -> Model:
    named = ",".join(f"'{file}'" for file in files)
    return load(play(place, *COMMON, f"partition.files=[{named}]", *overrides, small=False).folder)


def as_other_tables(sites: list[Path]) -> None:
    path = sites[0].with_suffix(".csv")
    path.write_text(path.read_text().replace(",p", ",P"))


def with_another_secret(sites: list[Path]) -> None:
    sites[1].with_suffix(".secret").write_bytes(b"s" * 32)


def with_a_row_more(sites: list[Path]) -> None:
    path = sites[1].with_suffix(".csv")
    path.write_text(path.read_text() + "0.5,yes,new\n")


@pytest.mark.parametrize("change", [as_other_tables, with_another_secret, with_a_row_more])
def test_data_that_have_changed_are_not_measured(
    tmp_path: Path, sites: list[Path], change: Callable[[list[Path]], None]
) -> None:
    model = trained(tmp_path, sites)
    measure({"a": model}, model.config, all_rows=False)
    change(sites)
    with pytest.raises(DataError, match="the rows are not those with which a was trained, or the secret"):
        measure({"a": model}, model.config, all_rows=False)
    assert measure({"a": model}, model.config, all_rows=True)


def test_no_secret_is_made(tmp_path: Path, sites: list[Path]) -> None:
    model = trained(tmp_path, sites)
    secret = sites[0].with_suffix(".secret")
    secret.unlink()
    with pytest.raises(ConfigError, match=r"north\.secret of the hold-out does not exist"):
        measure({"a": model}, model.config, all_rows=False)
    assert not secret.exists()


def test_the_table_itself_in_place_of_the_data_file(tmp_path: Path, sites: list[Path]) -> None:
    """It is held out by the seed of the split, and not by the site's secret."""
    from dataclasses import replace

    model = trained(tmp_path, sites)
    tables = replace(model.config, partition=of_files(str(site.with_suffix(".csv")) for site in sites))
    with pytest.raises(DataError, match="name the file as the run did"):
        measure({"a": model}, tables, all_rows=False)


@pytest.mark.parametrize("other", [("holdout=0.4",), ("holdout=0.1",), ("fold=1",), ("holdout=0",)])
def test_a_second_model_that_has_seen_what_the_first_held_out(
    tmp_path: Path, sites: list[Path], other: tuple[str, ...]
) -> None:
    first, second = trained(tmp_path, sites, "name=a"), trained(tmp_path, sites, "name=b", *other)
    models = {"a": first, "b": second}
    if other == ("holdout=0.4",):  # it held out the same rows, and more
        assert measure(models, first.config, all_rows=False)
        models = {"b": second, "a": first}
    config = next(iter(models.values())).config
    if other == ("holdout=0",):
        models, config = {"a": first, "b": second}, first.config
    with pytest.raises(ConfigError, match="evaluate the models one by one"):
        measure(models, config, all_rows=False)
