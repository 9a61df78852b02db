"""examples/heart/deploy.py: four hospitals with TLS, keys, policies and signed runs; and what is left of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import play, weights
from heart_tables import EXAMPLE, PUBLISHED, SITES, data_files, tables
from processes import until

from lab.results.run_folders import load
from node.keys import public_key
from node.log.verification import read

pytestmark = pytest.mark.slow

ROUNDS = 2
CHOSEN = (
    "task=heart", "model=mlp", "task.metrics=[auroc,accuracy]", "clients=4",
    "partition=own", "client.batch_size=25", f"rounds={ROUNDS}", "name=heart",
)  # fmt: skip


class Trial:
    """The script in a folder, started by a user with an empty home, in an empty folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder, self.files, self.script = root, root / "trial", root / "files", root / "example"
        self.empty = [root / name for name in ("home", "temporary", "here")]
        for folder in (self.files, *self.empty):
            folder.mkdir()
        tables(self.files, as_published=PUBLISHED.is_dir())
        shutil.copytree(EXAMPLE, self.script, ignore=shutil.ignore_patterns("__pycache__"))

    def start(self) -> subprocess.Popen[str]:
        home, temporary, here = map(str, self.empty)
        env = os.environ | {"HOME": home, "TMPDIR": temporary, "FEDSTRIDE_RUNS": str(self.root / "runs")}
        given = ["--files", str(self.files), "--rounds", str(ROUNDS), *["--allow-root"] * (os.geteuid() == 0)]
        return subprocess.Popen(
            [sys.executable, str(self.script / "deploy.py"), str(self.folder), *given], cwd=here, env=env,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def processes(self) -> list[str]:
        """The command lines of processes that are in the folder, or have it in their environment."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                inside = Path(os.readlink(entry / "cwd")).is_relative_to(self.folder)
                if inside or str(self.folder).encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
        return found

    def nothing_is_left(self) -> None:
        """No process, and no file that is not in the folder. A ServerApp writes how it ended, and ends itself."""
        until(lambda: None if self.processes() else True, "end of all processes", 60.0)
        assert [list(folder.iterdir()) for folder in self.empty] == [[], [], []]
        assert not (self.root / "runs").exists()


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    trial = Trial(tmp_path)
    before = sorted(trial.script.rglob("*"))
    yield trial
    assert sorted(trial.script.rglob("*")) == before


def test_four_hospitals_are_deployed_by_one_command(trial: Trial) -> None:
    process = trial.start()
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    trial.nothing_is_left()

    desk = trial.folder / "desk"
    run = load(desk / "runs/heart")
    assert run.completed and run.rows[-1]["round"] == ROUNDS
    last = [row for row in run.clients.rows if row["round"] == ROUNDS]
    assert [(row["client"], row["status"]) for row in last] == [(site, "used") for site in SITES]
    for page in ("check.html", "report.html"):
        assert (desk / page).is_file() and str(desk / page) in said
    for site in SITES:
        log = trial.folder / site / ".flwr/node-log.jsonl"
        rows = read(log, [public_key(trial.folder / site / f"keys/{site}.pub")]).rows
        answered = [(row["task"], row.get("round")) for row in rows if row["event"] == "answered"]
        assert ("train", ROUNDS) in answered and ("evaluate", ROUNDS) in answered
        assert [row["reason"] for row in rows if row["event"] == "refused"] == ["code 901: it has no signature"]

    assert weights(desk / "runs/heart") == weights(in_process(trial, desk / "runs/heart"))


def in_process(trial: Trial, deployed: Path) -> Path:
    """The folder of the same run in this process, with the mean and deviation of columns that the nodes said."""
    spec = json.loads((deployed / "task.json").read_text())
    parts = trial.root / "heart_in_process.py"
    given = f'missing="mean", mean={spec["spec.mean"]}, std={spec["spec.std"]}'
    parts.write_text((EXAMPLE / "heart.py").read_text().replace('missing="mean"', given))
    files = ",".join(f"'{file}'" for file in data_files(trial.files))
    return play(trial.root / "local", f"parts={parts}", *CHOSEN, f"partition.files=[{files}]", small=False).folder


@pytest.mark.parametrize(
    ("after", "sent"),
    [("$ fedstride register", signal.SIGINT), ("$ fedstride nodes", signal.SIGTERM), ("round   0", signal.SIGINT)],
)
def test_a_trial_that_is_stopped_leaves_no_process(trial: Trial, after: str, sent: signal.Signals) -> None:
    process = trial.start()
    assert process.stdout is not None
    assert any(after in line for line in process.stdout)
    os.killpg(process.pid, sent)
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 130, said
    assert "Traceback" not in said
    trial.nothing_is_left()


@pytest.mark.parametrize("site", ["cleveland", "va"])
def test_a_table_that_does_not_fit_ends_the_trial_with_line_and_column(trial: Trial, site: str) -> None:
    file = trial.files / f"processed.{site}.data"
    first, _, rest = file.read_text().partition("\n")
    file.write_text(f"seven,{first.partition(',')[2]}\n{rest}")
    process = trial.start()
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 1, said
    assert "column 'age'" in said.splitlines()[-2] + said.splitlines()[-1], said
    trial.nothing_is_left()


def test_what_cannot_begin_is_refused_before_anything_is_made(trial: Trial) -> None:
    (trial.files / "processed.va.data").unlink()
    process = trial.start()
    said, _ = process.communicate(timeout=60)
    assert (process.returncode, said.splitlines()[-1].count("processed.va.data")) == (2, 1)
    assert not trial.folder.exists()
    (trial.files / "processed.va.data").write_text("")
    trial.folder.mkdir()
    process = trial.start()
    said, _ = process.communicate(timeout=60)
    assert (process.returncode, f"{trial.folder} exists" in said) == (2, True)
