"""Reads `method=A+B`, one name for a whole method: parts of the groups that decide which model is trained.

It knows the names in the tables of these groups, and nothing of what the parts do.
"""

from __future__ import annotations

from collections.abc import Sequence

from client_app.parts import OBJECTIVES, RULES
from fedstride.errors import ConfigError, unknown
from fedstride.parts import Table
from strategies.parts import STRATEGIES

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


def expand_method(overrides: Sequence[str]) -> list[str]:
    """Replace `method=A+B` by the overrides that choose these parts, and the plain part in all other groups.

    The names can be in any order, but wrappers are put around the server rule in the given order.
    Raises ConfigError for an unknown name, for two parts of one group of which none is a wrapper, and for another
    override that chooses a part of the method.
    """
    named = [text for text in overrides if text.partition("=")[0] == METHOD]
    if not named:
        return list(overrides)
    others = [text for text in overrides if text not in named]
    for text in others:
        key = text.partition("=")[0].partition("@")[0]
        if key in {table.group for table in PARTS}:
            raise ConfigError(f"{text!r} is not allowed beside {named[-1]}: add the part to the method, as in A+B")
    return [*others, *_chosen(named[-1].partition("=")[2])]


def _chosen(method: str) -> list[str]:
    parts: dict[str, list[str]] = {table.group: [] for table in PARTS}
    for name in method.split("+"):
        parts[_group_of(name, method)].append(name)
    rules = [name for name in parts["strategy"] if not STRATEGIES.wraps(name)]
    wrappers = [name for name in parts["strategy"] if STRATEGIES.wraps(name)]
    for group, names in {**parts, "strategy": rules}.items():
        if len(names) > 1:
            both = " and ".join(names)
            raise ConfigError(f"{METHOD} = {method!r} is not allowed: {both} are both {group} parts; name one")
    parts["strategy"] = ["+".join([*rules, *wrappers])] if rules or wrappers else []
    return [f"{table.group}={(parts[table.group] or [plain(table)])[0]}" for table in PARTS]


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
