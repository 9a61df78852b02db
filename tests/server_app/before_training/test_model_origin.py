"""A run starts from a model of its own task, or is refused with what differs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from desk import StopAfter, play, resume
from heart_tables import PUBLISHED, published

from fedstride.errors import ConfigError
from fedstride.tasks.datasets.nodes import own_images, own_sounds, own_table, own_texts
from fedstride.tasks.spec import Spec
from server_app import preparation
from server_app.before_training.model_origin import differences
from server_app.config.compose import compose

TABLE = {"columns": ["age", "mass", "sex=f|m"], "target": "ill", "classes": ["no", "yes"]}


def table(**more: Any) -> Spec:
    return own_table(**{**TABLE, **more}).spec


def said(there: Spec, here: Spec) -> str:
    """What differs, of the two as they are written to and read from a file."""
    read = Spec.unflatten(json.loads(json.dumps(there.flatten())))
    return "; ".join(differences(read, here))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"columns": ["mass", "age", "sex=f|m"]}, "another order: number 1 is 'age' there and 'mass' here"),
        ({"columns": ["sex=f|m", "age", "mass"]}, "another order: number 1 is 'age' there and 'sex' here"),
        (
            {"columns": ["age", "mass", "sex=m|f"]},
            "column 'sex' is one of 'f', 'm' there and one of 'm', 'f' here",
        ),
        (
            {"columns": ["age", "height", "sex=f|m"]},
            "column 'mass' is there and not here; column 'height' is here",
        ),
        ({"columns": ["age", "mass", "sex=f|m", "dose"]}, "column 'dose' is here and not there"),
        ({"columns": ["age", "sex=f|m"]}, "column 'mass' is there and not here"),
        ({"columns": ["age=0|1", "mass", "sex"]}, "column 'age' is a number there and one of '0', '1' here"),
        (
            {"missing": "mean+indicator"},
            "missing cells of column 'age' become error there and mean+indicator here",
        ),
        (
            {"missing": ["mean", "mass=median"]},
            "missing cells of column 'mass' become error there and median here",
        ),
        ({"classes": ["yes", "no"]}, "outputs are 'no', 'yes' there and 'yes', 'no' here"),
        ({"classes": ["no", "maybe"]}, "outputs are 'no', 'yes' there and 'no', 'maybe' here"),
        ({"classes": ["no", "yes", "maybe"]}, "number of outputs is 2 there and 3 here"),
        ({"target": "dead"}, "predicted column is 'ill' there and 'dead' here"),
        ({"kind": "values", "classes": None}, "predicted is one class there and values here"),
        (
            {"kind": "labels", "target": ["a", "b"], "classes": None},
            "predicted is one class there and labels here",
        ),
    ],
)
def test_tables_that_differ(more: dict[str, Any], words: str) -> None:
    assert words in said(table(), table(**more))


def test_what_makes_no_difference() -> None:
    for more in ({}, {"missing": "mean"}, {"columns": [" age", "mass ", "sex= f | m"]}):
        assert said(table(), table(**more)) == ""
    assert said(table(classes=["0", "1"]), table(classes=["0.0", "1.0"])) == ""
    assert said(table(classes=2), table()) == ""  # there, the classes have no names
    assert said(table(mean=[1.0] * 4, std=[2.0] * 4), table()) == ""  # they are taken over
    assert said(table(mean=[1 / 3] * 4, std=[2.0] * 4), table(mean=[1 / 3 + 1e-16] * 4, std=[2.0] * 4)) == ""


def test_other_kinds_that_differ() -> None:
    grey, colour = own_images(classes=2, shape=[1, 8, 8]).spec, own_images(classes=2, shape=[3, 8, 8]).spec
    assert "shape of an example is [1, 8, 8] there and [3, 8, 8] here" in said(grey, colour)
    half = replace(grey, mean=(0.0,), std=(1.0,))
    assert said(grey, half) == "mean of 0 is 0.5 there and 0 here; std of 0 is 0.5 there and 1 here"
    texts = own_texts(classes=2, vocabulary=50, length=8).spec
    assert "vocabulary is 50 there and 60 here" in said(texts, own_texts(classes=2, vocabulary=60, length=8).spec)
    assert "text is of 'text' there and of 'title' here" in said(
        texts, own_texts(classes=2, vocabulary=50, length=8, columns=["title"]).spec
    )
    sound = own_sounds(classes=2).spec
    assert "sampling rate is 16000 there and 8000 here" in said(sound, own_sounds(classes=2, rate=8000).spec)
    assert "window is 25.0 there and 20.0 here" in said(sound, own_sounds(classes=2, window=20.0).spec)
    assert "kind of example is frames there and table here" in said(sound, table())
    values = table(kind="values", classes=None, mean=[0.0] * 4, std=[1.0] * 4, target_mean=[5.0], target_std=[2.0])
    other = replace(values, target_mean=(6.0,))
    assert said(values, other) == "target_mean of ill is 5 there and 6 here"


# ---------------------------------------------------------------- in a run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of a run over two tables, and its settings but for columns and classes."""
    folder, rng = tmp_path_factory.mktemp("trained"), np.random.default_rng(2)
    for k in range(2):
        y = rng.integers(0, 2, 80)
        a, b = rng.normal(10 + 3 * y, 1.0), rng.normal(500 - 90 * y, 40.0)
        rows = "".join(f"{p},{q},{'ny'[t]}\n" for p, q, t in zip(a, b, y, strict=True))
        (folder / f"{k}.csv").write_text("a,b,t\n" + rows)
    files = ",".join(f"'{folder / f'{k}.csv'}'" for k in range(2))
    own = ["task=own_table", "task.target=t", "model=mlp", "partition=own", f"partition.files=[{files}]"]
    given = [*own, "clients=2", "client.batch_size=10"]
    return play(folder, *given, *AB, *NY, "rounds=3", "name=first", small=False).folder, given


