"""What the text data sets share: their settings, and how texts become arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import numpy as np

from ...settings import Setting
from ..forms.tokens import RULE, tokens
from ..inputs import Inputs, Kind
from ..spec import Spec

Length = Annotated[
    int, Setting("words of a text; shorter texts are padded, longer ones cut", least=1, most=100_000)
]
Vocabulary = Annotated[
    int,
    Setting("number of different tokens, padding included; words are hashed to them", least=2, most=10_000_000),
]
"""The settings that all text data sets have."""


def text_spec(length: int, vocabulary: int, names: tuple[str, ...]) -> Spec:
    """Texts of tokens, to classify."""
    return Spec(Inputs(Kind.TOKENS, (length,), vocabulary), len(names), names=names)


def text_key(length: int, vocabulary: int) -> dict[str, Any]:
    """What the arrays of texts depend on, in addition to the files."""
    return {"length": length, "vocabulary": vocabulary, "words": RULE}


def text_arrays(rows: Iterable[tuple[int, str]], length: int, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (n, length) and labels int64 (n,) of (label, text) rows, which are read once and not kept."""
    labels: list[int] = []

    def texts() -> Iterator[str]:
        for label, text in rows:
            labels.append(label)
            yield text

    return tokens(texts(), length, vocabulary), np.array(labels, dtype=np.int64)
