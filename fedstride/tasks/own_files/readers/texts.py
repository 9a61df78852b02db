"""Text files as examples: the numbers of their words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ....errors import DataError
from ...forms.tokens import tokens
from ...spec import Spec
from .many_files import each_of

SUFFIXES = (".txt",)


def read(files: Sequence[Path], spec: Spec) -> np.ndarray:
    """The tokens (n, length) of the texts, uint16 or int32 as `tokens` says.

    Raises DataError, with the file, for one that is empty or not UTF-8.
    """
    return tokens(each_of(files, SUFFIXES, _text), spec.inputs.shape[0], spec.inputs.vocabulary)


def _text(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: byte {error.start + 1} is not UTF-8; save the text as UTF-8") from error
    if not text.strip():
        raise DataError(f"{file} is empty: delete it, or write a text into it")
    return text
