"""The client's part of 2D-LRD: how many mini-batches a round has, and the rate of each (A4-4 to A4-6).

    eta_j = eta_0 f_j,   j = 0 .. tau - 1

The factors f come with the round's config; the client keeps only where it stands in its data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from fedstride import wire
from fedstride.errors import ConfigError
from fedstride.schema import ClientConfig

CURSOR = "cursor"  # in the client's state: the number of its next mini-batch


def factors_of(config: Mapping[str, Any], client: ClientConfig) -> list[float] | None:
    """The factor of the rate for each mini-batch of the round; None where the round counts epochs."""
    sent = config.get(wire.RATE_FACTORS)
    if sent is None:
        return None if client.local_steps is None else [1.0] * client.local_steps
    if not isinstance(sent, list) or not sent:
        raise ConfigError(f"{wire.RATE_FACTORS} = {sent!r} is not allowed: a list of at least one factor is")
    return [float(factor) for factor in sent]


def take_cursor(message: RecordDict, state: RecordDict, server_round: int, count: int) -> int:
    """Where this round starts, and moves the cursor past its `count` mini-batches.

    The server hands back what the client's last accepted reply said; without that the client's own
    state counts; a client that lost both starts where it would stand had it taken part in every round so
    far with this many mini-batches (A4-5).
    """
    known = [records.config_records.get(wire.STATE) for records in (message, state)]
    told = [record[CURSOR] for record in known if record is not None and isinstance(record.get(CURSOR), int)]
    start = int(told[0]) if told else (server_round - 1) * count  # type: ignore[arg-type]
    state[wire.STATE] = ConfigRecord({CURSOR: start + count})
    return start
