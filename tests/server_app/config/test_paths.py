"""A run's paths are absolute, so that it is resumed and measured from any folder."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from desk import play, resume, table, weights

from fedstride.errors import ConfigError, FedstrideError
from fedstride.settings import fields_of
from lab.engine.sweep_combinations import plan
from lab.results.run_folders import find_runs
from server_app.config.compose import compose, digest, from_yaml
from server_app.config.paths import absolute, absolute_value
from server_app.config.schema import TABLES, Config

OWN = (
    "task=own_table", "task.columns=[dose]", "task.classes=[no,yes]", "partition=own", "clients=2",
    "client.batch_size=10", "model=mlp", "model.width=4", "strategy=fedavg",
)  # fmt: skip

NO_PATHS = {"experiment", "initial_digest", "name", "parts_digest"}
"""Settings whose meaning names a file or a folder, and whose value is none."""


def folder_with_sites(folder: Path) -> Path:
    folder.mkdir()
    for number in range(2):
        rng = np.random.default_rng(number)
        ill = rng.random(60) < 0.5
        made = pd.DataFrame({"dose": rng.normal(size=60) + ill, "label": np.where(ill, "yes", "no")})
        made.to_csv(folder / f"{number}.csv", index=False)
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the files of two sites."""
    folder = folder_with_sites(tmp_path / "here")
    monkeypatch.chdir(folder)
    return folder


FILES = "partition.files=[0.csv,./1.csv]"


def test_the_schema_knows_which_settings_are_paths() -> None:
    """A setting that is text and whose meaning names a file, folder or path is one, but for the few listed."""
    every = dict(fields_of(Config))
    for group, parts in TABLES.items():
        for part in parts.built_in():
            every |= {f"{group}.{key}": field for key, field in parts.all_fields(part.name).items()}
    texts = {key: field for key, field in every.items() if field.is_text}
    named = {key for key, field in texts.items() if re.search(r"\b(file|folder|path)\b", field.setting.meaning)}
    paths = {key for key, field in every.items() if field.setting.path}
    assert paths == {"initial", "against", "out", "parts", "resume", "partition.files", "task.root"}
    assert named == paths | NO_PATHS


def test_paths_become_absolute(here: Path) -> None:
    given = absolute(compose([*OWN, FILES, "out=runs", "initial='../m.safetensors'"]))
    assert given.partition.files == [f"{here}/0.csv", f"{here}/1.csv"]  # type: ignore[attr-defined]
    assert given.out == f"{here}/runs" and given.initial == f"{here}/../m.safetensors" and given.against is None
    assert absolute(given) == given
    mnist = compose(["task=mnist", "task.root=data", "out=runs"])
    assert absolute(mnist).task.root == f"{here}/data"  # type: ignore[attr-defined]
    nodes = absolute(mnist, of_parts=False)
    assert (nodes.task.root, nodes.out) == ("data", f"{here}/runs")  # type: ignore[attr-defined]
    assert mnist.out == "runs"


def test_one_path(here: Path) -> None:
    assert absolute_value("~/x") == str(Path.home() / "x") and absolute_value(None) is None
    assert absolute_value("~no-such-user/x") == "~no-such-user/x" and absolute_value("/a/b") == "/a/b"


def test_a_wrong_number_of_files_is_refused_as_it_was_typed() -> None:
    with pytest.raises(ConfigError, match=re.escape("partition.files = ['0.csv'] is not allowed")):
        compose([*OWN, "partition.files=[0.csv]"])


def test_neither_digest_nor_name_depend_on_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        (job,) = plan([*OWN, FILES, "out=runs"]).jobs
        assert str(tmp_path / name / "0.csv") in job.text
        found.append((digest(job.config), job.folder.name))
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_run_is_resumed_from_another_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = here.parent / "runs"
    whole = play(out, *OWN, FILES, "rounds=3", "name=whole", small=False).folder
    part = play(out, *OWN, FILES, "rounds=2", "name=part", small=False).folder
    monkeypatch.chdir("/")
    resume(part, "rounds=3")
    assert weights(part) == weights(whole) and table(part) == table(whole)


@pytest.mark.slow
def test_the_files_of_a_run_may_move(here: Path) -> None:
    """A resumed run names the new place; another content is refused, as it is in the old place."""
    out = here.parent / "runs"
    whole = play(out, *OWN, FILES, "rounds=3", "name=whole", small=False).folder
    part = play(out, *OWN, FILES, "rounds=2", "name=part", small=False).folder
    here.rename(here.parent / "there")
    moved = here.parent / "there"
    with pytest.raises(ConfigError, match=f"^{here}/0.csv, .* where they are now, as in partition.files="):
        resume(part, "rounds=3")
    with pytest.raises(FedstrideError, match="changed_data"):
        resume(part, "rounds=3", f"partition.files=['{moved}/1.csv','{moved}/1.csv']")
    resume(part, "rounds=3", f"partition.files=['{moved}/0.csv','{moved}/1.csv']")
    assert weights(part) == weights(whole)


@pytest.mark.slow
def test_a_completed_run_stays_completed_if_it_cannot_be_resumed(here: Path) -> None:
    """Its files are as they were, and it is resumed when the data are there again."""
    folder = play(here.parent / "runs", *OWN, FILES, "rounds=2", "name=run", small=False).folder
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    table_of_one = (here / "1.csv").read_bytes()
    (here / "1.csv").write_text("not,a,table\n")
    with pytest.raises(FedstrideError):
        resume(folder, "rounds=3")
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {path.name for path in after if after[path] != before.get(path)} <= {"progress.json"}
    assert json.loads((folder / "status.json").read_text())["state"] == "completed"
    assert len(find_runs([folder])[0]) == 1
    (here / "1.csv").write_bytes(table_of_one)
    resume(folder, "rounds=3")
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["rounds"]) == ("completed", 3)


@pytest.mark.slow
def test_a_run_that_was_not_completed_says_how_it_failed(here: Path) -> None:
    folder = play(here.parent / "runs", *OWN, FILES, "rounds=2", "name=run", small=False).folder
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps({**status, "state": "interrupted"}))
    (here / "1.csv").write_text("not,a,table\n")
    with pytest.raises(FedstrideError):
        resume(folder, "rounds=3")
    assert json.loads((folder / "status.json").read_text())["state"] == "failed"


@pytest.mark.slow
def test_the_configuration_of_a_run_has_absolute_paths(here: Path) -> None:
    folder = play(Path("runs"), *OWN, FILES, "rounds=1", "name=run", small=False).folder
    stored = from_yaml((folder / "config.yaml").read_text())
    assert replace(stored, name=None) == replace(absolute(stored), name=None)
    assert stored.out == f"{here}/runs" and stored.partition.files[0] == f"{here}/0.csv"  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_same_path_as_it_was_typed_is_no_change(here: Path) -> None:
    folder = play(Path("runs"), *OWN, FILES, "rounds=1", "name=run", small=False).folder
    assert compose([f"resume='{folder}'", "out=runs", "rounds=2"]).rounds == 2
    with pytest.raises(ConfigError, match="out = 'elsewhere', but the run in"):
        compose([f"resume='{folder}'", "out=elsewhere"])
