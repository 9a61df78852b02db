"""Tables of times and events: read from files, checked cell by cell, learnt from by several sites."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from desk import play
from own_files import npz, refused, written

from fedstride.errors import ConfigError
from fedstride.tasks import own_files
from fedstride.tasks.data_toml.site import SiteData, read_site
from fedstride.tasks.datasets.nodes import own_table
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.own_files.tables import counted_faults
from fedstride.tasks.reading import Reading
from fedstride.tasks.spec import Spec, Target
from lab.prediction.model import load

READING = Reading(columns=("age", "sex=female|male"), targets=("months", "died"))
SPEC = Spec(Inputs(Kind.TABLE, (3,)), 1, Target.SURVIVAL, reading=READING)
TABLE = "died,months,age,sex,name\n1,14.5,61,female,A\n0,0,70,male,B\n1,2e2,44,male,C\n"


@pytest.fixture(autouse=True)
def _fresh(own_cache: Path) -> None:
    """Every test has its own empty cache."""


def table(seed: int, rows: int = 240) -> str:
    """A made table: risk rises with age, and half of the rows are censored."""
    rng = np.random.default_rng(seed)
    age, sex = rng.uniform(40, 80, rows), rng.choice(["female", "male"], rows)
    time = rng.exponential(np.exp(-0.12 * (age - 60)) * 20)
    last = rng.uniform(0, 50, rows)
    lines = zip(age.round(1), sex, np.minimum(time, last).round(1), (time <= last).astype(int), strict=True)
    return "age,sex,months,died\n" + "".join(",".join(map(str, each)) + "\n" for each in lines)


def test_time_and_event_are_read_in_the_order_of_the_task(tmp_path: Path) -> None:
    found = own_files.load(written(tmp_path / "mine.csv", TABLE), SPEC)
    assert found.y.tolist() == [[14.5, 1.0], [0.0, 0.0], [200.0, 1.0]] and found.y.dtype == np.float32
    assert found.x.tolist() == [[61, 1, 0], [70, 0, 1], [44, 0, 1]]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("1,14.5,", "1,-0.5,", "line 2, column 'months': time '-0.5' is not allowed: it must be at least 0"),
        ("1,14.5,", "2,14.5,", "line 2, column 'died': label '2' is not allowed: it must be 0 or 1"),
        ("0,0,70", "0,,70", "line 3, column 'months': the cell is empty"),
        ("0,0,70", ",0,70", "line 3, column 'died': the cell is empty"),
        ("1,2e2,", "1,inf,", "line 4, column 'months': 'inf' is not allowed"),
        ("1,14.5,", "dead,14.5,", "line 2, column 'died': 'dead' is not a number"),
        ("died,months", "died,weeks", "has no column 'months'"),
    ],
)
def test_a_cell_that_is_no_time_or_no_event_is_refused(old: str, new: str, words: str, tmp_path: Path) -> None:
    path = written(tmp_path / "mine.csv", TABLE.replace(old, new, 1))
    assert words in refused(path, SPEC)
    assert not counted_faults.read(SiteData(path), SPEC).readable, "a description says the same"


def test_a_table_that_training_reads_is_readable(tmp_path: Path) -> None:
    assert counted_faults.read(SiteData(written(tmp_path / "mine.csv", TABLE)), SPEC).readable


X = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([[1.0, 1.0], [-2.0, 0.0]], "contains the time -2.0"),
        ([[1.0, 0.5], [2.0, 0.0]], "contains the event 0.5"),
        ([1.0, 2.0], "must be 2 rows of a time and an event"),
        ([[1.0], [2.0]], "must be 2 rows of a time and an event"),
        ([[1.0, 1.0], [np.nan, 0.0]], "must be finite"),
    ],
)
def test_arrays_that_are_no_times_and_events_are_refused(y: object, words: str, tmp_path: Path) -> None:
    assert words in refused(npz(tmp_path / "mine.npz", x=X, y=np.array(y)), SPEC)


def test_arrays_of_times_and_events(tmp_path: Path) -> None:
    found = own_files.load(npz(tmp_path / "mine.npz", x=X, y=np.array([[3, 1], [4, 0]])), SPEC)
    assert found.y.tolist() == [[3.0, 1.0], [4.0, 0.0]]


def test_the_task_of_the_settings() -> None:
    given = {"columns": ["age"], "kind": "survival", "target": ["months", "died"]}
    spec = own_table(**given).spec  # type: ignore[arg-type]
    assert (spec.target, spec.outputs, spec.targets, spec.names) == (Target.SURVIVAL, 1, 2, ())
    assert spec.federated and own_table(**given).test_y.shape == (0, 2)  # type: ignore[arg-type]
    for target in ("months", ["months"], ["a", "b", "c"], ["died", "died"], []):
        with pytest.raises(ConfigError, match=r"task\.target"):
            own_table(columns=["age"], kind="survival", target=target)
    with pytest.raises(ConfigError, match=r"task\.target_mean"):
        own_table(**given, target_mean=[1.0], target_std=[1.0])  # type: ignore[arg-type]


SAYS = """path = "mine.csv"
targets = ["months", "died"]
[columns]
age = { least = 0, most = 120 }
sex = ["female", "male"]
months = { least = 0, most = 600 }
died = { whole = true, least = 0, most = 1 }
"""


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        ("", "", True),
        ('"months", "died"', '"died"', False),
        ("months = { least = 0,", "months = { least = -5,", False),
        ("died = { whole = true, least = 0, most = 1 }", "died = { whole = true, least = 0, most = 3 }", False),
    ],
)
def test_a_site_says_whether_a_run_may_ask_for_it(old: str, new: str, allowed: bool, tmp_path: Path) -> None:
    written(tmp_path / "mine.csv", TABLE)
    site = read_site(written(tmp_path / "data.toml", SAYS.replace(old, new) if old else SAYS))
    if allowed:
        site.check(SPEC)
        return
    with pytest.raises(ConfigError, match=r"task\.target: "):
        site.check(SPEC)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "vectorized"])
def test_sites_learn_a_risk_together_and_the_model_predicts(engine: str, tmp_path: Path) -> None:
    files = [written(tmp_path / f"{name}.csv", table(seed)) for seed, name in enumerate("abc")]
    named = ",".join(map(str, files))
    outcome = play(
        tmp_path, "task=own_table", "task.columns=[age,'sex=female|male']", "task.kind=survival", "model=mlp",
        "task.target=[months,died]", "clients=3", "partition=own", f"partition.files=[{named}]",
        "client.batch_size=64", "client.lr=0.1", "rounds=8", f"engine={engine}",
        small=False,
    )  # fmt: skip
    row = outcome.rows[-1]
    assert row["local/c_index"] > 0.7 and row["local/loss"] < outcome.rows[1]["local/loss"]
    assert 0.5 < row["local/c_index/worst"] <= row["local/c_index"] + 0.1
    found = load(outcome.folder).predict(files[0])
    assert list(found.columns) == ["log_risk"] and len(found) == 240
    ages = np.array([float(line.split(",")[0]) for line in table(0).splitlines()[1:]])
    assert np.corrcoef(ages, found["log_risk"])[0, 1] > 0.5
