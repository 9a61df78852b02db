"""The errors of fedstride: one class for each way in which a caller can react.

    FedstrideError
    ├── ConfigError      the request is not valid: change it                          (exit code 2)
    ├── DataError        data are missing or unreadable, or cannot be divided         (exit code 1)
    │   └── ChangedDataError   they are not those with which the run began
    ├── ReplyError       one client's reply is not valid: it is rejected, the round continues
    ├── CheckpointError  a saved state is damaged, or is not a state of this run      (exit code 1)
    └── RunError         the run cannot continue                                      (exit code 1)

A message says what is wrong and where, what was found, what is allowed, and what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

MAX_REASON = 500
"""Maximum number of characters of a reason. A reason can contain text from a client, which is not trusted."""


class FedstrideError(Exception):
    """Any error that fedstride raises on purpose.

    `key`: the setting that it is about, as a message names it; empty if it is about none, or about several.
    """

    exit_code = 1

    def __init__(self, text: str, *, key: str = "") -> None:
        super().__init__(text)
        self.key = key


class ConfigError(FedstrideError, ValueError):
    """A name, key, value or type that is not allowed; raised before any work starts."""

    exit_code = 2


class DataError(FedstrideError):
    """Data are missing or unreadable, or cannot be divided as the configuration says."""


class ChangedDataError(DataError):
    """The data are not those with which the run began."""


class ReplyError(FedstrideError):
    """A client's reply is not valid. The text is the reason, which is written to the records of the round.

    The text is always one printable line of limited length, also if it contains text from the client.
    """

    def __init__(self, reason: str) -> None:
        kept = reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]} ..."
        super().__init__(printable(kept))


class CheckpointError(FedstrideError):
    """A saved state is damaged, has another format, or belongs to another configuration."""


class RunError(FedstrideError):
    """The run cannot continue."""


def printable(text: str) -> str:
    """The text on one line, with a space for every character that is not printable.

    A terminal and a browser act on such characters: line breaks, escape sequences, changes of the direction.
    """
    return "".join(char if char.isprintable() else " " for char in text)


def last_line(reason: str | None) -> str:
    """The last line of a client's error text. In a traceback this line is the error itself."""
    lines = str(reason or "").strip().splitlines()
    return lines[-1] if lines else "no reason given"


def reason_of(code: int, reason: str | None) -> str:
    """What is said of a client's error: the last line of its text, or the code alone, if it has no text."""
    return last_line(reason) if str(reason or "").strip() else f"no reason given (code {code})"


def counted(count: int, what: str) -> str:
    """A number of things, as in `1 row` and `2 rows`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


MANY = 80
"""Names that an error message lists at most."""


def nearest(word: str, allowed: Iterable[str], limit: int = 3) -> list[str]:
    """At most `limit` names in `allowed` that are most similar to `word`, the best first."""
    names = list(allowed)
    close = difflib.get_close_matches(word, names, n=limit, cutoff=0.6)
    inside = [name for name in names if word and word in name and name not in close]
    return (close + inside)[:limit]


def unknown(kind: str, word: str, allowed: Iterable[str]) -> ConfigError:
    """The error for a name that does not exist, with the most similar names, and with all if they are not many."""
    names = sorted(allowed)
    close = nearest(word, names)
    hint = f" Did you mean {' or '.join(repr(name) for name in close)}?" if close else ""
    known = ", ".join(names) if len(names) <= MANY else f"{len(names)} names, which fedstride list prints"
    return ConfigError(f"unknown {kind} {word!r}.{hint} Known: {known}")


def require(holds: bool, key: str, value: object, allowed: str) -> None:
    """Raise ConfigError unless `holds`. The text contains the key, the value and what is allowed."""
    if not holds:
        raise ConfigError(f"{key} = {value!r} is not allowed: {key.rsplit('.', 1)[-1]} must be {allowed}", key=key)


def given(key: str, value: T | None, allowed: str) -> T:
    """The value, which may not be None. Raises ConfigError as `require` does."""
    require(value is not None, key, value, allowed)
    assert value is not None
    return value
