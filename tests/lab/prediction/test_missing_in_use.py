"""Medians and indicators from a site's table to the model in use: the same on every way."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from desk import play, resume, weights
from rich.console import Console

from fedstride.errors import DataError
from fedstride.tasks import own_files
from fedstride.tasks.data_toml.site import read_site
from fedstride.tasks.own_files.node_process import prepared
from fedstride.tasks.reading import PREPARED_VARIABLE
from fedstride.tasks.spec import Spec
from fedstride.tasks.statistics.over_sites import Report, report
from lab.cli.run import train
from lab.prediction.model import Model, load
from server_app.before_training.normalisation import pool
from server_app.config.compose import compose

COLUMNS = ["age", "group=a|b", "pressure", "iron"]
TASK = [
    "task=own_table", f"task.columns={COLUMNS}", "task.target=ill", "task.classes=['no','yes']", "model=mlp",
    "task.missing=[mean,'pressure=median+indicator','iron=median']", "partition=own", "clients=3", "rounds=3",
    "checkpoint_every=1",
]  # fmt: skip
DICTIONARY = """split_seed = 0
targets = ["ill"]
[columns]
age = "number"
group = { categories = ["a", "b"], empty = true }
pressure = { empty = true }
iron = { empty = true }
ill = ["no", "yes"]
"""


def rows(seed: int, count: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, pressure, iron = rng.integers(20, 90, count), rng.normal(120, 15, count), rng.exponential(80, count)
    ill = np.where(age + pressure / 4 + rng.normal(0, 9, count) > 85, "yes", "no")
    found = pd.DataFrame({"age": age, "group": rng.choice(["a", "b"], count), "pressure": pressure, "iron": iron})
    found.loc[rng.random(count) < 0.3, "pressure"] = np.nan
    found.loc[rng.random(count) < 0.25, "group"] = None
    found["ill"] = ill
    return found


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three sites; the last one has no column of iron."""
    folder = tmp_path_factory.mktemp("sites")
    found = []
    for seed in range(3):
        table = rows(seed).drop(columns="iron") if seed == 2 else rows(seed)
        table.to_csv(folder / f"{seed}.csv", index=False)
        said = (
            DICTIONARY.replace("iron = { empty = true }", "iron = { absent = true }") if seed == 2 else DICTIONARY
        )
        found.append(folder / f"{seed}.toml")
        found[-1].write_text(f'path = "{seed}.csv"\n{said}')
    return found


@pytest.fixture(scope="module")
def run(sites: list[Path]) -> Path:
    files = ",".join(f"'{each}'" for each in sites)
    return play(sites[0].parent, *TASK, f"partition.files=[{files}]", "name=run", small=False).folder


def spec_of(run: Path) -> Spec:
    return Spec.unflatten(json.loads((run / "task.json").read_text()))


@pytest.mark.slow
def test_the_run_keeps_what_replaces_a_cell(run: Path) -> None:
    spec, tables = spec_of(run), [rows(seed) for seed in range(3)]
    pressure = pd.concat(tables)["pressure"].median()
    iron = pd.concat(tables[:2])["iron"].median()
    assert spec.inputs.shape == (6,) and (spec.mean[5], spec.std[5], spec.fill[5]) == (0.0, 1.0, 0.0)
    assert spec.fill[:3] == spec.mean[:3]
    np.testing.assert_allclose(spec.fill[3:5], [pressure, iron], rtol=0.06)


