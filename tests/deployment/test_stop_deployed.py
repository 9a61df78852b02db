"""How a ServerApp ends in a deployment: by SIGTERM, by `flwr stop`, with its SuperLink; with complete files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from processes import Site, server_app, stop, until

from server_app.records.checkpoint import newest_checkpoint
from server_app.records.line_files import read_lines

pytestmark = pytest.mark.slow

ENDLESS = ("model=mlp", "clients=2", "rounds=1000", "client.local_steps=1", "client.device=cpu")


@pytest.fixture
def pair(site: Site) -> Iterator[Any]:
    """Two nodes, for each test: the last one ends the SuperLink."""
    nodes = site.pair()
    yield nodes
    stop(*nodes)


def sigterm(site: Site, run_id: str) -> None:
    os.kill(server_app(site), signal.SIGTERM)


def flwr_stop(site: Site, run_id: str) -> None:
    site.desk.stop(run_id)


def end_of_the_superlink(site: Site, run_id: str) -> None:
    stop(site.link.running)


@pytest.mark.parametrize(
    ("end", "state"),
    [(sigterm, "terminated"), (flwr_stop, "interrupted"), (end_of_the_superlink, "interrupted")],
)
def test_the_run_folder_says_how_it_ended(
    site: Site, pair: Any, end: Callable[[Site, str], None], state: str
) -> None:
    command = [sys.executable, "-m", "lab.cli.main", "submit", "tls", *ENDLESS, f"name={end.__name__}"]
    with (site.deployment.root / f"{end.__name__}.log").open("w+") as log:
        submitted = subprocess.Popen(command, env=site.desk.env, stdout=log, stderr=subprocess.STDOUT)
        folder = until(lambda: site.link.run_folder(end.__name__), "folder of the run", 400.0)
        until(lambda: len(read_lines(folder / "metrics.jsonl")) > 1 or None, "first round", 400.0)
        log.seek(0)
        found = re.search(r"run (\d+) submitted", log.read())
        assert found
        end(site, found[1])
        status = until(
            lambda: ((s := json.loads((folder / "status.json").read_text()))["state"] != "running" and s) or None,
            "end of the run",
            180.0,
        )
        assert status["state"] == state, status
        assert newest_checkpoint(folder)[0].server_round == status["rounds"]
        if end is not end_of_the_superlink:
            assert submitted.wait(60) == 1
        else:
            submitted.terminate()
            assert submitted.wait(60) == 143
