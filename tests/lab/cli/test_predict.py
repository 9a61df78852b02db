"""A run's model in use: the predictions are those of the network on inputs that were prepared by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from desk import play
from PIL import Image
from safetensors.torch import load_file, save_file

from fedstride.errors import ConfigError, DataError, FedstrideError
from fedstride.tasks import data
from lab.prediction.model import load
from server_app.config.compose import compose

TASK = [
    "task=own_table", "task.columns=['age','group=a|b|c','pressure']", "task.target=ill",
    "task.classes=['no','yes']", "task.missing=mean", "model=mlp", "partition=own", "clients=2", "rounds=2",
]  # fmt: skip


def rows(seed: int, count: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, group, pressure = rng.integers(20, 90, count), rng.choice(list("abc"), count), rng.normal(120, 15, count)
    ill = np.where(age + pressure / 4 + rng.normal(0, 9, count) > 85, "yes", "no")
    found = pd.DataFrame({"ill": ill, "pressure": pressure.round(2), "note": "x", "age": age, "group": group})
    found.loc[rng.random(count) < 0.1, "pressure"] = np.nan
    found.loc[rng.random(count) < 0.1, "group"] = None
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    files = [folder / f"{k}.csv" for k in range(2)]
    for k, file in enumerate(files):
        rows(k).to_csv(file, index=False)
    own = f"partition.files=['{files[0]}','{files[1]}']"
    return play(folder, *TASK, own, "name=run", small=False).folder


def by_hand(folder: Path, table: pd.DataFrame, best: bool = False) -> np.ndarray:
    """Probabilities, from mean and deviation in task.json and the weights, with numpy and torch alone."""
    task = json.loads((folder / "task.json").read_text())
    mean, std = np.array(task["spec.mean"]), np.array(task["spec.std"])
    known = table["group"].isin(list("abc")).to_numpy()
    one_hot = np.where(known[:, None], table["group"].to_numpy()[:, None] == np.array(list("abc")), np.nan)
    x = np.column_stack([table["age"], one_hot.astype(float), table["pressure"]])
    prepared = np.nan_to_num((x - mean) / std)
    stored = load_file(folder / f"{'best' if best else 'model'}.safetensors")
    weights = {name: array.double().numpy() for name, array in stored.items()}
    layers = sorted({name.rsplit(".", 1)[0] for name in weights})
    for number, layer in enumerate(layers):
        prepared = prepared @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]
        prepared = np.maximum(prepared, 0) if number < len(layers) - 1 else prepared
    shares = np.exp(prepared)
    return shares / shares.sum(1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["last", "best"])
def test_a_table_with_missing_cells_and_unknown_categories(run: Path, which: Any) -> None:
    table = rows(7, 1000)
    table.loc[::13, "group"] = "an unknown one"
    found = load(run, which).predict(table)
    assert list(found.columns) == ["class", "p(no)", "p(yes)"]
    want = by_hand(run, table, which == "best")
    np.testing.assert_allclose(found[["p(no)", "p(yes)"]], want, atol=1e-6)
    assert (found["class"] == np.where(found["p(yes)"] > found["p(no)"], "yes", "no")).all()
    np.testing.assert_allclose(found[["p(no)", "p(yes)"]].sum(1), 1.0, atol=1e-12)


@pytest.mark.slow
def test_files_and_tables_in_memory_give_the_same(run: Path, tmp_path: Path) -> None:
    table, model = rows(8), load(run)
    want = model.predict(table)
    shuffled = table[["note", "group", "ill", "age", "pressure"]].drop(columns="ill")
    shuffled.to_csv(tmp_path / "new.csv", index=False)
    shuffled.to_csv(tmp_path / "new.csv.gz", index=False)
    shuffled.to_parquet(tmp_path / "new.parquet")
    for name, first in (("new.csv", "2"), ("new.csv.gz", "2"), ("new.parquet", "1")):
        found = model.predict(tmp_path / name)
        assert found.index[0] == first
        pd.testing.assert_frame_equal(found.reset_index(drop=True), want.reset_index(drop=True))


def test_a_table_that_is_written_in_another_way(run: Path, tmp_path: Path) -> None:
    table = rows(10)
    named = table.rename(columns={"age": "Alter"}).replace({"group": {"a": "Gruppe A"}})
    named.to_csv(tmp_path / "export.csv", index=False, sep=";", decimal=",", na_rep="?", encoding="utf-16")
    (tmp_path / "data.toml").write_text(
        'path = "export.csv"\ntargets = []\n[file]\nseparator = ";"\ndecimal = ","\nmissing = ["?"]\n'
        'encoding = "utf-16"\n[columns]\nage = { from = "Alter" }\npressure = "number"\n'
        'group = { categories = ["a", "b", "c"], words = { "Gruppe A" = "a" } }\n'
    )
    found = load(run).predict(tmp_path / "data.toml")
    want = load(run).predict(table)
    pd.testing.assert_frame_equal(found.reset_index(drop=True), want.reset_index(drop=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.toml", "export.csv"]  # and no secret


@pytest.mark.slow
def test_the_accuracy_of_the_predictions_is_that_of_the_run(tmp_path: Path) -> None:
    outcome = play(tmp_path, "rounds=2", "name=digits")
    source = data.load(compose([]).task)
    x, y = source.test_x[source.measured], source.test_y[source.measured]
    found = load(outcome.folder).predict(x)
    assert np.mean(found["class"].astype(int) == y) == outcome.rows[-1]["test/accuracy"]


def image(path: Path, rng: np.random.Generator) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)


@pytest.mark.slow
def test_images_texts_and_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for n in range(40):
        image(tmp_path / f"images/{('cat', 'dog')[n % 2]}/{n}.png", rng)
        image(tmp_path / f"new/{n:02}.png", rng)
        text = tmp_path / f"texts/{('bad', 'good')[n % 2]}/{n}.txt"
        text.parent.mkdir(parents=True, exist_ok=True)
        text.write_text(f"{('bad', 'good')[n % 2]} words {n}")
    own = ("partition=own", "clients=2", "rounds=1")
    images = ("task=own_images", "task.classes=['cat','dog']", "task.shape=[1,8,8]", "model=mlp")
    folder = play(
        tmp_path,
        *own,
        *images,
        f"partition.files=['{tmp_path}/images','{tmp_path}/images']",
        "name=i",
        small=False,
    ).folder
    model = load(folder)
    found = model.predict(tmp_path / "new")
    assert list(found.index) == [f"{n:02}.png" for n in range(40)] and found.index.name == "file"
    by_class = model.predict(tmp_path / "images")  # as for training
    assert by_class.index[0] == "cat/0.png" and by_class.index[-1] == "dog/9.png" and len(by_class) == 40
    pixels = np.stack([np.asarray(Image.open(tmp_path / f"new/{n:02}.png"))[None] for n in range(40)])
    np.savez(tmp_path / "x.npz", x=pixels)
    np.testing.assert_array_equal(model.predict(tmp_path / "x.npz")["p(cat)"], found["p(cat)"])
    one = model.predict(tmp_path / "new/07.png")
    np.testing.assert_allclose(one["p(cat)"], found["p(cat)"].iloc[[7]], atol=1e-6)

    texts = (
        "task=own_texts",
        "task.classes=['bad','good']",
        "task.length=8",
        "task.vocabulary=50",
        "model=textcnn",
    )
    folder = play(
        tmp_path, *own, *texts, f"partition.files=['{tmp_path}/texts','{tmp_path}/texts']", "name=t", small=False
    ).folder
    table = pd.DataFrame({"text": ["bad words 3", "good words 4"]})
    (tmp_path / "new texts").mkdir()
    for n, text in enumerate(table["text"]):
        (tmp_path / f"new texts/{n}.txt").write_text(text)
    model = load(folder)
    np.testing.assert_array_equal(model.predict(table)["p(bad)"], model.predict(tmp_path / "new texts")["p(bad)"])


@pytest.mark.slow
def test_values_are_in_their_unit_and_labels_have_a_probability_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    for k in range(2):
        age = rng.uniform(20, 80, 80)
        table = pd.DataFrame({"age": age, "cost": 1000.0 * age + rng.normal(0, 500, 80)})
        table["old"], table["odd"] = (age > 50).astype(int), np.arange(80) % 2
        table.to_csv(tmp_path / f"{k}.csv", index=False)
    own = [
        "partition=own", f"partition.files=['{tmp_path}/0.csv','{tmp_path}/1.csv']", "clients=2", "task=own_table",
        "task.columns=['age']", "model=mlp", "client.local_epochs=10", "client.batch_size=10", "strategy=fedavg",
    ]  # fmt: skip
    values = play(
        tmp_path, *own, "task.kind=values", "task.target=cost", "rounds=10", "name=v", small=False
    ).folder
    found = load(values).predict(pd.DataFrame({"age": [30.0, 70.0]}))
    assert list(found.columns) == ["cost"]
    np.testing.assert_allclose(found["cost"], [30_000, 70_000], rtol=0.2)
    labels = play(
        tmp_path, *own, "task.kind=labels", "task.target=['old','odd']", "rounds=10", "name=l", small=False
    ).folder
    found = load(labels).predict(pd.DataFrame({"age": [25.0, 75.0]}))
    assert list(found.columns) == ["p(old)", "p(odd)"]
    assert found["p(old)"].iloc[0] < 0.5 < found["p(old)"].iloc[1]


NETWORK = """
from torch import nn
from fedstride import part

