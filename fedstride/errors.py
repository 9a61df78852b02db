"""The errors of fedstride. Each class is one thing that a caller would do differently.

    FedstrideError
    ├── ConfigError      what was asked for cannot be: change the request         (exit code 2)
    ├── DataError        data are missing, unreadable, or cannot be divided so    (exit code 1)
    ├── ReplyError       one client's reply is unusable: rejected, never raised through a round
    ├── CheckpointError  a saved state is torn, foreign or of another run         (exit code 1)
    └── RunError         the run as a whole cannot go on                          (exit code 1)

A message says what, where, what was found, what is allowed, and what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MAX_REASON = 500
"""Characters of a reason that are kept: part of it may be what a client wrote."""


class FedstrideError(Exception):
    """Any error that fedstride raises on purpose."""

    exit_code = 1


class ConfigError(FedstrideError, ValueError):
    """A name, key, value or type that is not allowed; raised before any work starts."""

    exit_code = 2


class DataError(FedstrideError):
    """Data that are missing, unreadable, or cannot be divided as asked."""


class ReplyError(FedstrideError):
    """A client's reply that cannot be used; the text is the reason that the round records.

    One printable line and not too long, whatever of a client's own is in it.
    """

    def __init__(self, reason: str) -> None:
        kept = reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]} ..."
        super().__init__("".join(char if char.isprintable() else " " for char in kept))


class CheckpointError(FedstrideError):
    """A saved state that is torn, foreign, or belongs to another configuration."""


class RunError(FedstrideError):
    """The run as a whole cannot go on."""


def last_line(reason: str | None) -> str:
    """The last line of what a client's error says: where it is a traceback, the error itself."""
    lines = str(reason or "").strip().splitlines()
    return lines[-1] if lines else "no reason given"


def nearest(word: str, allowed: Iterable[str], limit: int = 3) -> list[str]:
    """The names in `allowed` that `word` most likely stands for, best first."""
    names = list(allowed)
    close = difflib.get_close_matches(word, names, n=limit, cutoff=0.6)
    inside = [name for name in names if word and word in name and name not in close]
    return (close + inside)[:limit]


def unknown(kind: str, word: str, allowed: Iterable[str]) -> ConfigError:
    """The error for a name that does not exist: says the nearest ones and all that do."""
    names = sorted(allowed)
    close = nearest(word, names)
    hint = f" Did you mean {' or '.join(repr(name) for name in close)}?" if close else ""
    return ConfigError(f"unknown {kind} {word!r}.{hint} Known: {', '.join(names)}")


def require(holds: bool, key: str, value: object, allowed: str) -> None:
    """Refuse a value: raises ConfigError with the key, the value found and what is allowed."""
    if not holds:
        raise ConfigError(f"{key} = {value!r} is not allowed: {key.rsplit('.', 1)[-1]} must be {allowed}")
