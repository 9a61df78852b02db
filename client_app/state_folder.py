"""The folder in which a node saves what its clients keep."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedstride.errors import ConfigError


def root(node_config: Mapping[str, Any]) -> Path:
    """The folder in which this node saves its clients' states.

    Raises ConfigError if the node-config has an invalid value, or if no folder is set and the user of the process
    has no home folder.
    """
    chosen = node_config.get("state")
    if chosen is not None and (not isinstance(chosen, str) or not chosen):
        raise ConfigError(
            f"node-config state = {chosen!r} is not allowed: it must be the path of a folder; "
            "start the node with --node-config 'state=\"/path\"'"
        )
    base = os.environ.get("XDG_STATE_HOME")
    try:
        if chosen := chosen or os.environ.get("FEDSTRIDE_STATE"):
            return Path(chosen).expanduser()
        return (Path(base) if base else Path.home() / ".local" / "state") / "fedstride" / "state"
    except RuntimeError as error:  # a user id without a home folder, as in some containers
        raise ConfigError(
            f"there is no default folder for the clients' states ({error}); set state in the node-config, or "
            "FEDSTRIDE_STATE"
        ) from error
