"""The model card that each run writes: its facts are those of the records; no text of others becomes markup."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from desk import StopAfter, play, whole_and_resumed

from client_app.app import app
from fedstride.arrays.named import to_record
from fedstride.tasks.models.tensors import to_arrays
from lab.attacks.membership import audit
from lab.engine.engine import engine
from lab.prediction.model import load
from server_app import preparation, session
from server_app.config.compose import compose
from server_app.records.line_files import read_lines
from server_app.reports.model_card import MOST_SITES, NOT_STATED, NOT_TESTED, CardFacts, written
from server_app.reports.sites import SiteRecord, Sites

CARD = "MODEL_CARD.md"


def hospitals(out: Path, sizes: tuple[int, ...], *overrides: str) -> Path:
    """The folder of a run at sites of these sizes."""
    rng = np.random.default_rng(3)
    files = []
    for k, size in enumerate(sizes):
        x = rng.normal(size=size).round(3)
        ill = np.where(x + rng.normal(0, 0.7, size) > 0, "yes", "no")
        files.append(out / f"ward-{k}.csv")
        pd.DataFrame({"x": x, "ill": ill}).to_csv(files[-1], index=False)
    named = ",".join(f"'{file}'" for file in files)
    return play(
        out, "task=own_table", "task.columns=['x']", "task.target=ill", "task.classes=['no','yes']",
        "task.metrics=['auroc','accuracy']", "model=mlp", "partition=own", f"partition.files=[{named}]",
        f"clients={len(sizes)}", "rounds=3", "name=wards", *overrides, small=False,
    ).folder  # fmt: skip


def section(text: str, name: str) -> str:
    return text.partition(f"## {name}\n\n")[2].partition("\n## ")[0]


@pytest.mark.slow
def test_the_facts_are_those_of_the_records(tmp_path: Path) -> None:
    folder = hospitals(tmp_path, (120, 60, 9), "licence='CC BY 4.0'", "client.lr=0.02")
    text = (folder / CARD).read_text()
    last = [row for row in read_lines(folder / "clients.jsonl") if row["round"] == 3]
    rows = sum(row["num-examples"] for row in last)
    assert f"{rows} rows of 3 sites" in section(text, "Trained on")
    table = [line.split(" | ") for line in section(text, "Figures").splitlines() if line.startswith("| ")]
    assert [cells[0] for cells in table[2:]] == ["| 0 (ward-0)", "| 1 (ward-1)", "| 2 (ward-2)"]
    for cells, row in zip(table[2:], last, strict=True):
        assert cells[1:4] == [str(row["num-examples"]), str(row["local/num-examples"]), "3 of 3"]
        assert f"{100 * row['local/accuracy']:.2f} % (" in cells[-1]
    assert rows + sum(row["local/num-examples"] for row in last) == 189
    assert "2 (ward-2): " in section(text, "Figures").partition("too few rows to judge")[2]
    assert section(text, "Licence").strip() == "CC BY 4.0"
    assert "- `client.lr=0.02`" in section(text, "Settings") and "client.momentum" not in text
    assert "the classes no, yes" in text and "The run is completed." in text
    assert "smallest site that was measured, 2 (ward-2): AUROC" in section(text, "Membership")  # it was asked


@pytest.mark.slow
def test_a_resumed_run_has_the_card_of_a_whole_one(tmp_path: Path) -> None:
    whole, resumed = whole_and_resumed(tmp_path, "rounds=4", "evaluate_clients=true")
    texts = [(folder / CARD).read_text() for folder in (whole, resumed)]
    assert texts[0] == texts[1].replace("Model card: part", "Model card: whole")
    assert "4 of 4" in section(texts[0], "Figures") and NOT_STATED in texts[0]


def test_a_run_that_ended_early_says_so(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, "rounds=5", "name=part", observers=[StopAfter(2)])
    text = (tmp_path / "part" / CARD).read_text()
    assert "The run is interrupted." in text and "in 2 of 5 rounds" in text
    assert "the run is not completed" in section(text, "Membership")


def facts(sites: list[SiteRecord], licence: str | None = None) -> CardFacts:
    config = compose([] if licence is None else [f"licence='{licence}'"])
    return CardFacts("a|b", config, None, {"round": 1}, sites, "completed", 7, NOT_TESTED)


@pytest.mark.parametrize(
    "name", ["a | b", "[x](http://evil)", "<script>", "two\nlines", "# head", "`code`", "*b*_i_"]
)
def test_names_do_not_become_markup(name: str) -> None:
    found = Sites(compose([]))
    found.add([{"round": 1, "client": name, "status": "used", "num-examples": 3}])
    text = written(facts(found.all, licence="<b>"))
    (line,) = [line for line in text.splitlines() if line.startswith("| ") and "1 of 1" in line]
    assert len(re.findall(r"(?<!\\)\|", line)) == 5
    assert not re.search(r"(?<!\\)[\[\]<>`*_#]", line)
    assert "\\<b\\>" in text


def test_a_file_of_parts_has_its_name_and_no_place() -> None:
    known = facts([])
    text = written(replace(known, config=replace(known.config, parts="/tmp/apps/localhost:9/own_parts/heart.py")))
    assert "- `parts=heart.py`" in text and "localhost" not in text


def test_how_to_get_the_other_intervals() -> None:
    assert "`fedstride evaluate FOLDER`" in section(written(facts([])), "Figures")


def test_many_sites_are_counted() -> None:
    found = Sites(compose([]))
    found.add([{"round": 1, "client": k, "status": "used", "num-examples": 5} for k in range(MOST_SITES + 7)])
    text = written(facts(found.all))
    assert text.count("1 of 1") == MOST_SITES and "7 more sites" in text and f"{5 * (MOST_SITES + 7)} rows" in text


def membership_of(folder: Path, *overrides: str) -> str:
    """The card of a run with the test of the desk."""
    prepared = preparation.prepare(compose([f"out='{folder}'", *overrides]))
    with engine(app, prepared, 0) as desk:
        grid = desk.grid(prepared)
        outcome = session.run(grid, prepared, on_folder=grid.keep_client_states_in, audit=audit)
    return section((outcome.folder / CARD).read_text(), "Membership")


SMALL = ("model=mlp", "clients=3", "client.batch_size=20", "partition=iid")


def area(text: str) -> float:
    found = re.search(r"AUROC (\d\.\d+) \((\d\.\d+) to (\d\.\d+)\)", text)
    assert found, text
    low, high = float(found[2]), float(found[3])
    assert low <= float(found[1]) <= high
    return float(found[1])


def by_chance(out: Path, rows: int) -> tuple[str, ...]:
    """A task at two sites whose labels are drawn: whoever is right about a row has seen it."""
    rng = np.random.default_rng(5)
    columns = [f"c{k}" for k in range(40)]
    for site in range(2):
        table = pd.DataFrame(rng.normal(size=(rows, 40)).round(4), columns=columns)
        table["y"] = rng.integers(0, 2, rows)
        table.to_csv(out / f"{site}.csv", index=False)
    return (
        "task=own_table", f"task.columns=[{','.join(columns)}]", "task.target=y", "task.classes=['0','1']",
        "model=mlp", "partition=own", f"partition.files=['{out}/0.csv','{out}/1.csv']", "clients=2",
        "client.batch_size=10", "holdout=0.4", "strategy=fedavg",
    )  # fmt: skip


@pytest.mark.slow
def test_a_model_that_knows_its_rows_by_heart_is_found(tmp_path: Path) -> None:
    task = by_chance(tmp_path, 90)
    learnt = membership_of(tmp_path, "name=learnt", *task, "rounds=6", "client.local_epochs=20", "client.lr=0.2")
    assert "that it held out" in learnt and area(learnt) > 0.8
    fresh = membership_of(tmp_path, "name=fresh", *task, "rounds=1", "client.local_steps=1", "client.lr=0.001")
    assert 0.3 < area(fresh) < 0.7


def test_without_held_out_rows_the_test_set_is_what_was_not_used(tmp_path: Path) -> None:
    found = membership_of(tmp_path, *SMALL, "rounds=1", "client.local_steps=1", "name=x")
    assert "1000 training rows against 1000 rows of the test set" in found and abs(area(found) - 0.5) < 0.05


def test_of_two_smallest_sites_the_first_is_tested() -> None:
    """As the server of a deployed run asks it."""
    sites = Sites(compose([]))
    sites.add({"round": 1, "client": client, "status": "used", "num-examples": 5} for client in (10, 9, 11))
    assert sites.smallest == 9


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(50, 20), (20, 35, 90)])
def test_the_smallest_site_is_tested(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    model = load(hospitals(tmp_path, sizes))
    smallest = int(np.argmin(sizes))
    found = audit(model.config, model.spec, to_record(to_arrays(model.network)), smallest)
    trained, held = map(int, re.findall(r"of (\d+) training rows against (\d+) rows", found)[0])
    assert trained + held == sizes[smallest] and f"smallest site, {smallest} (ward-{smallest}):" in found


@pytest.mark.slow
def test_an_audit_that_fails_is_said_and_costs_nothing(tmp_path: Path) -> None:
    def broken(*_: object) -> str:
        raise OSError("no | rows\nhere")

    prepared = preparation.prepare(compose([*SMALL, "rounds=1", f"out='{tmp_path}'", "name=x"]))
    with engine(app, prepared, 0) as desk:
        grid = desk.grid(prepared)
        outcome = session.run(grid, prepared, on_folder=grid.keep_client_states_in, audit=broken)
    assert "Not tested: OSError: no \\| rows\n" in (outcome.folder / CARD).read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["privacy=server_side", "privacy.delta=1e-4"], r"are \(8\.07, 0\.0001\)-differentially private"),
        (
            ["privacy=local", "evaluate_clients=false", "best=null"],
            r"With `privacy=local`.* are \(9\.01, 1e-05\)",
        ),
        (["privacy=server_side", "privacy.noise_multiplier=0"], "no noise was added: nothing is promised"),
    ],
)
def test_what_was_spent(tmp_path: Path, given: list[str], said: str) -> None:
    folder = play(tmp_path, "rounds=3", "name=private", *given).folder
    assert re.search(said, section((folder / CARD).read_text(), "Privacy"))


def test_without_privacy_nothing_is_said_of_it(tmp_path: Path) -> None:
    assert "## Privacy" not in (play(tmp_path, "rounds=1", "name=open").folder / CARD).read_text()
