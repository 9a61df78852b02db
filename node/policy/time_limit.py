"""The limit of a message's time."""

from __future__ import annotations

import os
from collections.abc import Mapping

from fedstride.errors import ConfigError

LIMIT_VARIABLE = "FEDSTRIDE_MESSAGE_SECONDS"


def message_limit(environment: Mapping[str, str] = os.environ) -> float:
    """The seconds after which a message's process is killed: FEDSTRIDE_MESSAGE_SECONDS, by default without limit.

    Raises ConfigError if the variable is not a positive number.
    """
    text = environment.get(LIMIT_VARIABLE, "")
    if not text:
        return float("inf")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ConfigError(
            f"{LIMIT_VARIABLE} is {text!r}, but must be a number of seconds above 0, as in {LIMIT_VARIABLE}=3600"
        )
    return seconds
