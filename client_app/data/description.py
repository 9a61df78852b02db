"""The answer to a message that asks what a client's data are like, without training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Context

from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.tasks import own_files
from fedstride.tasks.statistics.description import MIN_ROWS

from .. import protection
from ..message_settings import MessageSettings, settings_of
from .client_data import own_data_path, partition_id


def described(config: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """What this client says of its data, as values of a message (`fedstride/tasks/statistics/description.py`).

    A node that reads its data itself has made the answer, by its own policy; otherwise it is made here, with the
    default of the smallest number of rows. Raises ConfigError if this client adds noise, which would not protect
    the answer, and DataError for data that cannot be read at all.
    """
    said = settings_of(config)
    if protection.stricter(said.protection, context.node_config).is_local:
        raise ConfigError(
            "this client adds noise itself, so it does not describe its data; ask with another kind of privacy",
            key=wire.DESCRIPTION,
        )
    path = own_data_path(context, said.partition)
    return own_files.description(path, said.spec) if path is not None else _of_a_part(said, context)


def client_id_of(config: Mapping[str, Any], context: Context) -> int:
    """The id of this client, as in a run."""
    if own_data_path(context, settings_of(config).partition) is None or "partition-id" in context.node_config:
        return partition_id(context, settings_of(config).clients)
    return context.node_id


def _of_a_part(said: MessageSettings, context: Context) -> dict[str, Any]:
    source = said.source
    at = np.sort(said.divided[partition_id(context, said.clients)])
    summary = own_files.of_arrays(source.train_x[at], source.train_y[at], said.spec, MIN_ROWS)
    return summary.flatten()