@pytest.mark.slow
def test_what_is_known_of_the_medians_is_printed_and_stays_with_the_run(
    sites: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ",".join(f"'{each}'" for each in sites)
    listed = [*TASK, f"partition.files=[{files}]", "rounds=1", "name=shown", f"out='{tmp_path}'"]
    train(compose(listed), Console(), compare=False, quiet=True)
    folder = tmp_path / "shown"
    kept = (folder / "medians.txt").read_text().splitlines()
    fill = dict(zip(("pressure", "iron"), spec_of(folder).fill[3:5], strict=True))
    for line, (name, value) in zip(kept, fill.items(), strict=True):
        assert line.startswith(f"the median of column '{name}' is {value:.6g} (from bins; its distance to ")
    assert [line for line in capsys.readouterr().out.splitlines() if "median" in line] == [
        f"note: {line}" for line in kept
    ]
    again = resume(folder, "rounds=2")
    assert again.medians == kept and (folder / "medians.txt").read_text().splitlines() == kept
    assert all(f"- {line}\n" in (folder / "MODEL_CARD.md").read_text() for line in kept)


def by_hand(model: Model, table: pd.DataFrame) -> np.ndarray:
    """Outputs from numbers that are filled and normalised here."""
    spec = model.spec
    group = np.where(
        table["group"].isna().to_numpy()[:, None],
        np.nan,
        table["group"].to_numpy()[:, None] == np.array(["a", "b"]),
    )
    x = np.column_stack([table["age"], group.astype(float), table["pressure"], table["iron"]])
    x = np.column_stack([np.where(np.isnan(x), spec.fill[:5], x), table["pressure"].isna()])
    plain = model.__class__(model.network, spec.with_statistics({"fill": []}), model.config, model.folder)
    return plain.outputs(x.astype(np.float32))


@pytest.mark.slow
def test_the_model_in_use_fills_cells_as_training_did(run: Path) -> None:
    model, table = load(run), rows(9, 1000)
    table.loc[::7, "iron"] = np.nan
    found = model.predict(table)
    outputs = by_hand(model, table)
    shares = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    np.testing.assert_allclose(found[["p(no)", "p(yes)"]], shares, atol=1e-6)
    table.loc[3, "age"] = np.nan  # its rule is a mean
    assert model.predict(table).notna().all().all()


@pytest.mark.slow
def test_a_resumed_run_has_the_same_medians(run: Path, sites: list[Path], tmp_path: Path) -> None:
    files = ",".join(f"'{each}'" for each in sites)
    play(tmp_path, *TASK, f"partition.files=[{files}]", "rounds=1", "name=part", small=False)
    resume(tmp_path / "part", "rounds=3")
    assert weights(tmp_path / "part") == weights(run) and spec_of(tmp_path / "part") == spec_of(run)


def test_a_node_says_the_same_and_gives_apps_the_same_rows(
    run: Path, sites: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a deployed node computes for its apps, and the desk from the tables."""
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(tmp_path / "cache"))
    done = spec_of(run)
    spec = Spec.unflatten(
        {k: v for k, v in done.flatten().items() if k not in ("spec.mean", "spec.std", "spec.fill")}
    )
    reports = {}
    for number, file in enumerate(sites):
        desk = own_files.load(file, spec)
        folder, kept = tmp_path / f"rows{number}", tmp_path / f"kept{number}"
        folder.mkdir()
        kept.mkdir()
        prepared(
            {"site": read_site(file).plain(), "form": spec.flatten(), "folder": str(folder),
             "statistics": str(kept), "min_rows": 20, "shares": [0.2], "folds": False}
        )  # fmt: skip
        with monkeypatch.context() as patched:
            patched.setenv(PREPARED_VARIABLE, str(folder))
            node = own_files.load("/nowhere", spec)
        np.testing.assert_array_equal(node.x, desk.x)
        assert node.said is not None
        reports[number] = node.said.flatten()
        assert reports[number] == report(np.asarray(desk.x), np.asarray(desk.y), spec).flatten()
    assert pool(spec, reports).statistics["fill"] == list(done.fill)


def test_what_a_node_says_of_bins_stays_until_enough_rows_have_changed(
    sites: list[Path], run: Path, tmp_path: Path
) -> None:
    spec = spec_of(run)
    said = []
    for change in (0, 5, 60):
        table = pd.concat([rows(0), rows(50, change)])
        table.to_csv(tmp_path / "now.csv", index=False)
        (tmp_path / "now.toml").write_text(f'path = "now.csv"\n{DICTIONARY}')
        folder = tmp_path / f"rows{change}"
        folder.mkdir()
        (tmp_path / "kept").mkdir(exist_ok=True)
        prepared(
            {"site": read_site(tmp_path / "now.toml").plain(), "form": spec.flatten(), "folder": str(folder),
             "statistics": str(tmp_path / "kept"), "min_rows": 20, "shares": [], "folds": False}
        )  # fmt: skip
        said.append(Report.unflatten(json.loads((folder / "form.json").read_text())["moments"], spec).flatten())
    assert said[0] == said[1] != said[2]


@pytest.mark.slow
def test_a_cell_of_a_column_without_a_rule_is_refused_in_use(sites: list[Path], tmp_path: Path) -> None:
    files = ",".join(f"'{each.with_suffix('.csv')}'" for each in sites[:2])
    mine = [each for each in TASK if not each.startswith(("task.missing", "clients"))]
    more = ["task.missing=['pressure=median','group=mean']", "clients=2", f"partition.files=[{files}]"]
    model = load(play(tmp_path, *mine, *more, "name=some", small=False).folder)
    table = rows(4, 30)
    assert len(model.predict(table)) == 30
    table.loc[5, "iron"] = np.nan
    with pytest.raises(DataError, match="row 6, column 'iron': the cell is empty"):
        model.predict(table)
