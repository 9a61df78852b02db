"""`fedstride.compare`: the numbers of the command, as tables."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedstride
from fedstride.errors import ConfigError
from lab.cli.main import app
from lab.comparison import whole_comparison
from lab.comparison.comparison_folder import ROWS


@pytest.fixture(autouse=True)
def _folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSTRIDE_RUNS", raising=False)


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Any]:
    """Three sites, of which the last one has too few rows to say anything."""
    for place, rows in enumerate((90, 70, 30)):
        rng = np.random.default_rng(place)
        ill = rng.random(rows) < 0.5
        dose = np.round(rng.normal(size=rows) + ill, 3)
        pd.DataFrame({"dose": dose, "label": np.where(ill, "yes", "no")}).to_csv(f"{place}.csv", index=False)
    return {
        "task": "own_table", "task.columns": ("dose",), "task.classes": ("no", "yes"),
        "task.metrics": ("auroc", "accuracy"), "model": "mlp", "model.width": 8, "client.batch_size": 10,
        "partition": "own", "partition.files": tuple(f"{place}.csv" for place in range(3)), "clients": 3,
        "rounds": 2,
    }  # fmt: skip


def typed(keys: Mapping[str, Any]) -> list[str]:
    return [f"{key}=[{','.join(v)}]" if isinstance(v, tuple) else f"{key}={v}" for key, v in keys.items()]


def same(table: pd.DataFrame, names: list[str], cells: Mapping[tuple[Any, ...], Mapping[str, Any]]) -> None:
    """Each row has the numbers of the command's file, and there is no other row."""
    assert len(table) == len(cells)
    for row in table.to_dict("records"):
        cell = cells[tuple(row[name] for name in names)]
        for name in ("value", "low", "high", "spread"):
            assert row[name] == cell[name] or (cell[name] is None and not math.isfinite(row[name])), row


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "options"),
    [
        ({"strategy": ["fedavg", "fednnnn"], "seeds": [4, 7]}, ["strategy=fedavg,fednnnn", "--seeds", "4,7"]),
        ({"strategy": "fedavg", "seeds": [2], "folds": 2}, ["strategy=fedavg", "--seeds", "2", "--folds", "2"]),
        (
            {"strategy": "fednnnn", "strategy.beta": [0.5, 0.9], "seeds": (1,)},
            ["strategy=fednnnn", "strategy.beta=0.5,0.9", "--seeds", "1"],
        ),
    ],
)
def test_it_has_the_numbers_of_the_command(
    keys: dict[str, Any], how: dict[str, Any], options: list[str], tmp_path: Path
) -> None:
    named = {key: how.pop(key) for key in [*how] if "." in key}
    found = fedstride.compare({**keys, **named}, **how, out="here", jobs=2)
    done = CliRunner().invoke(app, ["compare", *typed(keys), *options, "--out", str(tmp_path / "there")])
    assert done.exit_code == 0, done.output
    said = json.loads((tmp_path / "there/comparison.json").read_text())
    assert json.loads((found.folder / "comparison.json").read_text()) == said
    figures = {
        (each["site"], column, name): cell
        for each in said
        for column, cells in each["figures"].items()
        for name, cell in cells.items()
    }
    same(found.figures, ["site", "column", "figure"], figures)
    differences = {
        (each["site"], *pair.split(" - "), name): cell
        for each in said
        for pair, cells in each["differences"].items()
        for name, cell in cells.items()
    }
    same(found.differences, ["site", "column", "against", "figure"], differences)
    for table in (found.figures, found.differences):
        enough = {(each["site"], name): known for each in said for name, known in each["enough"].items()}
        assert {(r["site"], r["figure"]): r["enough"] for r in table.to_dict("records")} == enough
        assert dict(zip(table["site"], table["rows"], strict=True)) == {
            each["site"]: each["rows"] for each in said
        }
    assert found.page.is_file() and not (found.folder / ROWS).exists()
    assert str(found).partition("\n")[0].strip() in done.output
    assert all(note in done.output and note in str(found) for note in found.notes)
    assert "<table>" in found._repr_html_()


PROGRAM = """
import json, sys
import fedstride


@fedstride.part(strategy="kept")
class Kept(fedstride.FedAvg):
    \"\"\"FedAvg with another name.\"\"\"


if __name__ == "__main__":
    keys = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(sys.argv[1]).items()}
    found = fedstride.compare(keys, strategy=["kept", "fedavg"], seeds=[1], out="out")
    of = found.figures.set_index(["site", "column", "figure"])["value"]
    print(of["all", "kept", "auroc"] == of["all", "fedavg", "auroc"])
"""


@pytest.mark.slow
def test_a_part_of_the_program_itself_is_compared(keys: dict[str, Any]) -> None:
    Path("program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", json.dumps(keys)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr
    (file,) = Path("runs/parts").glob("cells_*.py")
    assert "class Kept" in file.read_text()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seeds": []}, "seeds"),
        ({"seeds": [3, 3]}, "different whole numbers"),
        ({"folds": 1}, "folds"),
        ({"folds": 101}, "from 2 to 100"),
        ({"jobs": 0}, "jobs"),
        ({"strategy": ["fedavg", "fedavg"]}, "twice"),
        ({"strategy": "fedavgg"}, "fedavg"),
        ({"task.metrics": ["auroc", "accuracy"]}, "a tuple is one value"),
        ({"partition.files": ["0.csv", "1.csv", "2.csv"]}, "a tuple is one value"),
        ({"out": "full"}, "new or empty"),
    ],
)
def test_what_is_not_allowed_is_refused_before_anything_is_made(
    keys: dict[str, Any], given: dict[str, Any], said: str
) -> None:
    Path("full").mkdir()
    Path("full/file").touch()
    before = sorted(Path().rglob("*"))
    options = {key: given[key] for key in given if key in ("seeds", "folds", "jobs", "out")}
    named = {key: value for key, value in given.items() if key not in options}
    with pytest.raises(ConfigError, match=said) as caught:
        fedstride.compare({**keys, **named}, **options)
    assert "\n" not in str(caught.value)
    assert sorted(Path().rglob("*")) == before


@pytest.mark.slow
def test_a_comparison_that_is_stopped_leaves_no_copy_of_a_row_and_goes_on(
    keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*arguments: Any) -> None:
        raise KeyboardInterrupt

    said = r"go on with the same call, resume=True and out=.*stopped"
    with monkeypatch.context() as patch:
        patch.setattr(whole_comparison, "measure", stopped)
        with pytest.raises(KeyboardInterrupt, match=said):
            fedstride.compare(keys, seeds=[1], out="stopped")
    assert not Path("stopped", ROWS).exists() and Path("stopped/runs").is_dir()
    whole = fedstride.compare(keys, seeds=[1], out="whole")
    found = fedstride.compare(keys, seeds=[1], out="stopped", resume=True)
    pd.testing.assert_frame_equal(found.figures, whole.figures)
