"""The example of four hospitals: the published tables as they are, or tables of that form that the test makes."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from desk import play
from heart_tables import EXAMPLE, PUBLISHED, SITES, WHERE, data_files, published, tables

from lab.comparison.page import PAGE
from lab.prediction.model import load


@pytest.fixture(params=["as made here", "as published"])
def sites(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    as_published = request.param == "as published"
    if as_published and not PUBLISHED.is_dir():
        pytest.skip(WHERE)
    tables(tmp_path, as_published)
    return data_files(tmp_path)


@pytest.mark.slow
def test_four_hospitals_learn_together_and_the_model_is_used(sites: list[Path], tmp_path: Path) -> None:
    files = ",".join(f"'{site}'" for site in sites)
    outcome = play(
        tmp_path, f"parts={EXAMPLE / 'heart.py'}", "task=heart", "model=mlp", "task.metrics=[auroc]", "rounds=10",
        "clients=4", "partition=own", f"partition.files=[{files}]", "client.batch_size=16", "name=heart",
        small=False,
    )  # fmt: skip
    assert outcome.rows[-1]["local/auroc"] > 0.75
    found = load(outcome.folder).predict(sites[1])
    text = sites[1].with_name("processed.hungarian.data").read_text()
    assert len(found) == len(text.splitlines())
    assert found["p(yes)"].between(0, 1).all()


README = (EXAMPLE / "README.md").read_text()
SUMS = dict(reversed(line.split("  ")) for line in re.findall(r"^[0-9a-f]{64}  \S+$", README, re.MULTILINE))


@published
def test_the_files_are_those_of_the_page() -> None:
    assert list(SUMS) == [f"processed.{name}.data" for name in SITES]
    for name, digest in SUMS.items():
        assert hashlib.sha256((PUBLISHED / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("variable", [True, False])
def test_the_first_command_copies_the_files(tmp_path: Path, variable: bool) -> None:
    """From the folder that the variable names, else from the working directory."""
    (command,) = re.findall(r"^cp .*$", README, re.MULTILINE)
    clone = tmp_path / "a clone"
    shutil.copytree(EXAMPLE, clone / "examples/heart", ignore=shutil.ignore_patterns("*.data", "__pycache__"))
    folder = tmp_path / "data sets/heart-disease" if variable else clone
    folder.mkdir(parents=True, exist_ok=True)
    tables(folder, as_published=False)
    env = {key: value for key, value in os.environ.items() if key != "FEDSTRIDE_DATA"}
    env |= {"FEDSTRIDE_DATA": str(folder.parent)} if variable else {}
    subprocess.run(["bash", "-c", command], cwd=clone, env=env, check=True)
    for name in SUMS:
        assert (clone / "examples/heart/sites" / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize(
    ("of_variable", "beside", "chosen"),
    [(4, 4, "variable"), (4, 0, "variable"), (3, 4, "sites"), (0, 4, "sites"), (None, 4, "sites"), (0, 0, None)],
)
def test_where_the_deployment_takes_the_files(
    tmp_path: Path, of_variable: int | None, beside: int, chosen: str | None
) -> None:
    """From the folder of the variable if it has all four, else from sites; without either it says what to do."""
    script = tmp_path / "heart"
    shutil.copytree(EXAMPLE, script, ignore=shutil.ignore_patterns("*.data", "__pycache__"))
    places = {"variable": tmp_path / "data/heart-disease", "sites": script / "sites"}
    places["variable"].mkdir(parents=True)
    for place, count in ((places["variable"], of_variable or 0), (places["sites"], beside)):
        for name in list(SUMS)[:count]:
            (place / name).write_text("")
    env = {key: value for key, value in os.environ.items() if key != "FEDSTRIDE_DATA"}
    env |= {} if of_variable is None else {"FEDSTRIDE_DATA": str(tmp_path / "data")}
    given = "import deploy; print(deploy.published())" if chosen else "import deploy; deploy.main()"
    done = subprocess.run(
        [sys.executable, "-B", "-c", given, str(tmp_path / "trial")],
        cwd=script, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if chosen:
        assert done.stdout.strip() == str(places[chosen])
    else:
        assert done.returncode == 2 and "or set FEDSTRIDE_DATA to the folder in which heart-disease" in done.stderr


def rows_of(page: str) -> list[list[str]]:
    """The cells of the tables of a comparison, without the heads and the names of the sites."""
    return [line.split("|")[2:-1] for line in page.splitlines() if re.match(r"\| [^|]+\| \d+ \|", line)]


@pytest.mark.slow
@pytest.mark.timeout(600)  # 90 short trainings
@published
def test_the_tables_of_the_page_are_those_of_its_command(tmp_path: Path) -> None:
    """Both figures at all sites, with their intervals."""
    copied = shutil.copytree(EXAMPLE, tmp_path / "heart", ignore=shutil.ignore_patterns("*.data", "__pycache__"))
    for name in SUMS:
        shutil.copy(PUBLISHED / name, copied / "sites" / name)
    (command,) = re.findall(r"^fedstride (compare .*?--folds 5)$", README, re.MULTILINE | re.DOTALL)
    subprocess.run(
        [sys.executable, "-m", "lab.cli.main", *shlex.split(command.replace("\\\n", "")), "--out", "out"],
        cwd=copied, env=os.environ | {"ATEN_CPU_CAPABILITY": "avx2"}, check=True, capture_output=True, timeout=580,
    )  # fmt: skip
    section = README.partition("## What the hospitals get together")[2].partition("## Deployed")[0]
    assert len(rows_of(section)) == 10 and rows_of(section) == rows_of((copied / "out" / PAGE).read_text())
