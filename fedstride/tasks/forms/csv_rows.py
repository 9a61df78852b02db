"""Files of comma-separated values, row by row."""

from __future__ import annotations

import codecs
import csv
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from ...errors import DataError
from ..files import opened
from .columns import composed

LONGEST_FIELD = 2**30
"""Characters of a field; the default of `csv` is too small for long texts."""

NOT_CLOSED = "unexpected end of data"
CLOSE_IT = "a quotation mark is not closed; within a cell it is written twice"
"""What `csv` says of a cell without its second quotation mark, and what is said in its place."""

MARKS_OF_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def rows(
    path: Path, repair: str, *, separator: str = ",", encoding: str = "utf-8-sig"
) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each row that is not empty; `line` is the row's first one, from 1. `NAME.gz` is unpacked.

    Cells are `composed`.

    The default encoding is UTF-8, with or without a byte order mark. Raises DataError, with file, line and what
    `repair` says, for bytes that are not of the encoding, and for a damaged or truncated file.
    """
    last = 0
    try:
        with opened(path) as file:
            reader = csv.reader(
                io.TextIOWrapper(file, encoding=encoding, newline=""), delimiter=separator, strict=True
            )
            while (row := _next(reader)) is not None:
                first, last = last + 1, reader.line_num
                if row:  # some editors add an empty line at the end
                    yield first, [composed(cell) for cell in row]
    except csv.Error as error:
        what = CLOSE_IT if str(error) == NOT_CLOSED else error
        raise DataError(f"{path}{_after(last)}: damaged or truncated ({what}); {repair}") from error
    except UnicodeDecodeError as error:
        if _begins(path, MARKS_OF_UTF_16):
            repair = 'it is UTF-16: say so in the data file, as in encoding = "utf-16" in [file]'
        name = "UTF-8" if encoding == "utf-8-sig" else encoding
        raise DataError(f"{path}{_after(last)}: the bytes are not {name}; {repair}") from error
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the file itself may be as it should
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        raise DataError(f"{path} is damaged or cannot be read: {error}; {repair}") from error


def _begins(path: Path, marks: tuple[bytes, ...]) -> bool:
    with opened(path) as file:
        return file.read(2) in marks


def _after(line: int) -> str:
    return f", after line {line}" if line else ""


def _next(reader: Iterator[list[str]]) -> list[str] | None:
    """The next row, or None. The limit is the whole process's, so it is changed for one row only."""
    limit = csv.field_size_limit(LONGEST_FIELD)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(limit)
