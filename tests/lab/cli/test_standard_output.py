"""`-` as the file to write: text is printed, all else is refused, and no file with this name is made."""

from __future__ import annotations

from pathlib import Path

import pytest
from desk import play
from folders import Call

from lab.report.page import GENERATOR


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run."""
    return play(tmp_path_factory.mktemp("runs"), "rounds=1", "name=run").folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


CHECKED = ("model=mlp", "clients=2", "partition=iid")


@pytest.mark.slow
def test_a_page_is_printed_alone(call: Call, here: Path, folder: Path) -> None:
    for command in (["report", folder], ["check", "task=breast_cancer", *CHECKED]):
        code, out, err = call(*command, "-o", "-")
        assert code == 0, err
        assert out.lstrip().lower().startswith("<!doctype html") and out.rstrip().endswith("</html>")
        assert f'content="{GENERATOR}"' in out
        file = here / f"{command[0]}.html"
        assert call(*command, "-o", file)[0] == 0
        assert len(file.read_text()) == pytest.approx(len(out), rel=0.01)
        file.unlink()
    assert "breast_cancer" in err and list(here.iterdir()) == []


REFUSED = [
    (("report", "RUN", "--live", "-o", "-"), "--output - is not possible: a page that is written again"),
    (("plot", "accuracy", "RUN", "-o", "-"), "--output - is not possible: a plot is not printed"),
    (("partition", "-o", "-"), "--output - is not possible: a plot"),
    (
        ("partition", "--save", "-"),
        "--save - is not possible: a folder is not printed; name a file or folder, as in ./NAME",
    ),
    (("export", "RUN", "--to", "-"), "--to - is not possible: a model is not printed"),
    (("export", "RUN", "--format", "safetensors", "--to", "-"), "--to - is not possible"),
    (("compare", "task=breast_cancer", "--out", "-"), "--out - is not possible"),
    (("reproduce", "fednnnn/table2", "--out", "-", "--dry-run"), "--out - is not possible"),
    (("fetch", "1", "-o", "-"), "--output - is not possible: a folder"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_what_is_no_text_is_refused(
    call: Call, here: Path, folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    code, out, err = call(*(str(folder) if word == "RUN" else word for word in arguments))
    assert (code, out) == (2, "") and said in err and len(err.splitlines()) == 1
    assert list(here.iterdir()) == []
