"""The node-config: what a site says of itself, and what of it apps see."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.tasks.data_toml.site import SiteData

from .policy.policy_file import Policy, read_data

READ_BY_THE_NODE = "(read by the node)"
"""What apps see as the place of the data that they cannot open."""

DEMANDS = ("clip", "noise", wire.MEMBERSHIP)
"""How keys begin that the policy alone sets."""

NODES_OWN = {"policy", "state", "log"}
"""Keys of a node-config that are the node's own matter; apps do not see them."""

Value = bool | int | float | str

_PAIR = re.compile(r"(\S+?)=('[^']*'|\"[^\"]*\"|\S+)")  # as Flower reads it


def node_config(text: str) -> dict[str, Value]:
    """The values of a node-config. Raises ConfigError for anything else."""
    rest = _PAIR.sub("", text).strip()
    if rest:
        raise ConfigError(f"--node-config: {rest[:60]!r} is not of the form KEY=VALUE; separate pairs by blanks")
    return {key: _value(key, value) for key, value in _PAIR.findall(text)}


def _value(key: str, text: str) -> Value:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # a text without quotation marks
    if not isinstance(value, (bool, int, float, str)):
        raise ConfigError(
            f"--node-config {key} = {text[:60]} is not allowed: a value is a number, a text or a bool"
        )
    return value


def path_of(config: Mapping[str, Value], key: str) -> Path | None:
    """The path that a node-config has under this key; None if it has none."""
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise ConfigError(f"node-config {key} = {value!r} is not allowed: it must be the path of a file")
    return Path(value).expanduser().absolute()


def site_of(config: Mapping[str, Value]) -> SiteData | None:
    """The data that the site names; None if it names none."""
    path = path_of(config, "data")
    return None if path is None else read_data(path)


def for_apps(config: Mapping[str, Value], site: SiteData | None, policy: Policy) -> dict[str, Value]:
    """The node-config as apps see it: without the node's own files, and with what the policy demands of updates.

    Raises ConfigError for demands that are not in the policy.
    """
    for key, value in config.items():
        if key.startswith(DEMANDS):
            written = str(value).lower() if isinstance(value, bool) else value
            raise ConfigError(
                f"node-config {key} is not allowed: demands are in the policy; write {key.replace('-', '_')} = "
                f"{written} into the file that policy=FILE.toml names"
            )
    seen = {key: value for key, value in config.items() if key not in NODES_OWN} | policy.protection
    seen |= {wire.MEMBERSHIP: True} if policy.membership else {}
    if site is None:
        return seen
    return seen | {"data": str(site.path) if policy.raw_data else READ_BY_THE_NODE}
