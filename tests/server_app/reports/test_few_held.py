"""A site that holds out fewer rows than it says something of: it trains, and is not measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from desk import play
from flwr.app import Context, Message

from client_app import app as clients
from fedstride.errors import DataError, RunError
from fedstride.messages import wire
from fedstride.messages.records import config_records
from fedstride.tasks.data_toml.site import SiteData
from fedstride.tasks.own_files.node_process import prepared
from fedstride.tasks.reading import PREPARED_VARIABLE
from lab.report.section_of_sites import sites as report_of_sites
from lab.results.good_enough import sites_of
from lab.results.run_folders import load
from node.messages.replies import form_of
from server_app.file_names import CARD

WANTED = (
    "task=own_table", "task.columns=['x']", "task.target=ill", "task.classes=['no','yes']", "model=mlp",
    "task.metrics=['auroc','accuracy']", "partition=own", "client.batch_size=10", "rounds=2",
)  # fmt: skip


def tables(folder: Path, sizes: tuple[int, ...]) -> list[Path]:
    rng = np.random.default_rng(5)
    files = []
    for k, size in enumerate(sizes):
        x = rng.normal(size=size).round(3)
        ill = np.where(x + rng.normal(0, 0.7, size) > 0, "yes", "no")
        files.append(folder / f"ward-{k}.csv")
        files[-1].write_text("x,ill\n" + "".join(f"{a},{b}\n" for a, b in zip(x, ill, strict=True)))
    return files


class AsAtNodes:
    """The app, which gets the rows of each site as a node gives them to it. `kinds`: the messages that came."""

    def __init__(self, folder: Path, files: list[Path], min_rows: int, patch: pytest.MonkeyPatch) -> None:
        self._folder, self._files, self._min_rows, self._patch = folder, files, min_rows, patch
        self.kinds: list[tuple[str, int]] = []

    def __call__(self, message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        self.kinds.append((message.metadata.message_type, client))
        form = form_of(dict(config_records(message.content)[wire.CONFIG]))
        rows, statistics = (self._folder / f"{name}-{client}" for name in ("rows", "statistics"))
        for each in (rows, statistics):
            each.mkdir(exist_ok=True)
        prepared(
            {
                "site": SiteData(self._files[client]).plain(),
                "form": form,
                "folder": str(rows),
                "statistics": str(statistics),
                "min_rows": self._min_rows,
                "shares": [0.2],
                "folds": False,
            }
        )
        self._patch.setenv(PREPARED_VARIABLE, str(rows))
        return clients.app(message, context)


def played(tmp_path: Path, patch: pytest.MonkeyPatch, sizes: tuple[int, ...], least: int, *more: str) -> Any:
    """The folder of a run at sites of these sizes, and the messages that its clients got."""
    files = tables(tmp_path, sizes)
    named = ",".join(f"'{file}'" for file in files)
    app: Any = AsAtNodes(tmp_path, files, least, patch)
    given = (*WANTED, f"partition.files=[{named}]", f"clients={len(sizes)}", *more)
    return play(tmp_path, *given, small=False, app=app).folder, app.kinds


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "least"), [((120, 60, 7), 5), ((90, 80, 11), 6)])
def test_it_trains_and_is_not_measured(
    sizes: tuple[int, ...], least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    folder, kinds = played(tmp_path, monkeypatch, sizes, least)
    assert kinds.count(("train", 2)) == 2 and ("evaluate", 2) not in kinds and ("evaluate", 1) in kinds
    assert "client 2: it holds out fewer rows than its site says something of" in caplog.text
    run = load(folder)
    last = [row for row in run.clients.rows if row["round"] == 2]
    assert [row["status"] for row in last] == ["used"] * 3
    assert last[2]["local/num-examples"] == 0 and "local/accuracy" not in last[2]
    assert "fewer rows than its site says something of" in last[2]["note"] and "note" not in last[0]
    site = sites_of(run)[2]
    assert site.rows is not None and least <= site.rows < sizes[2] and site.attended == site.asked == 2
    assert "fewer rows" in site.why_it_says_little("local/auroc")
    card = (folder / CARD).read_text()
    assert "2 (ward-2): it holds out fewer rows" in card.partition("too few rows to judge")[2]
    assert "2 (ward-2): too few rows to say: it holds out fewer rows" in report_of_sites([run])


@pytest.mark.slow
def test_without_training_it_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = played(tmp_path, monkeypatch, (70, 60, 8), 6)
    (tmp_path / "again").mkdir()
    model = f"initial='{folder / 'model.safetensors'}'"
    measured, kinds = played(tmp_path / "again", monkeypatch, (70, 60, 8), 6, "rounds=0", model)
    rows = load(measured).clients.rows
    assert [row["status"] for row in rows] == ["used", "used", "left out"]
    assert "fewer rows" in rows[2]["reason"] and ("evaluate", 2) not in kinds
    assert "2 (ward-2): it holds out fewer rows" in (measured / CARD).read_text()


@pytest.mark.slow
def test_no_site_has_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any figure, a run trains; one that only measures says why it cannot."""
    folder, kinds = played(tmp_path, monkeypatch, (9, 8), 5, "best=null")
    assert {kind for kind, _ in kinds} == {"query", "train"}
    assert json.loads((folder / "status.json").read_text())["state"] == "completed"
    (tmp_path / "again").mkdir()
    model = f"initial='{folder / 'model.safetensors'}'"
    with pytest.raises(RunError, match="no client can measure the model: each holds out fewer rows"):
        played(tmp_path / "again", monkeypatch, (9, 8), 5, "best=null", "rounds=0", model)


@pytest.mark.slow
def test_a_client_that_is_asked_all_the_same_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = []

    class Insisting(AsAtNodes):
        def __call__(self, message: Message, context: Context) -> Message:
            try:
                reply = super().__call__(message, context)
            except DataError as error:
                refused.append(str(error))
                raise
            if facts := config_records(reply.content).get(wire.ROLL_CALL):
                facts.pop(wire.FEW_HELD, None)
            return reply

    files = tables(tmp_path, (70, 60, 7))
    named = ",".join(f"'{file}'" for file in files)
    app: Any = Insisting(tmp_path, files, 5, monkeypatch)
    run = load(play(tmp_path, *WANTED, f"partition.files=[{named}]", "clients=3", small=False, app=app).folder)
    assert refused == ["this client would measure on 1 examples; its node demands min_rows = 5"] * 2
    assert all("local/num-examples" not in row for row in run.clients.rows if row["client"] == 2)
