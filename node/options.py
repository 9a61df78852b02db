"""What the node's config says about the node itself: its name, and where its log is. Knows nothing of Flower."""

from __future__ import annotations

import argparse
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedstride.errors import ConfigError
from fedstride.names import FORM, is_name

OFF = "off"
FILE = "node-log.jsonl"

_PAIR = re.compile(r"(\S+?)=('[^']*'|\"[^\"]*\"|\S+)")  # as Flower reads it


class Options(NamedTuple):
    """What `name` and `log` in the node's config say."""

    name: str  # empty: none
    log: Path | None  # None: off


def options(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Options:
    """The options in these arguments of a SuperNode. Raises ConfigError for a name or log that is not allowed."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--node-config", default="")
    try:
        given, _ = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError:  # Flower's parser says what is wrong
        return Options("", default_log(environment))
    config = _pairs(given.node_config)
    name, log = config.get("name", ""), config.get("log", str(default_log(environment)))
    if "name" in config and not is_name(name):
        raise ConfigError(
            f"node-config name = {name!r} is not allowed: it must be {FORM}; start the node with --node-config "
            "'name=\"hospital-a\"'"
        )
    if not isinstance(log, str) or not log:
        raise ConfigError(f'node-config log = {log!r} is not allowed: it must be the path of a file, or "{OFF}"')
    return Options(str(name), None if log == OFF else Path(log).expanduser().absolute())


def default_log(environment: Mapping[str, str] = os.environ) -> Path:
    """The log of a node whose config does not name one: in its FLWR_HOME."""
    return Path(environment.get("FLWR_HOME") or "~/.flwr").expanduser().absolute() / FILE


def _pairs(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in _PAIR.findall(text):
        try:
            found[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[key] = value
    return found
