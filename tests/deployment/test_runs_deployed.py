"""Runs as things in a real deployment: list, log, stop, fetch; how a run ended is told apart."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import Running, Site, server_app, stop, until

from lab.flower import submission
from lab.flower.superlink_choice import named
from lab.results.run_folders import FETCHED, load
from server_app.records.line_files import read_lines

pytestmark = pytest.mark.slow

SMALL = ("model=mlp", "clients=2", "client.local_steps=1", "client.device=cpu")


@pytest.fixture(scope="module")
def nodes(site: Site) -> Iterator[list[Running]]:
    """Two nodes for the whole module."""
    started = site.pair()
    yield started
    stop(*started)


@pytest.fixture
def desk(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """This process as the user who submits."""
    monkeypatch.setenv("FLWR_HOME", site.desk.env["FLWR_HOME"])
    return site


def submit(name: str, *more: str) -> str:
    return submission.submit(named("tls"), [*SMALL, *more, f"name={name}"])


def listed(site: Site) -> dict[str, Any]:
    done = site.deployment.fedstride("runs", "tls", "--format", "json")
    assert done.returncode == 0, done.stderr
    return {entry["run"]: entry for entry in json.loads(done.stdout)}


def after_a_round(site: Site, name: str) -> Path:
    folder = until(lambda: site.link.run_folder(name), f"folder of the run {name}")
    until(lambda: len(read_lines(folder / "metrics.jsonl")) > 1 or None, f"first round of {name}", 300.0)
    return folder


@pytest.mark.usefixtures("nodes")
def test_a_completed_run_is_listed_and_fetched(desk: Site, tmp_path: Path) -> None:
    """The same bytes, with their digests; a second time, nothing is overwritten."""
    site = desk
    done = submit("done", "rounds=2")
    assert submission.follow(named("tls"), done, lambda line: None).completed
    entry = listed(site)[done]
    assert (entry["state"], entry["rounds"]) == ("completed", "2")
    assert entry["figure"].startswith("test accuracy")
    assert "@" in entry["by"]
    assert "rounds=2" in entry["what"]

    at = tmp_path / "fetched"
    fetched = site.deployment.fedstride("fetch", done, "tls", "-o", str(at))
    assert fetched.returncode == 0, fetched.stderr
    there = site.link.run_folder("done")
    assert there is not None
    about = json.loads((at / FETCHED).read_text())
    for name, digest in about["files"].items():
        assert (at / name).read_bytes() == (there / name).read_bytes()
        assert hashlib.sha256((at / name).read_bytes()).hexdigest() == digest
    assert {"config.yaml", "metrics.jsonl", "model.safetensors", "status.json"} <= about["files"].keys()
    assert load(at).completed
    again = site.deployment.fedstride("fetch", done, "tls", "-o", str(at))
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "exists and is not overwritten" in again.stderr


@pytest.mark.parametrize("verb", ["stop", "logs", "fetch", "watch"])
def test_a_run_that_does_not_exist(desk: Site, verb: str) -> None:
    missing = desk.deployment.fedstride(verb, "12345", "tls")
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1), missing.stderr
    assert "has no run 12345: fedstride runs lists them" in missing.stderr


@pytest.mark.usefixtures("nodes")
def test_a_run_is_watched(desk: Site) -> None:
    """From its submission to its end, and once more afterwards; other commands do not show what it is told."""
    watched = submit("watched", "rounds=3")
    for _ in range(2):
        done = desk.deployment.fedstride("watch", watched, "tls")
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        assert lines[-1] == f"{watched}: completed"
        assert [line.split()[1] for line in lines if "test accuracy" in line] == ["1", "2", "3"]
        for number in (1, 2, 3):
            assert f"round   {number}   client 0, client 1 training" in lines
            assert f"round   {number}   client 1 answered" in lines
    logged = desk.deployment.fedstride("logs", watched, "tls").stdout
    assert "round   3" in logged and "progress" not in logged


@pytest.mark.usefixtures("nodes")
def test_a_run_is_stopped(desk: Site) -> None:
    site = desk
    stopped = submit("stopped", "rounds=1000")
    folder = after_a_round(site, "stopped")
    assert listed(site)[stopped]["state"] == "running"
    asked = site.deployment.fedstride("stop", stopped, "tls")
    assert asked.returncode == 0, asked.stderr
    until(lambda: status(folder)["state"] != "running" or None, "end of the stopped run")
    assert (status(folder)["state"], status(folder)["reason"]) == ("interrupted", "stopped by the user")
    assert site.deployment.fedstride("stop", stopped, "tls").returncode == 1  # it has ended


@pytest.mark.usefixtures("nodes")
def test_a_run_that_fails_and_one_whose_process_is_killed(desk: Site) -> None:
    """The first says why; the second is lost: nothing wrote its end."""
    site = desk
    failed = submit("failed", "rounds=3", "target=0.5", "best=nothing/such")
    until(lambda: listed(site)[failed]["state"] == "failed" or None, "failure")
    assert "nothing/such" in listed(site)[failed]["reason"]

    killed = submit("killed", "rounds=1000")
    folder = after_a_round(site, "killed")
    os.kill(server_app(site), signal.SIGKILL)
    until(lambda: load(folder).state == "lost" or None, "end of the killed process")
    until(lambda: listed(site)[killed]["state"] == "lost" or None, "loss of the ServerApp", 240.0, 5.0)


def status(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "status.json").read_text()))
