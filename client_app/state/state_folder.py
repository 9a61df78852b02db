"""The folder in which a node saves what its clients keep."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedstride.errors import ConfigError
from fedstride.files import user_folders
from fedstride.messages import wire

RUN_ID = re.compile(r"[0-9a-f]{16}")  # the run id is used as a folder name


def folder_of_run(config: Mapping[str, Any], node_config: Mapping[str, Any]) -> Path | None:
    """The folder of what this node's clients keep of the run of a message; None if the message names no run.

    Raises ConfigError for an invalid run id, or if the node's config has an invalid state folder.
    """
    if wire.RUN not in config:
        return None
    run = config[wire.RUN]
    if not isinstance(run, str) or not RUN_ID.fullmatch(run):
        raise ConfigError(f"{wire.RUN} = {run!r} is not allowed: it must be 16 hexadecimal digits")
    return root(node_config) / run


def refuse_links(*folders: Path) -> None:
    """Raise OSError if one of these folders is a link: nothing is written to where it leads."""
    for folder in folders:
        if folder.is_symlink():
            raise OSError(errno.ELOOP, f"{folder} is a link")


def make_private(folder: Path) -> None:
    """Create the folder and missing parent folders, accessible only to the user of this process."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


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
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return user_folders.expanded(chosen or os.environ.get("FEDSTRIDE_STATE") or f"{base}/fedstride/state")
