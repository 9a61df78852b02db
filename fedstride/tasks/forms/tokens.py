"""Text as numbers of words, by a fixed rule: any node gets the same numbers without having seen other texts.

A word is a longest sequence of letters and digits of any script (`WORD`), in the lower-cased text in Unicode's
composed form (NFC). Everything else separates words: white space, punctuation, the underscore. Entities such as
`&lt;` are not decoded.

    number(word) = 1 + crc32(UTF-8 of the word) % (vocabulary - 1)

Padding is 0. The number comes from a hash and not from a list of frequent words. Such a list would be made from
the texts of all clients, which no party has. Different words can share a number: of w different words, a share of
about 1 - (1 - 1 / (vocabulary - 1))^(w - 1) shares its number with another one.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator

import numpy as np

from ...errors import require

WORD = re.compile(r"[^\W_]+")
"""A word: letters and digits of any script."""

RULE = f"{WORD.pattern}, lower, NFC, crc32"
"""The whole rule, for the key of a cache entry."""

MOST_UINT16 = 65_536
"""The largest vocabulary whose numbers fit in uint16."""


def tokens(texts: Iterable[str], length: int, vocabulary: int) -> np.ndarray:
    """The numbers of the first `length` words of each text: (n, length), with 0 after the end of a shorter text.

    The dtype is uint16 if `vocabulary` is at most 65,536, else int32. Numbers of words are 1 to `vocabulary` - 1.
    A text without words has zeros only. The texts are read once, one after the other, and are not kept.
    Raises ConfigError for a `length` below 1 or a `vocabulary` below 2.
    """
    require(length >= 1, "length", length, "at least 1")
    require(vocabulary >= 2, "vocabulary", vocabulary, "at least 2, padding included")
    rows = (_row(text, length, vocabulary) for text in texts)
    return np.fromiter(itertools.chain.from_iterable(rows), dtype_for(vocabulary)).reshape(-1, length)


def dtype_for(vocabulary: int) -> type[np.uint16] | type[np.int32]:
    """The dtype in which tokens are stored."""
    return np.uint16 if vocabulary <= MOST_UINT16 else np.int32


def words(text: str) -> Iterator[str]:
    """The words of a text, lower-cased, in order."""
    return (match.group() for match in WORD.finditer(unicodedata.normalize("NFC", text.lower())))


def number(word: str, vocabulary: int) -> int:
    """The number of a word: 1 to `vocabulary` - 1, the same in every process and on every machine."""
    return 1 + zlib.crc32(word.encode()) % (vocabulary - 1)


def _row(text: str, length: int, vocabulary: int) -> list[int]:
    row = [number(word, vocabulary) for word in itertools.islice(words(text), length)]
    return row + [0] * (length - len(row))
