"""Nodes and a ServerApp on a GPU, confined with the card's devices: the bits of the desk; skipped without a GPU.

With FEDSTRIDE_TEST_DEVICE=cpu it runs on the processor, which shows that the test itself works.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from desk import weights
from processes import Deployment, Desk, Site, answers, folder_in, stop, until

from node.policy import device_files

DEVICE = os.environ.get("FEDSTRIDE_TEST_DEVICE", "cuda")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="this machine has no GPU"),
]

REAL = ("model=mlp", "clients=2", "rounds=2", "client.local_steps=3", "client.batch_size=20")


@pytest.fixture(scope="module")
def gpu_site(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Site]:
    """A SuperLink whose ServerApps may use the cards, and two registered keys."""
    root = tmp_path_factory.mktemp("site")
    with Deployment(root) as deployment:
        certificates, config = root / "certificates", root / "server.toml"
        hosts = ["--name", "localhost", "--address", "127.0.0.1", "--node-names", "one,two"]
        done = deployment.fedstride("certificates", str(certificates), *hosts)
        assert done.returncode == 0, done.stderr
        given = {"devices": device_files.found(), "read": device_files.files()}
        lines = [f"{key} = {json.dumps([str(path) for path in paths])}" for key, paths in given.items()]
        config.write_text("\n".join(lines))
        link = deployment.superlink("superlink", certificates, "--serverapp-config", str(config))
        until(lambda: answers(link), "answer of the SuperLink")
        desk = Desk(deployment, link)
        ids = {name: desk.register(certificates / f"{name}.pub") for name in ("one", "two")}
        yield Site(deployment, certificates, link, desk, ids)


def test_confined_nodes_and_server_have_the_bits_of_the_desk(gpu_site: Site, tmp_path: Path) -> None:
    nodes = gpu_site.pair()
    given = (*REAL, f"client.device={DEVICE}")
    try:
        trust = ["--root-certificates", str(gpu_site.certificates / "ca.crt")]
        done = gpu_site.deployment.fedstride("submit", "--address", gpu_site.link.control, *trust, *given)
        logs = "\n".join(each.log() for each in (*nodes, gpu_site.link.running))
        assert done.returncode == 0, done.stdout + done.stderr + logs
    finally:
        stop(*nodes)
    alone = subprocess.run(
        [sys.executable, "-m", "lab.cli.main", "run", "--no-compare", *given, "name=desk", f"out={tmp_path}",
         "workers=0"],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert alone.returncode == 0, alone.stderr
    assert weights(folder_in(done.stdout)) == weights(tmp_path / "desk")
