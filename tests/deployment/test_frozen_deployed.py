"""Nodes with their own caches, as on other machines, get the frozen arrays of a model once, in real processes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from desk import play, weights
from processes import Site, folder_in, stop

from lab.results.run_folders import load

pytestmark = pytest.mark.slow

GIVEN = ("model=mlp", "clients=2", "rounds=2", "client.local_steps=3", "client.batch_size=20", "client.device=cpu")
LARGE = 600_000
"""Bytes: less than the frozen layer, and more than all that is trained."""


def test_frozen_arrays_are_sent_once_to_each_node(site: Site, tmp_path: Path) -> None:
    first = play(tmp_path, *GIVEN, "rounds=1", small=False).folder / "model.safetensors"
    start = site.link.running.folder / "models/start.safetensors"  # the folder of which ServerApps read files
    start.parent.mkdir()
    shutil.copy(first, start)
    train = (f"initial={start}", "train=[fc2]")
    nodes = [
        node
        for k, key in enumerate(("one", "two"))
        for node in site.joined(
            {key: f"partition-id={k} num-partitions=2"}, env={"FEDSTRIDE_CACHE": str(tmp_path / f"cache of {key}")}
        )
    ]
    folders = []
    for name in ("first", "second"):
        done = site.deployment.fedstride("submit", "tls", *GIVEN, *train, f"name={name}")
        assert done.returncode == 0, done.stdout + done.stderr + nodes[0].log() + nodes[1].log()
        folders.append(folder_in(done.stdout))
    stop(*nodes)
    sent = [
        [(row["round"], row["client"]) for row in load(folder).clients.rows if row["bytes/down"] > LARGE]
        for folder in folders
    ]
    assert sent == [[(1, 0), (1, 1)], []]  # the second run has the same arrays
    local = play(tmp_path, *GIVEN, *train, small=False).folder
    assert weights(folders[0]) == weights(folders[1]) == weights(local)
    assert all(len(list((tmp_path / f"cache of {key}").rglob("frozen-*"))) == 1 for key in ("one", "two"))
