"""Flower's log."""

from __future__ import annotations

import logging

log = logging.getLogger("flwr").log
"""Flower's log function: `flwr.common.log` up to 1.34, `flwr.supercore.log` from 1.35 on. Both use the logger
`flwr`."""
