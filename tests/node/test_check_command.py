"""`fedstride node-check`: what a node's own files allow, in words, and whether its data can be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedstride.errors import ConfigError
from node.check_command import run
from node.policy import in_words
from node.policy.policy_file import Policy, read_data

CSV = "name,age,sex,ill\n" + "".join(f"P{n},{40 + n},{'male' if n % 2 else 'female'},no\n" for n in range(50))
TOML = """
path = "patients.csv"
id = "name"
targets = ["ill"]

[columns]
age = { least = 0, most = 120, whole = true, empty = true }
sex = ["female", "male"]
ill = ["no", "yes"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    (tmp_path / "patients.csv").write_text(CSV)
    (tmp_path / "data.toml").write_text(TOML)
    (tmp_path / "policy.toml").write_text('min_rows = 10\nmetrics = ["accuracy"]\n')
    return tmp_path


def arguments(folder: Path) -> list[str]:
    files = f'data="{folder / "data.toml"}" policy="{folder / "policy.toml"}" state="{folder / "states"}"'
    return ["--superlink", "127.0.0.1:1", "--insecure", "--allow-root", "--node-config", files]


def said(folder: Path) -> list[str]:
    lines: list[str] = []
    run(arguments(folder), lines.append)
    return lines


@pytest.mark.slow
def test_what_is_allowed_and_that_the_data_can_be_read(folder: Path) -> None:
    lines = said(folder)
    assert "column age: a whole number from 0 to 120, or empty" in lines
    assert "column ill: one of no, yes; may be predicted" in lines
    assert "figures of held-out rows that may leave: accuracy, and the loss" in lines
    assert lines[-1] == "the data: 50 rows, all as the data file says"


@pytest.mark.slow
def test_it_removes_nothing_of_a_node_that_runs(folder: Path) -> None:
    """The folder in which an app of the running node works."""
    scratch = folder / "home/node-scratch/4711-0a1b2c3d/1"
    scratch.mkdir(parents=True)
    (scratch / "work").write_text("of the other node")
    assert said(folder)[-1] == "the data: 50 rows, all as the data file says"
    assert (scratch / "work").read_text() == "of the other node"


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "ids", "what"), [(7, 7, "rows"), (40, 9, "ids")])
def test_that_a_site_with_few_rows_will_refuse_is_said(folder: Path, rows: int, ids: int, what: str) -> None:
    cells = "".join(f"P{n % ids},{40 + n},male,no\n" for n in range(rows))
    (folder / "patients.csv").write_text("name,age,sex,ill\n" + cells)
    last = said(folder)[-1]
    assert last.startswith(f"the data: below 10 {what}, all as the data file says; this node will refuse to train")
    assert last.endswith(f"min_rows = 10: add {what}, or lower min_rows in the file of the policy")
    assert str(ids) not in last.replace("10", "")


@pytest.mark.slow
@pytest.mark.parametrize("rows", [7, 50])
def test_a_node_says_so_too_when_it_starts(folder: Path, rows: int) -> None:
    """And no number; a node with enough rows says nothing of them. No SuperLink is at this address."""
    (folder / "patients.csv").write_text(CSV[: CSV.index(f"P{rows},")] if rows < 50 else CSV)
    command = [sys.executable, "-m", "lab.cli.main", "node", *arguments(folder)]
    text = subprocess.run(command, capture_output=True, text=True, timeout=100).stderr
    assert "cannot join the SuperLink" in text
    few = [line for line in text.splitlines() if "this node will refuse to train" in line]
    assert len(few) == (1 if rows < 10 else 0)
    assert all("the data: below 10 rows" in line and str(rows) not in line.replace("10", "") for line in few)


@pytest.mark.slow
def test_what_cannot_be_read_is_said_with_line_and_column(folder: Path) -> None:
    (folder / "patients.csv").write_text(CSV + "P50,-1,male,no\nP51,200,male,no\n")
    with pytest.raises(ConfigError, match=r"column 'age': 2 cells; the first: .*line 52, column 'age': '-1'"):
        said(folder)


def test_in_words(folder: Path) -> None:
    site = read_data(folder / "data.toml")
    policy = Policy(
        hours=(1200, 360), clipping_norm=1.0, noise_multiplier=2.0, records=(), tasks=("blood",), cpu_seconds=5
    )
    lines = list(in_words.lines(policy, site, ["study"]))
    assert "apps: those that a key of these has signed: study" in lines and "tasks: blood" in lines
    assert "records that may leave beside model and metrics: none" in lines
    assert (
        "updates: cut to a length of 1, with noise of 2 times that; nothing leaves that this does not protect"
        in lines
    )
    assert "hours: from 20:00 to 06:00, this machine's time" in lines
    assert any(line.endswith(f"which rows, the secret {folder / 'data.secret'} decides") for line in lines)
    plain = list(in_words.lines(Policy(raw_data=True), None, None))
    assert "apps: any, signed or not" in plain and "runs: any, signed or not" in plain
    asks = Policy(signers={"study": folder / "study.pub"}, members=folder / "nodes.pub", approve="ask")
    (runs,) = (line for line in in_words.lines(asks, site, None) if line.startswith("runs: "))
    assert "apps: those that a signed run names" in list(in_words.lines(asks, site, None))
    assert "signed: study" in runs and f"than those in {folder / 'nodes.pub'}" in runs and "node-approve" in runs
    assert "updates: as they are" in plain
    what = "a description of the data (fedstride check):"
    assert f"{what} may not be asked" in plain
    says = list(in_words.lines(Policy(description=True, min_rows=7), site, None))
    assert f"{what} may be asked; each bin, class and share of it has at least 7 rows" in says
    noisy = Policy(description=True, clipping_norm=1.0, noise_multiplier=2.0)
    assert f"{what} may not be asked, since no noise protects it" in list(in_words.lines(noisy, site, None))
    what = "a membership test of the training rows (model card):"
    assert f"{what} may not be asked" in plain
    (says,) = (line for line in in_words.lines(Policy(membership=True, min_rows=7), site, None) if what in line)
    assert "may be asked; " in says and says.endswith("of at least 7 of each")
    noisy = Policy(membership=True, clipping_norm=1.0, noise_multiplier=2.0)
    assert f"{what} may not be asked, since no noise protects it" in list(in_words.lines(noisy, site, None))
