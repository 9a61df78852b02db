"""Reads `method=A+B`, one name for a whole method: parts of the groups that decide which model is trained.

It knows the names in the tables of these groups, and nothing of what the parts do.
"""

from __future__ import annotations

from collections.abc import Sequence

from client_app.parts import OBJECTIVES, RULES
from fedstride.errors import ConfigError, unknown
from fedstride.parts import Table
from strategies.parts import STRATEGIES

from .overrides import parse

METHOD = "method"
ALL = "all"

PARTS: tuple[Table, ...] = (STRATEGIES, RULES, OBJECTIVES)
"""Tables of the parts of a method. The first part of each is the one of plain federated averaging."""


def plain(table: Table) -> str:
    """The part of this table in plain federated averaging."""
    return table.built_in()[0].name


def alone() -> list[str]:
    """All methods of one part, plain federated averaging first; user-defined parts included."""
    others = [name for table in PARTS for name in table if name != plain(table)]
    return [plain(STRATEGIES), *others]


def names_method(overrides: Sequence[str]) -> bool:
    """Whether one of the overrides is `method=...`."""
    return any(map(_is_method, overrides))


def _is_method(text: str) -> bool:
    return text.partition("=")[0] == METHOD


def expand_method(overrides: Sequence[str]) -> list[str]:
    """Replace `method=A+B` by the overrides that choose these parts, and the plain part in all other groups.

    The names can be in any order, but wrappers are put around the server rule in the given order.
    Raises ConfigError for several values, for an unknown name, for two parts of one group of which none is a
    wrapper, and for another override that chooses a part of the method.
    """
    methods, others = (list(filter(of, overrides)) for of in (_is_method, lambda text: not _is_method(text)))
    if not methods:
        return others
    if len(methods) > 1:
        raise ConfigError(f"{' and '.join(methods)} are given: name all parts in one of them, as in {METHOD}=A+B")
    for text in others:
        key = text.partition("=")[0].partition("@")[0]
        if key in {table.group for table in PARTS}:
            raise ConfigError(
                f"{text!r} is not allowed beside {methods[0]}: add the part to the method, as in A+B"
            )
    parts = parts_of(str(parse(methods)[0].value()))
    return [*others, *(f"{group}={names[0]}" for group, names in parts.items())]


def parts_of(method: str) -> dict[str, list[str]]:
    """The chosen part of each group, as a list of one name; `strategy` as `RULE+WRAPPER`.

    A wrapper alone keeps the strategy that it has by default. Raises ConfigError.
    """
    parts: dict[str, list[str]] = {table.group: [] for table in PARTS}
    for name in method.split("+"):
        parts[_group_of(name, method)].append(name)
    wrappers = [name for name in parts["strategy"] if STRATEGIES.wraps(name)]
    parts["strategy"] = [name for name in parts["strategy"] if name not in wrappers]
    for group, names in parts.items():
        if len(names) > 1:
            both = " and ".join(names)
            raise ConfigError(f"{METHOD} = {method!r} is not allowed: {both} are both {group} parts; name one")
    parts["strategy"] = ["+".join([*parts["strategy"], *wrappers])] if wrappers else parts["strategy"]
    return {table.group: parts[table.group] or [plain(table)] for table in PARTS}


def _group_of(name: str, method: str) -> str:
    groups = [table.group for table in PARTS if name in table]
    if name == ALL and not groups:
        raise ConfigError(f"{METHOD} = {method!r} is not allowed here: use {ALL} alone, in fedstride run -m")
    if not groups:
        raise unknown(METHOD, name, [ALL, *(each for table in PARTS for each in table)])
    if len(groups) > 1:
        raise ConfigError(
            f"{METHOD} = {method!r} is not allowed: {name} is a part of several groups; "
            f"choose it as {' or '.join(f'{group}={name}' for group in groups)}"
        )
    return groups[0]
