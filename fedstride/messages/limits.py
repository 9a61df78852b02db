"""How much of what a node sends is read and recorded, in one place: a node is a stranger to the server."""

from __future__ import annotations

from typing import Final

MAX_METRICS: Final = 4_000  # metrics in a reply, and values in its other records
MAX_NAME: Final = 200  # characters of the name of a record or a value
MAX_LIST: Final = 10_000  # items of a list
MAX_TEXT: Final = 1_000  # characters of a text, and bytes of a value of bytes
MAX_RECORDS: Final = 100  # records in a reply

SPARE_BYTES: Final = 4 * 2**20  # bytes of a reply beyond its arrays, and of arrays beyond those expected
PLAIN_BYTES: Final = 2**20  # bytes of everything in a reply that must be parsed: all but the arrays' data
SPARE_ARRAYS: Final = 100  # arrays beyond those expected, so that a reply with another model is named as such
