"""The names of nodes: their form, and patterns that choose some of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

from fedstride.errors import ConfigError

from . import wire

NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
FORM = "a letter, then letters, digits, '.', '_' and '-', of at most 64 characters"

_PATTERN = re.compile(r"[A-Za-z0-9._*?-]{1,64}")


def is_name(text: object) -> bool:
    """Whether this can be the name of a node. It is never a number, so that it is never taken for an id."""
    return isinstance(text, str) and NAME.fullmatch(text) is not None


def stated_name(node_config: Mapping[str, object]) -> str:
    """The name in a node-config, empty if there is none. Raises ConfigError if it is not of the form of a name."""
    name = node_config.get(wire.NAME, "")
    if wire.NAME in node_config and not is_name(name):
        raise ConfigError(
            f"node-config name = {name!r} is not allowed: it must be {FORM}; start the node with --node-config "
            "'name=\"hospital-a\"'"
        )
    return str(name)


class ChosenNodes:
    """The nodes that take part: names and patterns, separated by commas, as in `hospital-a,clinic-*`.

    `None` chooses all nodes, also those without a name. In a pattern, `*` stands for any characters, `?` for one.
    """

    def __init__(self, text: str | None) -> None:
        self.patterns = () if text is None else tuple(part.strip() for part in text.split(","))
        self._all = text is None

    @property
    def problem(self) -> str | None:
        """What is wrong with the text; None if nothing is."""
        for pattern in self.patterns:
            if not _PATTERN.fullmatch(pattern) or not (self._is_open(pattern) or is_name(pattern)):
                return f"{pattern!r} is neither a name nor a pattern: a name is {FORM}"
        twice = [pattern for pattern in self.patterns if self.patterns.count(pattern) > 1]
        return f"{twice[0]!r} is there twice" if twice else None

    @property
    def names(self) -> tuple[str, ...]:
        """The names, without the patterns."""
        return tuple(pattern for pattern in self.patterns if not self._is_open(pattern))

    @property
    def all_are_names(self) -> bool:
        """Whether there are names only, so that their number is known."""
        return not self._all and len(self.names) == len(self.patterns)

    def has(self, name: str) -> bool:
        """Whether the node with this name takes part; the empty name is that of a node without one."""
        return self._all or any(fnmatchcase(name, pattern) for pattern in self.patterns if name)

    def missing(self, present: Collection[str]) -> list[str]:
        """The names that are not present, and the patterns that none of those present has."""
        return [pattern for pattern in self.patterns if not any(fnmatchcase(name, pattern) for name in present)]

    def _is_open(self, pattern: str) -> bool:
        return "*" in pattern or "?" in pattern