AB, NY = ["task.columns=['a','b']"], ["task.classes=['n','y']"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["task.columns=['b','a']", *NY], "another order: number 1 is 'a' there and 'b' here"),
        ([*AB, "task.classes=['y','n']"], "outputs are 'n', 'y' there and 'y', 'n' here"),
        ([*AB, *NY, "task.mean=[0,0]", "task.std=[1,1]"], "mean of a is 1"),
    ],
)
def test_a_model_of_another_task_is_refused(
    trained: tuple[Path, list[str]], settings: list[str], words: str
) -> None:
    folder, given = trained
    start = f"initial='{folder / 'model.safetensors'}'"
    with pytest.raises(ConfigError) as caught:
        preparation.prepare(compose([*given, *settings, start]))
    assert words in str(caught.value) and "\n" not in str(caught.value)
    prepared = preparation.prepare(compose([*given, *settings, start, "allow=[initial_of_another_task]"]))
    assert words in " ".join(prepared.notes)


@pytest.mark.slow
def test_mean_and_deviation_are_those_of_the_model(trained: tuple[Path, list[str]], tmp_path: Path) -> None:
    """On other rows too, and in a run that is resumed when the file is gone."""
    folder, given = trained
    start = f"initial='{folder / 'model.safetensors'}'"
    one = f"partition.files=['{folder.parent / '0.csv'}']"
    given = [*given, *AB, *NY, one, "clients=1", "rounds=3", "name=more", start]
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, *given, observers=[StopAfter(1)], small=False)
    assert (tmp_path / "more/task.json").read_bytes() == (folder / "task.json").read_bytes()
    moved = tmp_path / "moved.safetensors"
    moved.write_bytes((folder / "model.safetensors").read_bytes())
    resume(tmp_path / "more", f"initial='{moved}'")
    assert (tmp_path / "more/task.json").read_bytes() == (folder / "task.json").read_bytes()
    accuracy = play(tmp_path, *given[:-2], "name=again", start, small=False).rows[1]["local/accuracy"]
    assert accuracy > 0.9


@pytest.mark.slow
def test_without_a_description_it_is_used_and_said(trained: tuple[Path, list[str]], tmp_path: Path) -> None:
    folder, given = trained
    alone = tmp_path / "backbone.safetensors"
    alone.write_bytes((folder / "model.safetensors").read_bytes())
    given = [*given, "task.columns=['b','a']", *NY, f"initial='{alone}'"]
    (note,) = preparation.prepare(compose(given)).notes
    assert f"there is no task.json beside {alone}" in note and "\n" not in note
    for wrong in ("", "[]", "{}", '{"spec.kind": "table"}', "[" * 10**5, "\0", '{"spec.kind": NaN}'):
        (tmp_path / "task.json").write_text(wrong)
        with pytest.raises(ConfigError, match=r"task\.json beside the file of initial does not describe a task"):
            preparation.prepare(compose(given))


@published
def test_columns_of_the_heart_disease_data_in_another_order(tmp_path: Path) -> None:
    names = ["age", "sex", "cp", "trestbps", "chol"]
    for k, site in enumerate(("cleveland", "hungarian")):
        rows = (PUBLISHED / f"processed.{site}.data").read_text().split()
        cells = [row.replace("?", "").split(",") for row in rows]
        kept = [[*each[:5], "01"[each[13] != "0"]] for each in cells]
        (tmp_path / f"{k}.csv").write_text(
            "\n".join([",".join([*names, "ill"]), *(",".join(row) for row in kept)])
        )
    own = ["task=own_table", "task.target=ill", "task.classes=['0','1']", "task.missing=mean", "model=mlp"]
    files = ",".join(f"'{tmp_path / f'{k}.csv'}'" for k in range(2))
    given = [*own, "partition=own", f"partition.files=[{files}]", "clients=2", "client.batch_size=20"]
    order = ["age", "sex=0|1", "cp=1|2|3|4", "trestbps", "chol"]
    first = play(tmp_path, *given, f"task.columns={order}", "rounds=1", "name=first", small=False).folder
    with pytest.raises(ConfigError, match="another order: number 1 is 'age' there and 'chol' here"):
        play(
            tmp_path,
            *given,
            f"task.columns={order[::-1]}",
            "rounds=1",
            f"initial='{first / 'model.safetensors'}'",
            small=False,
        )