@part(model="mine")
def mine(inputs, outputs):
    \"\"\"A network of one's own.\"\"\"
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs.size, outputs))
"""


@pytest.mark.slow
def test_a_network_of_ones_own_is_built_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(NETWORK)
    folder = play(tmp_path, f"parts={file}", "model=mine", "rounds=1", "name=own").folder
    x = np.zeros((2, 1, 28, 28), np.uint8)
    want = load(folder).outputs(x)
    file.rename(tmp_path / "moved.py")
    with pytest.raises(ConfigError, match=r"mine\.py"):  # though its parts are loaded in this process
        load(folder)
    np.testing.assert_array_equal(load(folder, parts=tmp_path / "moved.py").outputs(x), want)


def test_hinge_gives_scores_and_no_probabilities(tmp_path: Path) -> None:
    folder = play(tmp_path, "task.loss=hinge", "model=svm", "rounds=1", "name=svm").folder
    found = load(folder).predict(np.zeros((1, 1, 28, 28), np.uint8))
    assert [name for name in found.columns if name.startswith("p(")] == []
    assert "score(0)" in found.columns


def without(name: str) -> Any:
    return lambda folder: (folder / name).unlink()


def weights(folder: Path) -> None:
    save_file({"fc.weight": torch.zeros(2, 2)}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (without("config.yaml"), "config.yaml does not exist"),
        (without("task.json"), "task.json does not exist"),
        (without("model.safetensors"), "model.safetensors does not exist"),
        (lambda folder: (folder / "task.json").write_text("{}"), "task.json cannot be used"),
        (lambda folder: (folder / "task.json").write_text("["), "task.json cannot be used"),
        (lambda folder: (folder / "config.yaml").write_text("a: ["), "config.yaml cannot be used"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"no"), "model.safetensors cannot be used"),
        (weights, "model.safetensors cannot be used"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(run: Path, tmp_path: Path, damage: Any, words: str) -> None:
    for name in ("config.yaml", "task.json", "model.safetensors"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    damage(tmp_path)
    with pytest.raises(ConfigError, match=words) as raised:
        load(tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("absent.csv", "does not exist"),
        (
            pd.DataFrame({"age": [1.0], "group": ["a"]}),
            "has no column 'pressure': add it, or rename a column; where the task takes empty",
        ),
        (pd.DataFrame({"age": ["old"], "group": ["a"], "pressure": [1.0]}), "row 1, column 'age'"),
        (pd.DataFrame({"age": [], "group": [], "pressure": []}), "has no rows"),
        (np.zeros((2, 9), np.float32), r"\(2, 9\)|9"),
        ("picture.png", "cannot be read as examples of kind table"),
    ],
)
def test_what_does_not_fit_the_task(run: Path, tmp_path: Path, source: Any, words: str) -> None:
    (tmp_path / "picture.png").write_bytes(b"")
    with pytest.raises(DataError, match=words):
        load(run).predict(tmp_path / source if isinstance(source, str) else source)


def test_dicts_are_tables(run: Path) -> None:
    """A dict of columns and a list of rows give what their DataFrame gives; a cell that a row lacks is empty."""
    table, model = rows(11, 5), load(run)
    want = model.predict(table)
    of_rows = [{key: cell for key, cell in row.items() if cell == cell} for row in table.to_dict("records")]
    for source in (
        table.to_dict("list"),
        table.to_dict("series"),
        table.to_dict("records"),
        of_rows,
        tuple(of_rows),
    ):
        pd.testing.assert_frame_equal(model.predict(source), want)
    assert len(model.predict({"age": np.array([50, 60]), "group": ("a", "b"), "pressure": [120, None]})) == 2


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (None, "a NoneType"),
        (5, "an? int"),
        (pd.Series({"age": 50, "group": "a"}), "a Series"),
        ([], "an empty list"),
        ([{"age": 50}, 3], "a list"),
        ([[50, "a", 120]], "a list"),
        ({"age": 50, "group": "a", "pressure": 120}, "a dict whose values are not columns"),
        ({"age": [50, 51], "group": ["a"]}, "a dict whose values are not columns of one length"),
        (b"new.csv", "a bytes"),
        (load, "a function"),
    ],
)
def test_what_is_no_source_is_one_line(run: Path, source: Any, what: str) -> None:
    with pytest.raises(
        ConfigError, match=f"predict was given {what}.*: it takes a path, a DataFrame, a dict of"
    ) as raised:
        load(run).predict(source)
    assert "\n" not in str(raised.value)


def test_a_file_without_a_column_says_what_to_do(run: Path, tmp_path: Path) -> None:
    """What the line says works: the column is added, named in a data file, or absent there."""
    table, model = rows(12, 6), load(run)
    want = model.predict(table).reset_index(drop=True)
    table.rename(columns={"pressure": "RR"}).to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(DataError) as raised:
        model.predict(tmp_path / "new.csv")
    assert (
        "has no column 'pressure': add it, or say in [columns] of a data file what it is called here "
        "({ from = 'NAME' }), or that this table does not have it ({ absent = true }); its columns are "
    ) in str(raised.value)
    others = 'path = "new.csv"\ntargets = []\n[columns]\nage = "number"\ngroup = ["a", "b", "c"]\n'
    (tmp_path / "named.toml").write_text(f"{others}pressure = {{ from = 'RR' }}\n")
    found = model.predict(tmp_path / "named.toml").reset_index(drop=True)
    pd.testing.assert_frame_equal(found, want)
    (tmp_path / "absent.toml").write_text(f"{others}pressure = {{ absent = true }}\n")
    empty = model.predict(table.assign(pressure=None)).reset_index(drop=True)
    pd.testing.assert_frame_equal(model.predict(tmp_path / "absent.toml").reset_index(drop=True), empty)


def test_without_missing_cells_in_the_task_they_are_an_error(tmp_path: Path) -> None:
    rows(0).dropna().to_csv(tmp_path / "0.csv", index=False)
    own = f"partition.files=['{tmp_path}/0.csv','{tmp_path}/0.csv']"
    model = load(play(tmp_path, *TASK, own, "task.missing=error", "name=whole", small=False).folder)
    good = {"age": [50], "group": ["a"], "pressure": [120.0]}
    assert len(model.predict(pd.DataFrame(good))) == 1
    for name, value in (("group", "z"), ("group", None), ("pressure", np.nan), ("age", "")):
        with pytest.raises(FedstrideError, match=f"row 1, column '{name}'"):
            model.predict(pd.DataFrame({**good, name: [value]}))


@pytest.mark.slow
def test_the_command(run: Path, tmp_path: Path) -> None:
    table = rows(9)
    table.to_csv(tmp_path / "new.csv", index=False)

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lab.cli.main", "predict", str(run), *arguments],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    out = tmp_path / "out.csv"
    done = command(str(tmp_path / "new.csv"), "-o", str(out))
    assert done.returncode == 0, done.stderr
    written = pd.read_csv(out, index_col="line")
    np.testing.assert_allclose(written["p(yes)"], load(run).predict(table)["p(yes)"], rtol=1e-15)
    assert written.index[0] == 2
    before = out.read_bytes()
    done = command(str(tmp_path / "new.csv"), "-o", str(out), "--best")
    assert done.returncode == 2 and "is not overwritten" in done.stderr and out.read_bytes() == before
    printed = command(str(tmp_path / "new.csv"), "-o", "-")
    assert (printed.returncode, printed.stderr) == (0, "") and printed.stdout.encode() == before
