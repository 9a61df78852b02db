"""Reads a file of settings in TOML, whatever editor wrote it, and names all keys that are allowed."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ..errors import ConfigError, nearest


def read_toml(path: Path, what: str, allowed: Collection[str]) -> dict[str, Any]:
    """The values by key. `what`: the file in words, as in `the policy file`.

    The mark that some editors write in front of UTF-8 does not count. Raises ConfigError, one line, if the file
    cannot be read or is not TOML, and for a key that is not in `allowed`.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{what} {path} cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{what} {path} is not TOML: {' '.join(str(error).split())}") from None
    for key in values:
        if key not in allowed:
            likely = nearest(key, allowed)
            listed = ", ".join([*likely, *(name for name in allowed if name not in likely)])
            raise ConfigError(f"{path}: it has no key {key[:60]!r}; allowed are {listed}")
    return values
