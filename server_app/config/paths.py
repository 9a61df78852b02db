"""The settings that are paths, on the machine that makes a run: absolute, so that they hold in any folder."""

from __future__ import annotations

import copy
import os
from functools import reduce
from pathlib import Path
from typing import Any

from .keys import keys
from .schema import Config


def absolute(config: Config, *, of_parts: bool = True) -> Config:
    """The configuration with absolute paths.

    `of_parts=False` leaves the paths of parts as they are: in a deployment the nodes get them, and each reads its
    own.
    """
    config = copy.deepcopy(config)
    for key in keys(config):
        if key.field.setting.path and (of_parts or not key.group):
            *holders, name = key.path.split(".")
            setattr(reduce(getattr, holders, config), name, absolute_value(key.value))
    return config


def absolute_value(value: Any) -> Any:
    """A path, or a list of paths, as absolute ones; what names an unknown user's home stays as it is."""
    if isinstance(value, (list, tuple)):
        return [absolute_value(each) for each in value]
    if not isinstance(value, str) or not value:
        return value
    path = os.path.expanduser(value)
    return value if path.startswith("~") else str(Path(path).absolute())
