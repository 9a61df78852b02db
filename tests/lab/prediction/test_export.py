"""A run's model as a file for other programs: the predictions are ours, of the cells that a user has."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from desk import play
from folders import Call
from heart_tables import PUBLISHED, published
from safetensors.numpy import load_file, save_file

from fedstride.errors import ConfigError, DataError, FedstrideError
from lab.prediction import onnx_file
from lab.prediction.export import ABOUT, FORMATS, export
from lab.prediction.model import Model, load
from lab.prediction.network_with_preparation import columns_of

HEART = Path(__file__).resolve().parents[3] / "examples/heart"
SITES = ("cleveland", "hungarian", "switzerland", "va")


def trained(out: Path, tables: list[pd.DataFrame], *overrides: str) -> Path:
    """The folder of a run on these tables."""
    files = [out / f"{k}.csv" for k in range(len(tables))]
    for table, file in zip(tables, files, strict=True):
        table.to_csv(file, index=False)
    named = ",".join(f"'{file}'" for file in files)
    own = ("task=own_table", "partition=own", f"partition.files=[{named}]", f"clients={len(tables)}", "rounds=2")
    return play(out, *own, "model=mlp", "name=run", *overrides, small=False).folder


def adults(seed: int, count: int = 200) -> pd.DataFrame:
    """Rows with numbers, categories of words and of numbers, and names of columns that are hard for a graph."""
    rng = np.random.default_rng(seed)
    age = rng.integers(17, 90, count).astype(float)
    work = rng.choice(["Private", "Self-emp", "Gov, local"], count)
    grade = rng.choice(["1", "2", "3.5"], count)
    rich = np.where(age + 20 * (work == "Private") + rng.normal(0, 10, count) > 60, ">50K", "<=50K")
    table = pd.DataFrame(
        {"x": age, "work class": work, "probabilities": grade, "fedstride/x": -age, "income": rich}
    )
    for name in ("x", "work class", "probabilities"):
        table.loc[rng.random(count) < 0.1, name] = None
    return table


ADULT = (
    "task.columns=['x','work class=Private|Self-emp|Gov, local','probabilities=1|2|3.5','fedstride/x']",
    "task.target=income", "task.classes=['<=50K','>50K']", "task.missing=mean",
)  # fmt: skip


@pytest.fixture(scope="module")
def adult(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("adult"), [adults(0), adults(1)], *ADULT)


def by_onnx(file: Path, table: pd.DataFrame, model: Model) -> np.ndarray:
    """The predictions of the file, with onnxruntime alone, from the cells of a table."""
    session = onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    given = {}
    for each in session.get_inputs():
        cells = table[each.name]
        words = each.type == "tensor(string)"
        given[each.name] = (cells.fillna("").astype(str) if words else cells.astype(np.float32)).to_numpy()[
            :, None
        ]
        given[each.name] = given[each.name].astype(object) if words else given[each.name]
    (found,) = session.run(None, given)
    assert found.dtype == np.float32
    return found


def ours(model: Model, table: Any) -> np.ndarray:
    return model.predict(table).select_dtypes("number").to_numpy()


@pytest.mark.slow
def test_cells_of_a_table_as_a_user_has_them(adult: Path, tmp_path: Path) -> None:
    model, file = load(adult), tmp_path / "adult.onnx"
    done = export(model, "onnx", file)
    assert done.difference <= 1e-5 and "unknown categories" in done.compared
    table = adults(5, 1000)
    table.loc[::11, "work class"] = "Never-worked"
    table.loc[::17, "probabilities"] = "nan"
    table["probabilities"] = table["probabilities"].replace({"1": "1.0", "3.5": "3.50"})
    found = by_onnx(file, table, model)
    np.testing.assert_allclose(found, ours(model, table), atol=1e-5)
    assert np.ptp(found[:, 0]) > 0.3  # it says something
    onnx.checker.check_model(onnx.load(file), full_check=True)
    said = {each.key: each.value for each in onnx.load(file).metadata_props}
    assert said["run"] == "run" and json.loads(said["names"]) == ["<=50K", ">50K"]


def hospitals() -> pd.DataFrame:
    """The published tables in the words of the task."""
    tables = []
    for site in SITES:
        said = tomllib.loads((HEART / f"sites/{site}.toml").read_text())
        source = PUBLISHED / f"processed.{site}.data"
        table = pd.read_csv(source, header=None, names=said["file"]["header"], na_values=["?", "-9"])
        for name, cells in said["columns"].items():
            if isinstance(cells, dict) and "words" in cells:
                words = {float(code): word for code, word in cells["words"].items()}
                table[name] = table[name].map(words)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


@pytest.mark.slow
@published
def test_a_thousand_rows_of_four_hospitals(tmp_path: Path) -> None:
    for site in SITES:
        for name in (f"{site}.toml", f"processed.{site}.data"):
            source = HEART / "sites" / name if name.endswith(".toml") else PUBLISHED / name
            (tmp_path / name).write_bytes(source.read_bytes())
    files = ",".join(f"'{tmp_path}/{site}.toml'" for site in SITES)
    folder = play(
        tmp_path, f"parts={HEART / 'heart.py'}", "task=heart", "model=mlp3", "rounds=3", "clients=4",
        "partition=own", f"partition.files=[{files}]", "name=heart", small=False,
    ).folder  # fmt: skip
    model, file = load(folder), tmp_path / "heart.onnx"
    table = hospitals()
    table = pd.concat([table, table[:80]], ignore_index=True)
    assert len(table) == 1000 and table.isna().any().any()
    table.to_csv(tmp_path / "all.csv", index=False)
    table.loc[::9, "thallium"] = "not done"
    export(model, "onnx", file)
    np.testing.assert_allclose(by_onnx(file, table, model), ours(model, table), atol=1e-5)
    for form in ("torch", "safetensors"):
        done = export(model, form, tmp_path / f"heart.{form}", tmp_path / "all.csv")
        assert done.difference <= 1e-5 and done.compared.startswith("1000 examples") and "all.csv" in done.compared


WITHOUT_US = """
import json, sys
for name in ("fedstride", "lab", "server_app", "client_app", "strategies"):
    sys.modules[name] = None  # an import of it fails
