"""A SuperLink is restored from its backup, in another folder and with a new certificate: docs/operations.md."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from desk import play, table, weights
from processes import GUARDED, Site, answers, folder_in, stop, until

from lab.flower import submission
from lab.flower.superlink_choice import named
from lab.results.run_folders import load
from server_app.records.line_files import read_lines

pytestmark = pytest.mark.slow

ROUNDS = 30  # so many that the run has not ended when its SuperLink is stopped
GIVEN = (
    "model=mlp",
    "clients=2",
    "client.local_steps=3",
    "client.batch_size=20",
    "client.device=cpu",
    f"rounds={ROUNDS}",
)


def backup(of: Path, to: Path) -> None:
    """As `sqlite3 state.db ".backup ..."` does, while the SuperLink writes to it."""
    with closing(sqlite3.connect(of)) as source, closing(sqlite3.connect(to)) as copy:
        source.backup(copy)


def new_certificate(site: Site, folder: Path) -> None:
    """The certificates with a new one for the server, of the same CA."""
    shutil.copytree(site.certificates, folder)
    for name in ("server.crt", "server.key"):
        (folder / name).unlink()
    done = site.deployment.fedstride("certificates", str(folder), "--name", "localhost", "--address", "127.0.0.1")
    assert done.returncode == 0, done.stderr


def test_a_restored_superlink_knows_its_nodes_and_resumes_the_run(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_HOME", site.desk.env["FLWR_HOME"])
    nodes = site.pair()
    first = submission.submit(named("tls"), [*GIVEN, "name=mine"])
    old = site.link.running.folder
    place = f"runs/{first}/mine"
    until(lambda: len(read_lines(old / place / "metrics.jsonl")) > 1 or None, "first round", 300.0)

    new = site.deployment.root / "restored"
    new.mkdir(mode=0o700)
    backup(old / "state.db", new / "state.db")
    (new / "state.db").chmod(0o600)
    stop(site.link.running)
    until(lambda: load(old / place).state != "running" or None, "end of the ServerApp")
    shutil.move(old / "runs", new / "runs")
    new_certificate(site, tmp_path / "certs")
    certificates = tmp_path / "certs"
    assert (certificates / "server.crt").read_bytes() != (site.certificates / "server.crt").read_bytes()
    link = site.deployment._superlink(
        "restored", certificates, site.link.control, site.link.fleet, program=GUARDED
    )
    until(lambda: answers(link), "answer of the restored SuperLink")
    until(lambda: site.desk.online() == {site.ids["one"], site.ids["two"]} or None, "return of the nodes")

    assert load(new / place).rows[-1]["round"] < ROUNDS
    done = site.deployment.fedstride("submit", "tls", f"resume={new / place}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert folder_in(done.stdout) == new / place
    local = play(tmp_path, *GIVEN, small=False)
    assert weights(new / place) == weights(local.folder)
    assert table(new / place) == table(local.folder)
    listed = site.deployment.fedstride("runs", "tls")
    assert first in listed.stdout and "completed" in listed.stdout
    stop(*nodes)
