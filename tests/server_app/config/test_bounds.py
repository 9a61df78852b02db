"""Every number of a configuration is bounded: no setting turns into a loop without end or a size beyond memory."""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from fedstride.errors import ConfigError
from fedstride.parts import USER_PARTS
from fedstride.settings import Field, fields_of
from server_app.config.compose import compose
from server_app.config.schema import TABLES, Config
from strategies.replies.screening_settings import Screening


def settings() -> Iterator[tuple[str, Field]]:
    """Every setting of the run, of the screening and of every built-in part, with its owner."""
    yield from (("run", field) for field in fields_of(Config).values())
    yield from (("screening", field) for field in fields_of(Screening).values())
    for group, table in TABLES.items():
        for name in sorted(set(table) - set(USER_PARTS.get(group, {}))):
            yield from ((f"{group}={name}", field) for field in table.all_fields(name).values())


def numbers(field: Field, kind: type) -> bool:
    """Whether values of this type, or lists of them, are allowed."""
    return any(kind in (each, *typing.get_args(each)) for each in field.kinds)


ALL = list(settings())


def test_the_list_has_all_tables() -> None:
    assert {owner.partition("=")[0] for owner, _ in ALL} == {"run", "screening", *TABLES}
    assert sum(numbers(field, int) for _, field in ALL) > 20


def test_every_whole_number_has_two_bounds() -> None:
    missing = {
        f"{owner}: {field.name}"
        for owner, field in ALL
        if numbers(field, int)
        and (
            (field.setting.least is None and field.setting.above is None)
            or (field.setting.most is None and field.setting.below is None)
        )
    }
    assert not missing


@pytest.mark.parametrize("kind", [int, float])
def test_no_number_is_infinite_or_undefined(kind: type) -> None:
    for owner, field in ALL:
        if numbers(field, kind):
            for value in (math.inf, -math.inf, math.nan, 10**400):
                with pytest.raises(ConfigError):
                    field.check(f"{owner}.{field.name}", value)


HUGE: dict[str, Any] = {
    "rounds": 10**21,
    "clients": 10**9,
    "cohort": 10**9,
    "patience": 10**9,
    "client.local_steps": 10**9,
    "client.batch_size": 10**12,
    "client.local_epochs": 10**9,
    "client.threads": 10**6,
    "screening.quorum": 10**9,
    "partition.min_size": 10**12,
    "node_wait": 1e300,
    "timeout": 1e300,
}


@pytest.mark.parametrize("key", HUGE)
def test_a_huge_number_is_refused_with_its_range(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([f"{key}={HUGE[key]}"])
    assert key.rpartition(".")[2] in str(caught.value)
    assert "must be a" in str(caught.value)