import torch
said = {"fedstride.json": ""}
network = torch.export.load(sys.argv[1], extra_files=said).module()
x = torch.tensor(json.loads(sys.argv[2]))
print(json.dumps([network(x).tolist(), json.loads(said["fedstride.json"])]))
"""


@pytest.mark.slow
def test_torch_alone_loads_the_file(adult: Path, tmp_path: Path) -> None:
    model, file = load(adult), tmp_path / "adult.pt2"
    assert export(model, "torch", file).difference <= 1e-5
    table = pd.DataFrame(
        {"x": [30.0, 60.0, None], "work class": ["Gov, local", "?", None], "probabilities": ["2", None, "3.5"],
         "fedstride/x": [-30.0, -60.0, 0.0]}
    )  # fmt: skip
    nan = float("nan")
    x = [[30.0, 2.0, 1.0, -30.0], [60.0, 3.0, nan, -60.0], [nan, nan, 2.0, 0.0]]
    done = subprocess.run(
        [sys.executable, "-I", "-c", WITHOUT_US, str(file), json.dumps(x)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found, said = json.loads(done.stdout)
    np.testing.assert_allclose(found, ours(model, table), atol=1e-5)
    assert said["gives"] == "probabilities" and "number of the category" in said["takes"]


@pytest.mark.slow
def test_weights_with_what_prepares_an_example(adult: Path, tmp_path: Path) -> None:
    from safetensors import safe_open

    file = tmp_path / "adult.safetensors"
    done = export(load(adult, "best"), "safetensors", file)
    assert done.difference <= 1e-5 and "not in the file" in done.note
    with safe_open(file, "np") as found, safe_open(adult / "best.safetensors", "np") as stored:
        assert {*found.keys()} == {*stored.keys()}
        for name in (*stored.keys(),):
            np.testing.assert_array_equal(found.get_tensor(name), stored.get_tensor(name))
        prepared = json.loads(found.metadata()["prepared"])
    assert prepared == json.loads((adult / "task.json").read_text())


@pytest.mark.slow
def test_a_best_model_of_a_round_that_was_executed_anew_is_refused(adult: Path, tmp_path: Path) -> None:
    shutil.copytree(adult, tmp_path / "run")
    best = tmp_path / "run/best.safetensors"
    assert load(best.parent, "best").config.rounds  # as it was written
    for stored, why in (("99", "the run was resumed before it"), ("0", "the better one was not written")):
        save_file(load_file(best), best, metadata={"round": stored})
        with pytest.raises(
            ConfigError, match=f"best.safetensors cannot be used: it is the model of round {stored}, and {why}"
        ):
            load(best.parent, "best")
    (best.parent / "metrics.jsonl").unlink()  # a folder with the model alone
    assert load(best.parent, "best").folder == best.parent


SMALL = ("clients=2", "rounds=1", "client.local_steps=2")
KINDS = {
    "images": ("task=mnist5k", "model=lenet5"),
    "scores": ("task=mnist5k", "model=svm", "task.loss=hinge"),
    "numbers": ("task=breast_cancer", "model=mlp"),
    "values": ("task=diabetes", "model=mlp3", "partition=iid"),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "torch"])
@pytest.mark.parametrize("kind", KINDS)
def test_other_examples(kind: str, form: str, tmp_path: Path) -> None:
    model = load(play(tmp_path, *SMALL, *KINDS[kind], "name=run", small=False).folder)
    done = export(model, form, tmp_path / "file")
    assert done.difference <= 1e-5
    assert model.gives == {"scores": "scores", "values": "values"}.get(kind, "probabilities")
    assert ("uint8" in done.takes) == (kind in ("images", "scores"))


@pytest.mark.slow
def test_texts(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    words = np.array(["good", "bad", "fine", "poor", "great", "awful"])
    texts = [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(90)]
    table = pd.DataFrame({"text": texts, "label": ["yes" if "good" in text else "no" for text in texts]})
    table.to_csv(tmp_path / "0.csv", index=False)
    folder = play(
        tmp_path, "task=own_texts", "task.classes=['no','yes']", "task.length=8", "task.vocabulary=60",
        "model=lstm", "model.width=8", "partition=own", "clients=1", "rounds=1", "name=run",
        f"partition.files=['{tmp_path}/0.csv']", small=False,
    ).folder  # fmt: skip
    model = load(folder)
    done = export(model, "onnx", tmp_path / "texts.onnx", tmp_path / "0.csv")
    assert done.difference <= 1e-5 and done.compared.startswith("90 examples") and "`tokens`" in done.note
    said = {each.key: each.value for each in onnx.load(tmp_path / "texts.onnx").metadata_props}
    assert "crc32(its UTF-8) % 59" in said["tokens"] and said["tokens"].startswith("the first 8 ")


@pytest.mark.slow
def test_labels_and_values_of_tables(tmp_path: Path) -> None:
    table = adults(3).dropna()
    table["old"], table["rich"] = (table["x"] > 50).astype(int), (table["income"] == ">50K").astype(int)
    table["cost"] = 1000.0 * table["x"]
    columns = ADULT[0]
    for kind, target in (("labels", "['old','rich']"), ("values", "cost")):
        (tmp_path / kind).mkdir()
        said = (columns, f"task.kind={kind}", f"task.target={target}", "task.missing=mean")
        model = load(trained(tmp_path / kind, [table, table], *said))
        assert export(model, "onnx", tmp_path / f"{kind}.onnx").difference <= 1e-5
        np.testing.assert_allclose(
            by_onnx(tmp_path / f"{kind}.onnx", adults(4), model), ours(model, adults(4)), rtol=1e-5, atol=1e-5
        )


@pytest.mark.slow
@pytest.mark.parametrize("bad", [{"x": None}, {"work class": "?"}, {"x": np.inf}, {"probabilities": ""}])
def test_what_predict_refuses_is_not_a_number(bad: dict[str, Any], tmp_path: Path) -> None:
    tables = [adults(k).dropna() for k in range(2)]
    model = load(trained(tmp_path, tables, *ADULT[:-1], "task.missing=error"))
    export(model, "onnx", tmp_path / "whole.onnx")
    table = tables[0][:3].reset_index(drop=True)
    good = by_onnx(tmp_path / "whole.onnx", table, model)
    np.testing.assert_allclose(good, ours(model, table), atol=1e-5)
    table[list(bad)] = table[list(bad)].astype(object)
    table.loc[1, list(bad)] = list(bad.values())
    with pytest.raises(FedstrideError):
        model.predict(table)
    found = by_onnx(tmp_path / "whole.onnx", table, model)
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(found[[0, 2]], good[[0, 2]])


NETWORK = """
import torch
from torch import nn
from fedstride import part

