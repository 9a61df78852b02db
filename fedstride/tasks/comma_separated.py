"""Files of comma-separated values, row by row."""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from ..errors import DataError
from .files import opened

LONGEST_FIELD = 2**30
"""Characters of a field; the default of `csv` is too small for long texts."""


def rows(path: Path, repair: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each row that is not empty; `line` is the row's last one, from 1. `NAME.gz` is unpacked.

    The encoding is UTF-8, with or without a byte order mark. Raises DataError, with file, line and what `repair`
    says, for bytes that are not UTF-8, and for a damaged or truncated file.
    """
    line, limit = 0, csv.field_size_limit(LONGEST_FIELD)
    try:
        with opened(path) as file:
            reader = csv.reader(io.TextIOWrapper(file, encoding="utf-8-sig", newline=""), strict=True)
            for row in reader:
                line = reader.line_num
                if row:  # some editors add an empty line at the end
                    yield line, row
    except csv.Error as error:
        raise DataError(f"{path}, after line {line}: damaged or truncated ({error}); {repair}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, after line {line}: the bytes are not UTF-8; {repair}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged or cannot be read: {error}; {repair}") from error
    finally:
        csv.field_size_limit(limit)
