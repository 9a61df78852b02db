"""Where a node's own files are: in its FLWR_HOME."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

LOG, STATUS, APPS, LOCK = "node-log.jsonl", "node-status.json", "node-apps", "node-lock"
SCRATCH, OUTPUT, ROWS = "node-scratch", "node-output", "node-rows"
LEDGER, REPLIES, APPROVALS = "node-ledger.jsonl", "node-replies", "node-approvals"


def home(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of a node's own files."""
    return Path(environment.get("FLWR_HOME") or "~/.flwr").expanduser().absolute()
