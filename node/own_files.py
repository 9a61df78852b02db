"""Where a node's own files are: in its FLWR_HOME."""

from __future__ import annotations

LOG, STATUS, APPS, LOCK = "node-log.jsonl", "node-status.json", "node-apps", "node-lock"
SCRATCH, OUTPUT, ROWS, STATISTICS = "node-scratch", "node-output", "node-rows", "node-statistics"
LEDGER, REPLIES, APPROVALS = "node-ledger.jsonl", "node-replies", "node-approvals"
