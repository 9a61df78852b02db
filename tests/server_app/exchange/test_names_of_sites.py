"""At a desk, a site is called as its file in messages to people, and each fault is said once."""

from __future__ import annotations

from pathlib import Path

import pytest

from client_app.app import app
from fedstride.errors import RunError
from lab.engine.local_grid import LocalGrid, names_of
from server_app import preparation, session
from server_app.config.compose import compose

ROWS = "".join(f"{at},{'yes' if at % 2 else 'no'}\n" for at in range(40))
HALF = "".join(f"{at},{'yes' if at < 3 else 'no'}\n" for at in range(40))  # 3 of a class


def site(folder: Path, name: str, text: str) -> str:
    (folder / f"{name}.csv").write_text(text)
    return str(folder / f"{name}.csv")


def run(folder: Path, files: list[str], *, repeats: bool = False, least: int = 2) -> None:
    task = ["task=own_table", "task.columns=[age]", "task.target=ill", "task.classes=[no,yes]", "model=mlp"]
    of_run = ["rounds=1", f"clients={len(files)}", f"min_clients={least}", "partition=own", f"out='{folder}'"]
    grid = LocalGrid(app, len(files), data=files)
    if repeats:
        grid.repeat()
    session.run(grid, preparation.prepare(compose([*task, *of_run, "strategy=fedavg", "client.device=cpu"])))


def test_a_site_that_cannot_take_part_is_named_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = [site(tmp_path, "six", "age,ill\n" + ROWS), site(tmp_path, "seven", "age;ill\n")]
    with pytest.raises(
        RunError, match=r"clients can take part: seven cannot take part: DataError: .*seven\.csv has"
    ):
        run(tmp_path, files)
    assert "cannot take part" not in caplog.text


@pytest.mark.parametrize("repeats", [False, True])
def test_a_run_beside_another_says_nothing_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, repeats: bool
) -> None:
    good = [site(tmp_path, "six", "age,ill\n" + ROWS), site(tmp_path, "few", "age,ill\n" + HALF)]
    run(tmp_path, [*good, site(tmp_path, "seven", "")], repeats=repeats)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert sum(text.startswith("few: few examples of a class") for text in said) == (not repeats)
    assert sum(text.startswith("seven cannot take part: DataError") for text in said) == (not repeats)


def test_sites_with_one_name_have_their_number_too() -> None:
    assert names_of(["/a/north.csv", "/b/south.toml"]) == ["north", "south"]
    assert names_of(["/a/data.csv", "/b/data.csv"]) == ["0 (data)", "1 (data)"] and names_of([]) == []
