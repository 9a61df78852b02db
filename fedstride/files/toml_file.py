"""Reads a file of settings in TOML, whatever editor wrote it, and names all keys that are allowed."""

from __future__ import annotations

import re
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
    text = ""
    try:
        text = path.read_text(encoding="utf-8-sig")
        values = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{what} {path} cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        fault = " ".join(str(error).split())
        raise ConfigError(f"{what} {path} is not TOML: {fault}{_of_letters(fault, text)}") from None
    for key in values:
        if key not in allowed:
            likely = nearest(key, allowed)
            listed = ", ".join([*likely, *(name for name in allowed if name not in likely)])
            raise ConfigError(f"{path}: it has no key {key[:60]!r}; allowed are {listed}")
    return values


def _of_letters(fault: str, text: str) -> str:
    """What to do if the line of the fault has a key with letters that TOML allows only in quotation marks."""
    said = re.search(r"at line (\d+)", fault)
    key = text.split("\n")[int(said[1]) - 1].partition("=")[0].strip() if said else ""
    if key.isascii() or key.startswith(('"', "'", "#")):
        return ""
    return (
        '; a name with other letters than A to Z, digits, - and _ needs quotation marks, as in "Größe" = { ... }'
    )
