"""Signals in tables and arrays: a column for each sample, the same examples in every layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from own_files import npz, refused, written

from fedstride.errors import ConfigError
from fedstride.tasks import own_files
from fedstride.tasks.data_toml.site import read_site
from fedstride.tasks.datasets.signals import own_signals
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.own_files.node_process import checked
from fedstride.tasks.own_files.unlabelled import of_frame
from fedstride.tasks.own_files.unlabelled import read as to_predict
from fedstride.tasks.spec import Spec
from fedstride.tasks.statistics.over_sites import names, of_examples

SIGNALS = np.random.default_rng(0).normal(size=(12, 2, 7)).astype(np.float32)
LABELS = np.arange(12) % 2


@pytest.fixture(autouse=True)
def _fresh(own_cache: Path) -> None:
    """Every test has its own empty cache."""


def task(**settings: Any) -> Spec:
    return own_signals(**{"classes": ["no", "yes"], "channels": ["I", "V2"], "samples": 7, **settings}).spec


def table(signals: np.ndarray = SIGNALS) -> pd.DataFrame:
    columns = {f"{name}_{at}": signals[:, c, at] for c, name in enumerate(("I", "V2")) for at in range(7)}
    found = pd.DataFrame({"who": range(12), **columns, "label": np.array(["no", "yes"])[LABELS]})
    return found[list(found.columns[::-1])]  # the order in a file does not matter


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "a.npz"])
def test_the_same_examples_in_every_layout(tmp_path: Path, name: str) -> None:
    if name == "a.npz":
        npz(tmp_path / name, x=SIGNALS, y=LABELS)
    elif name == "a.parquet":
        table().to_parquet(tmp_path / name)
    else:
        table().to_csv(tmp_path / name, index=False)
    found = own_files.load(tmp_path / name, task())
    np.testing.assert_array_equal(found.x, SIGNALS)
    np.testing.assert_array_equal(found.y, LABELS)
    np.testing.assert_array_equal(to_predict(tmp_path / name, task()).x, SIGNALS)
    frame = table()
    rows = frame.itertuples(index=False, name=None)
    np.testing.assert_array_equal(of_frame(list(frame.columns), rows, task()).x, SIGNALS)


def test_channels_are_normalised_over_all_samples() -> None:
    assert (task().inputs, task().federated, names(task())) == (Inputs(Kind.SIGNAL, (2, 7)), True, ["I", "V2"])
    found = of_examples(SIGNALS, LABELS, task())
    np.testing.assert_allclose(found.mean, SIGNALS.mean((0, 2), dtype=np.float64), rtol=1e-9)
    given = task(mean=[0.0, 1.0], std=[1.0, 2.0])
    assert not given.federated and Spec.unflatten(given.flatten()) == given


def test_a_data_file_says_the_columns_of_a_signal_in_one_line(tmp_path: Path) -> None:
    mine = table(SIGNALS * 1000).rename(columns=lambda name: name.replace("V2_", "Ableitung 2_"))
    mine.to_csv(tmp_path / "mine.csv", index=False, sep=";", decimal=",")
    said = """path = "mine.csv"
split_seed = 0
targets = ["label"]
[file]
separator = ";"
decimal = ","
[columns]
I = { samples = 7, factor = 0.001, least = -9, most = 9 }
V2 = { from = "Ableitung 2", samples = 7, factor = 0.001 }
label = ["no", "yes"]
"""
    site = read_site(written(tmp_path / "data.toml", said))
    assert checked({"check": site.plain()}) == {"rows": 12, "faults": []}
    found = own_files.load(tmp_path / "data.toml", task())
    np.testing.assert_allclose(found.x, SIGNALS, rtol=1e-5)
    for settings in ({"samples": 8}, {"channels": ["I", "V3"]}):
        with pytest.raises(ConfigError, match=r"reading\.columns: "):
            own_files.load(tmp_path / "data.toml", task(**settings))
    with pytest.raises(ConfigError, match=r"spec\.shape: .* all samples of I, which has more"):
        own_files.load(tmp_path / "data.toml", task(samples=6))
    loud = read_site(written(tmp_path / "loud.toml", said.replace("most = 9", "most = 0.5")))
    assert any(line.startswith("column 'I_") for line in checked({"check": loud.plain()})["faults"])


@pytest.mark.parametrize("samples", ["0", "1.5", "true", '"7"', "100001"])
def test_numbers_of_samples_that_cannot_be(tmp_path: Path, samples: str) -> None:
    said = f'path = "a.csv"\ntargets = []\n[columns]\necg = {{ samples = {samples} }}\n'
    with pytest.raises(ConfigError, match=r"column 'ecg': samples = .* must be a whole number from 1 to 100000"):
        read_site(written(tmp_path / "data.toml", said))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"channels": []}, "at least one name, all different"),
        ({"channels": ["I", "I"]}, "at least one name, all different"),
        ({"channels": [" I"]}, "at least one name, all different"),
        ({"target": "V2_3"}, "a column that is no sample"),
        ({"mean": [1.0]}, "std = None is not allowed"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        task(**settings)


def test_cells_that_are_refused(tmp_path: Path) -> None:
    frame = table().astype({"V2_5": object})
    for value, said in (("", "the cell is empty"), ("-", "'-' is not a number")):
        frame.loc[4, "V2_5"] = value
        frame.to_csv(tmp_path / "a.csv", index=False)
        assert f"line 6, column 'V2_5': {said}" in refused(tmp_path / "a.csv", task())
    table().drop(columns="I_0").to_csv(tmp_path / "b.csv", index=False)
    assert "has no column 'I_0'" in refused(tmp_path / "b.csv", task())
    assert "needs (n, 2, 7)" in refused(npz(tmp_path / "c.npz", x=SIGNALS[:, :, :6], y=LABELS), task())
