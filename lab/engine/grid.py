"""The Grid of a run in this process, from its configuration: with the task's data, or a file for each client."""

from __future__ import annotations

from pathlib import Path

from flwr.clientapp import ClientApp

from fedstride.errors import require
from server_app.config.schema import Config

from .local import LocalGrid


def grid_of(client_app: ClientApp, config: Config) -> LocalGrid:
    """The Grid of a run in this process. With `partition.files`, each client has the data in one of them.

    Raises ConfigError if there is not one for each client.
    """
    files = getattr(config.partition, "files", None) or []
    require(
        config.partition.name != "own" or bool(files),
        "partition",
        "own",
        "one that divides the task's data, or own with partition.files=[...], a path for each client; nodes of a "
        "deployment have their own data (fedstride submit)",
    )
    require(
        len(files) in (0, config.clients),
        "partition.files",
        files,
        f"one path for each of the {config.clients} clients",
    )
    return LocalGrid(client_app, config.clients, data=[str(Path(file).expanduser().resolve()) for file in files])
