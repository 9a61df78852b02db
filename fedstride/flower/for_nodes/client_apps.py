"""What the process of a message needs of Flower: to load a ClientApp, and messages, contexts and replies as bytes.

Private names of Flower; the files that have them are the same in 1.39, 1.40, 1.41 and 1.42.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.client_app import LoadClientAppError
from flwr.common.config import flatten_dict, fuse_dicts, get_project_config
from flwr.common.constant import ErrorCode
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictProto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, no_object_id_recompute
from flwr.supercore.object_ref import load_app

Config = dict[str, bool | int | float | str]


class App:
    """An unpacked app. Raises LoadClientAppError if its `pyproject.toml` is not that of an app."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._config = get_project_config(folder)["tool"]["flwr"]["app"]
            self._reference = str(self._config["components"]["clientapp"])
        except Exception as error:
            raise LoadClientAppError(f"{folder} is not an app with a ClientApp: {error}") from error

    def run_config(self, overrides: Mapping[str, Any]) -> Config:
        """The app's own configuration with what a run changes in it. Raises ValueError for an unknown key."""
        return cast(Config, fuse_dicts(flatten_dict(self._config.get("config", {})), dict(overrides)))

    def load(self) -> ClientApp:
        """Import the ClientApp. Raises LoadClientAppError, and whatever its modules raise."""
        app = load_app(self._reference, LoadClientAppError, self._folder)
        if not isinstance(app, ClientApp):
            raise LoadClientAppError(f"Attribute {self._reference} is not of type {ClientApp}")
        return app


def context(
    run: int, node: int, series: int, node_config: Mapping[str, Any], run_config: Config, state: RecordDict
) -> Context:
    """The context of a message."""
    return Context(
        run_id=run,
        node_id=node,
        node_config=dict(node_config),
        state=state,
        run_config=run_config,
        series_id=series,
    )


def objects(content: RecordDict) -> Iterator[bytes]:
    """First the id of this content, then the contents of all its objects, each made when it is asked for."""
    with no_object_id_recompute():
        parts = get_all_nested_objects(content)
        yield content.object_id.encode()
        for part in parts.values():
            yield part.deflate()


def state_to_bytes(state: RecordDict) -> bytes:
    """The state of a client between two messages, as bytes."""
    return bytes(recorddict_to_proto(state).SerializeToString())


def state_from_bytes(data: bytes) -> RecordDict:
    """What `state_to_bytes` has made of a state. No bytes: no records."""
    return recorddict_from_proto(RecordDictProto.FromString(data))


def failed(error: Exception) -> tuple[int, str]:
    """The code and reason of the reply if a ClientApp raises this error; it is logged. As in Flower's program."""
    logging.getLogger("flwr").error("ClientApp raised an exception", exc_info=error)
    if isinstance(error, LoadClientAppError):
        return ErrorCode.LOAD_CLIENT_APP_EXCEPTION, "An exception was raised when attempting to load `ClientApp`"
    return ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"{type(error)}:<'{error}'>"
