"""What decides which replies of a round are used: one value, handed through from the configuration to the screen.

Knows the settings alone, so that they are read without flwr; `screening.py` applies them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fedstride.settings import Setting


@dataclass
class Screening:
    """Which replies of a round are used, and how many it needs: one value, handed through as it is."""

    quorum: Annotated[int, Setting("usable replies below which a round changes nothing", least=1)] = 1
    factor: Annotated[
        float | None, Setting("an update so many times longer than the round's median is rejected", above=1)
    ] = 1000.0
