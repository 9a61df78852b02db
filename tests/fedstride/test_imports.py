"""Importing the modules that server and client share does not load heavy packages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import fedstride", ["numpy", "torch", "flwr", "hydra", "omegaconf"]),
        (
            "from fedstride import errors, metrics, own, parts, seeds, settings, wire",
            ["torch", "flwr", "hydra", "omegaconf", "pandas"],
        ),
        (
            "from fedstride import arrays, objects; from fedstride.flower import grids, replies",
            ["torch", "hydra", "omegaconf", "ray", "pandas"],
        ),
        ("import fedstride.tasks.parts, client_app.parts", ["torch", "flwr", "hydra", "omegaconf", "pandas"]),
        ("from server_app.config import compose, overrides", ["torch", "flwr", "pandas"]),
        ("from fedstride.tasks import cache, data, partitions", ["torch", "hydra", "mlxtend", "flwr_datasets"]),
    ],
)
def test_importing_does_not_load_unwanted_modules(statement: str, unwanted: list[str]) -> None:
    code = f"{statement}\nimport sys, json\nprint(json.dumps([m for m in {unwanted} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
