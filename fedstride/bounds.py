"""Upper bounds of what is accepted from a client besides its arrays."""

from __future__ import annotations

from typing import Final

MAX_METRICS: Final = 1000  # metrics in a reply
MAX_NAME: Final = 200  # characters of a name
MAX_LIST: Final = 10_000  # items of a list
MAX_TEXT: Final = 1_000  # characters of a text
