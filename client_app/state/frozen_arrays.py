"""Finds the arrays that are not trained, for a message: in the message, or in this machine's cache.

It does not know which arrays are frozen, or why: names and digest are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flwr.app import RecordDict

from fedstride.arrays.named import Arrays
from fedstride.errors import ConfigError, DataError
from fedstride.messages import wire
from fedstride.messages.records import array_records
from fedstride.tasks.models import frozen_cache

from ..combined_methods import arrays_in


class FrozenArrays(NamedTuple):
    """The frozen arrays by name. `held`: they were received, and could not be written to the cache."""

    arrays: Arrays
    held: bool = False


def present(config: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """The fact for the roll call that this machine has the frozen arrays of the run; empty if it does not."""
    if not names or frozen_cache.kept(_digest(config), names) is None:
        return {}
    return {wire.FROZEN: _digest(config)}


def find(config: Mapping[str, Any], content: RecordDict, names: Sequence[str]) -> FrozenArrays:
    """The frozen arrays with these names, from the message or from the cache. Received ones are kept there.

    Raises ConfigError for arrays with another digest, DataError if they are neither here nor there.
    """
    if not names:
        return FrozenArrays({})
    digest = _digest(config)
    record = array_records(content).get(wire.FROZEN)
    if record is not None:
        received = arrays_in(wire.FROZEN, record)
        if tuple(received) != tuple(names) or frozen_cache.digest_of(received) != digest:
            raise ConfigError(
                "the received frozen arrays are damaged, or do not belong to this client's network; server and "
                "clients must build the same model"
            )
        return FrozenArrays(received, held=not frozen_cache.keep(received))
    kept = frozen_cache.kept(digest, names)
    if kept is None:
        raise DataError(
            "the frozen arrays of the model are no longer in this machine's cache; the next message has them"
        )
    return FrozenArrays(kept)


def _digest(config: Mapping[str, Any]) -> str:
    value = config.get(wire.FROZEN)
    if not isinstance(value, str):
        raise ConfigError(f"{wire.FROZEN} = {value!r} is not allowed: it must be the digest of the frozen arrays")
    return value
