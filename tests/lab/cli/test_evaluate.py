"""`fedstride evaluate`: trained models on the rows of sites; nothing is trained, nothing computed anew."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from desk import play
from typer.testing import CliRunner

from fedstride.errors import ConfigError, DataError
from lab.cli.main import app
from lab.comparison.evaluate import measure
from lab.prediction.model import load


def table(path: Path, rows: int, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    ill = rng.random(rows) < 0.4
    made = pd.DataFrame({"dose": rng.normal(size=rows) + 1.5 * ill, "label": np.where(ill, "yes", "no")})
    made.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("runs")
    files = [table(place / f"{name}.csv", 70 + 30 * n, n) for n, name in enumerate(("north", "south"))]
    named = ",".join(f"'{file}'" for file in files)
    common = (
        "task=own_table", "task.columns=[dose]", "task.classes=[no,yes]", "task.metrics=[accuracy,auroc]",
        "partition=own", f"partition.files=[{named}]", "clients=2", "client.batch_size=10", "rounds=2",
        "model=mlp", "model.width=8",
    )  # fmt: skip
    return [
        play(place, *common, f"strategy={name}", f"name={name}", small=False).folder
        for name in ("fedavg", "fednnnn")
    ]


@pytest.mark.slow
def test_the_figures_are_those_of_the_run(runs: list[Path]) -> None:
    models = {folder.name: load(folder) for folder in runs}
    found = measure(models, models["fedavg"].config, all_rows=False)
    assert [at.site for at in found] == ["north", "south", "all"]
    from lab.results.run_folders import load as load_run

    for folder in runs:
        last = load_run(folder).rows[-1]
        assert found[-1].figures[folder.name]["accuracy"].value == pytest.approx(last["local/accuracy"], abs=1e-12)
    assert list(found[0].differences) == [("fedavg", "fednnnn")]


@pytest.mark.slow
def test_all_rows_of_other_sites(runs: list[Path], tmp_path: Path) -> None:
    other = table(tmp_path / "east.csv", 45, 9)
    model = load(runs[0])
    arguments = ["evaluate", str(runs[0]), "--files", str(other), "--all-rows"]
    found = CliRunner().invoke(app, arguments, catch_exceptions=False)
    predicted = model.predict(other)["class"]
    accuracy = 100 * (predicted.to_numpy() == pd.read_csv(other)["label"].to_numpy()).mean()
    assert found.exit_code == 0
    row = next(line.split() for line in found.output.splitlines() if line.strip().startswith("east"))
    assert row[1] == "45"
    assert float(row[2]) == pytest.approx(accuracy, abs=0.05)


@pytest.mark.slow
def test_neither_data_nor_models_change(runs: list[Path]) -> None:
    before = {path: path.read_bytes() for folder in runs for path in folder.rglob("*") if path.is_file()}
    assert CliRunner().invoke(app, ["evaluate", *map(str, runs)]).exit_code == 0
    assert {path: path.read_bytes() for folder in runs for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_what_cannot_be_measured(runs: list[Path], tmp_path: Path) -> None:
    def line(*arguments: str) -> str:
        with pytest.raises((ConfigError, DataError)) as raised:
            CliRunner().invoke(app, ["evaluate", *arguments], catch_exceptions=False)
        return str(raised.value)

    assert "is not the folder of a run" in line(str(tmp_path))
    assert "each folder once" in line(str(runs[0]), str(runs[0]))
    assert "does not exist" in line(str(runs[0]), "--files", str(tmp_path / "none.csv"))
    moved = shutil.copytree(runs[0], tmp_path / "moved/fedavg")
    text = (moved / "config.yaml").read_text()
    (moved / "config.yaml").write_text(text.replace("north.csv", "gone.csv"))
    assert re.search("gone.csv, the file of a site, does not exist on this machine: .*--files", line(str(moved)))
    other = play(tmp_path, "task=breast_cancer", "partition=iid", "rounds=1", "name=cancer").folder
    assert "different tasks" in line(str(runs[0]), str(other))
    assert "--files" in line(str(other))
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("weight,label\n1.0,yes\n2.0,no\n")
    assert "dose" in line(str(runs[0]), "--files", str(wrong), "--all-rows")
    copy = shutil.copytree(runs[0], tmp_path / "copy/fedavg")
    assert CliRunner().invoke(app, ["evaluate", str(runs[0]), str(copy)]).exit_code == 0  # one name, two folders


@pytest.mark.slow
def test_the_first_model_less_the_other_and_no_row_over_one_site(runs: list[Path]) -> None:
    config = load(runs[0]).config
    files = config.partition.files  # type: ignore[attr-defined]
    one = CliRunner().invoke(app, ["evaluate", *map(str, runs), "--files", files[0]])
    assert one.exit_code == 0 and "fedavg − fednnnn" in one.output
    sites = [line.split()[0] for line in one.output.splitlines() if line.strip().startswith(("north", "all"))]
    assert sites == ["north"] * 2 and "ranked together" not in one.output
    both = CliRunner().invoke(app, ["evaluate", *map(str, runs)])
    assert both.output.count("all: the rows of all sites are ranked together") == 1  # of AUROC
    alone = CliRunner().invoke(app, ["evaluate", str(runs[0])])
    assert "ranked together" not in alone.output  # there is no difference


@pytest.mark.slow
def test_all_rows_of_a_site_of_training_are_said_to_be(runs: list[Path], tmp_path: Path) -> None:
    files = load(runs[0]).config.partition.files  # type: ignore[attr-defined]
    link, own = tmp_path / "link.csv", tmp_path / "site.toml"
    link.symlink_to(files[0])
    own.write_text(f'path = "{files[1]}"\n')
    other = table(tmp_path / "east.csv", 45, 9)

    def output(*arguments: str) -> str:
        return " ".join(CliRunner().invoke(app, ["evaluate", str(runs[0]), *arguments]).output.split())

    for given in (files[0], str(link), str(own), f"{other},{files[1]}"):
        text = output("--files", given, "--all-rows")
        assert "note: /" in text and ": a model was trained on rows that are measured here" in text
        assert f"fedstride evaluate {runs[0]}" in text
    assert "note: " in output("--all-rows")
    for arguments in (["--files", str(other), "--all-rows"], ["--files", files[0]], []):
        assert "trained on" not in output(*arguments)


@pytest.mark.slow
def test_the_file_of_the_model_stands_for_its_folder(runs: list[Path], tmp_path: Path) -> None:
    def output(*arguments: str) -> str:
        found = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert found.exit_code == 0
        return found.output

    file = str(runs[0] / "model.safetensors")
    assert output("evaluate", file) == output("evaluate", str(runs[0]))
    assert output("evaluate", str(runs[0] / "best.safetensors"), "--best")
    assert load(file).folder == runs[0]
    data = str(table(tmp_path / "east.csv", 20, 9))
    assert "20 predictions" in output("predict", file, data, "-o", str(tmp_path / "made.csv"))
    assert "largest difference" in output("export", file, "--to", str(tmp_path / "model.pt2"), "--format", "torch")
    for wrong in ("best.safetensors", "metrics.jsonl"):
        with pytest.raises(ConfigError, match=f"{wrong} is not the model of the last round.*name the run"):
            load(runs[0] / wrong)
    with pytest.raises(ConfigError, match=r"east.csv is a file, not the folder of a run: name the folder"):
        load(data)
