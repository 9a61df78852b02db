"""The settings that decide which replies of a round are used; `screening.py` applies them.

A module of its own, so that the settings can be read without importing flwr.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fedstride.settings import Setting


@dataclass
class Screening:
    """Which replies of a round are used, and how many valid replies a round needs."""

    quorum: Annotated[int, Setting("valid replies that a round needs; with fewer it changes nothing", least=1)] = 1
    factor: Annotated[
        float | None,
        Setting("an update longer than this factor times the round's median is rejected", above=1),
    ] = 1000.0