class Mine(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.fc = nn.Linear(inputs.size, outputs)

    def forward(self, x):
        x = self.fc(x.flatten(1))
        CHANGE
        return x

@part(model="mine")
def mine(inputs, outputs):
    \"\"\"A network of one's own.\"\"\"
    return Mine(inputs, outputs)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "form", "words"),
    [
        ("x = x if float(x.sum()) < 1e9 else -x", "torch", "cannot be exported as a graph"),
        ("x = torch.linalg.lstsq(torch.eye(len(x)), x).solution", "onnx", "cannot be exported as"),
        ("x = x + torch.rand_like(x)", "torch", "differs from our own predictions by"),
    ],
)
def test_a_network_that_cannot_be_exported(change: str, form: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(NETWORK.replace("CHANGE", change))
    model = load(play(tmp_path, f"parts={file}", "model=mine", *SMALL, "name=own", small=False).folder)
    with pytest.raises(FedstrideError, match=words) as raised:
        export(model, form, tmp_path / "file")
    assert "\n" not in str(raised.value) and not (tmp_path / "file").exists()


@pytest.mark.slow
def test_a_missing_package_is_one_line(adult: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, name, None)
            with pytest.raises(ConfigError, match=rf"needs the package {name} .*fedstride\[export\]"):
                export(load(adult), "onnx", tmp_path / "file")


@pytest.mark.slow
def test_the_command(adult: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "m.onnx"
    adults(9, 50).to_csv(tmp_path / "new.csv", index=False)
    code, said, err = call("export", str(adult), "--to", str(out), "--check", str(tmp_path / "new.csv"))
    assert (code, err) == (0, "")
    assert "4 inputs (n, 1), named as the columns" in said
    assert "largest difference to fedstride predict:" in said and "50 examples" in said
    before = out.read_bytes()
    code, _, err = call("export", str(adult), "--to", str(out))
    assert code == 2 and "is not overwritten" in err and out.read_bytes() == before


@pytest.mark.parametrize(
    ("state", "arguments", "words"),
    [
        ("running", (), "is not finished: it is running"),
        ("interrupted", (), "go on with: fedstride resume"),
        ("completed", ("--format", "onxx"), "Did you mean 'onnx'"),
        ("completed", ("--format", "pmml"), "unknown format 'pmml'"),
        ("completed", ("--check", "absent.csv"), "does not exist"),
    ],
)
def test_refusals(
    adult: Path, tmp_path: Path, call: Call, state: str, arguments: tuple[str, ...], words: str
) -> None:
    for name in ("config.yaml", "task.json", "model.safetensors"):
        (tmp_path / name).write_bytes((adult / name).read_bytes())
    (tmp_path / "status.json").write_text(json.dumps({"state": state, "rounds": 1}))
    code, _, err = call("export", str(tmp_path), "--to", str(tmp_path / "m"), *arguments)
    assert code in (1, 2) and words in err and len(err.strip().splitlines()) == 1
    assert not (tmp_path / "m").exists()


@pytest.mark.slow
def test_images_that_are_no_bytes_need_floats(tmp_path: Path) -> None:
    model = load(play(tmp_path, *SMALL, *KINDS["images"], "name=run", small=False).folder)
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).uniform(0, 255, (5, 1, 28, 28)).astype(np.float32))
    with pytest.raises(DataError, match="--floats"):
        export(model, "torch", tmp_path / "a", tmp_path / "x.npz")
    assert "float32" in export(model, "torch", tmp_path / "b", tmp_path / "x.npz", floats=True).takes


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_a_process_that_has_trained_on_a_gpu_can_export(adult: Path, tmp_path: Path, form: str) -> None:
    """There, torch's switches of precision are as `repeatable` sets them; they can be set without a GPU."""
    switches = (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn)
    before = [switch.fp32_precision for switch in switches]
    try:
        for switch in switches:
            switch.fp32_precision = "ieee"
        export(load(adult), form, tmp_path / form)
        assert [switch.fp32_precision for switch in switches] == ["ieee"] * 3
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.fp32_precision = value


@pytest.mark.slow
def test_every_format_says_how_an_example_is_prepared(adult: Path, tmp_path: Path) -> None:
    model = load(adult)
    for form in FORMATS:
        export(model, form, tmp_path / form)
    said = {"fedstride.json": ""}
    torch.export.load(tmp_path / "torch", extra_files=said)
    assert {*said} == {ABOUT} and json.loads(said[ABOUT])["prepared"] == json.dumps(model.spec.flatten())
    assert onnx_file.run(
        (tmp_path / "onnx").read_bytes(), columns_of(model.spec), np.zeros((1, 4), np.float32)
    ).shape
