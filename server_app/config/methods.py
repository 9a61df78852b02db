"""Reads `method=A+B`, one name for a whole method: parts of the groups that decide which model is trained.

It knows the names in the tables of these groups, and nothing of what the parts do.
"""

from __future__ import annotations

from collections.abc import Sequence

from client_app.registry import OBJECTIVES, RULES
from fedstride.errors import ConfigError, unknown
from fedstride.parts import Table
from strategies.registry import STRATEGIES

from .overrides import Override, written

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


def method_in(overrides: Sequence[Override]) -> str | None:
    """The value of `method=...`; None if it is not given. Raises ConfigError if it is given twice."""
    given = [override for override in overrides if override.key == METHOD]
    if len(given) > 1:
        both = " and ".join(override.text for override in given)
        raise ConfigError(f"{both} are given: name all parts in one of them, as in {METHOD}=A+B")
    return given[0].name if given else None


def expand_method(overrides: Sequence[Override]) -> list[Override]:
    """Replace `method=A+B` by the overrides that choose these parts, and the plain part in all other groups.

    Raises ConfigError for a method that is not allowed (see `method_in`, `parts_of`), and for another override
    that chooses a part of the method.
    """
    method = method_in(overrides)
    if method is None:
        return list(overrides)
    others = [override for override in overrides if override.key != METHOD]
    for override in others:
        if override.key in {table.group for table in PARTS}:
            raise ConfigError(
                f"{override.text!r} is not allowed beside {METHOD}={method}: add the part to the method, as in A+B"
            )
    return [*others, *(written(group, name) for group, name in parts_of(method).items())]


def parts_of(method: str) -> dict[str, str]:
    """The part of each group, the strategy as `RULE+WRAPPER`; a wrapper alone keeps its default rule.

    The names can be in any order, but wrappers are put around the server rule in the given order.
    Raises ConfigError for an unknown name, and for two parts of one group of which none is a wrapper.
    """
    parts = {}
    for table in PARTS:
        of_group = [name for name in method.split("+") if _group_of(name, method) == table.group]
        wrappers = [name for name in of_group if table.wraps(name)]
        others = [name for name in of_group if name not in wrappers]
        if len(others) > 1:
            both = " and ".join(others)
            raise ConfigError(
                f"{METHOD} = {method!r} is not allowed: {both} are both {table.group} parts; name one"
            )
        parts[table.group] = "+".join([*others, *wrappers]) or plain(table)
    return parts


def label_of(method: str) -> str:
    """The strategy of this method as in the papers' tables, with the plain rule inside a wrapper that has none."""
    strategy = parts_of(method)[STRATEGIES.group]
    is_around = STRATEGIES.wraps(strategy.partition("+")[0])
    return f"{plain(STRATEGIES)}+{strategy}" if is_around else strategy


def _group_of(name: str, method: str) -> str:
    groups = [table.group for table in PARTS if name in table]
    if name == ALL and not groups:
        raise ConfigError(f"{METHOD} = {method!r} is not allowed here: use {ALL} alone, in fedstride run -m")
    if not groups:
        raise unknown(METHOD, name, [ALL, *(part for table in PARTS for part in table)])
    if len(groups) > 1:
        raise ConfigError(
            f"{METHOD} = {method!r} is not allowed: {name} is a part of several groups; "
            f"choose it as {' or '.join(f'{group}={name}' for group in groups)}"
        )
    return groups[0]
