"""Importing the modules that server and client share does not load heavy packages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import fedstride", ["numpy", "torch", "flwr", "hydra", "omegaconf"]),
        (
            "import fedstride.errors, fedstride.user_parts, fedstride.parts, fedstride.seeds, fedstride.settings\n"
            "import fedstride.figures.metrics, fedstride.messages.wire",
            ["torch", "flwr", "hydra", "omegaconf", "pandas"],
        ),
        (
            "import fedstride.arrays.named, fedstride.messages.reply_objects, fedstride.flower.grids\n"
            "import fedstride.flower.for_superlinks.replies",
            ["torch", "hydra", "omegaconf", "ray", "pandas"],
        ),
        (
            "import fedstride.tasks.registry, client_app.registry",
            ["torch", "flwr", "hydra", "omegaconf", "pandas"],
        ),
        ("from server_app.config import compose, overrides", ["torch", "flwr", "pandas"]),
        (
            "import fedstride.tasks.cache, fedstride.tasks.data, fedstride.tasks.partitions.schemes",
            ["torch", "hydra", "mlxtend", "flwr_datasets"],
        ),
    ],
)
def test_importing_does_not_load_unwanted_modules(statement: str, unwanted: list[str]) -> None:
    code = f"{statement}\nimport sys, json\nprint(json.dumps([m for m in {unwanted} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
