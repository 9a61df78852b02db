"""The settings that decide which replies of a round are used; `screening.py` applies them.

A module of its own, so that the settings can be read without importing flwr.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from fedstride.errors import require
from fedstride.settings import MOST_CLIENTS, Setting, fields_of


@dataclass
class Screening:
    """Which replies of a round are used, how long an update may be, and how many valid replies a round needs."""

    quorum: Annotated[
        int,
        Setting("valid replies that a round needs; with fewer it changes nothing", least=1, most=MOST_CLIENTS),
    ] = 1
    factor: Annotated[
        float | None,
        Setting(
            "an update longer than this factor times the largest median length of a round so far is rejected; "
            "null: no limit",
            above=1,
            across=True,
        ),
    ] = 5.0
    burst: Annotated[
        float,
        Setting(
            "the same for a client whose last three updates were within screening.factor; "
            "a value not above that factor allows nothing more",
            above=1,
            across=True,
        ),
    ] = 10.0
    clip: Annotated[
        float | None,
        Setting(
            "shorten longer updates to this quantile of the round's lengths (0.5: the median) and reject none",
            above=0,
            most=1,
            across=True,
        ),
    ] = None
    max_share: Annotated[
        float | None,
        Setting("largest share of weight of one client; larger counts of examples are lowered", above=0, most=1),
    ] = None


def each_for_itself(screening: Screening) -> Screening:
    """The screening without what compares the updates of clients. Raises ConfigError if such a thing was chosen.

    Before updates are clipped, one client could change what is used of all others.
    """
    across = [field for field in fields_of(type(screening)).values() if field.setting.across]
    for field in across:
        value = getattr(screening, field.name)
        require(
            value is None or value == field.default,
            f"screening.{field.name}",
            value,
            "left out with privacy: it compares updates before they are clipped, so one client could change those "
            "of others by more than the clipping norm; privacy clips each update by itself",
        )
    off: dict[str, Any] = {field.name: None for field in across if field.may_be_none}
    return replace(screening, **off)
