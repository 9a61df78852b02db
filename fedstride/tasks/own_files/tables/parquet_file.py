"""A table in a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import DataError
from ...forms.columns import composed
from ..checks import quoted
from .rows import CHUNK, RowDigests, Rows, positions

SUFFIXES = (".parquet",)


def read(path: Path, columns: Sequence[str]) -> Iterator[Rows]:
    """The rows with these columns, each value as text; null becomes an empty text, true and false 1 and 0.

    Bytes are text in UTF-8. Raises DataError if pyarrow is not installed, for a file that is damaged or no Parquet
    file, for columns that are missing, and for one that is no text: lists, and bytes that are not UTF-8.
    """
    start = 1
    with _opened(path) as file:
        names = list(file.schema_arrow.names)
        wanted, digests = positions(path, names, columns), RowDigests(names)
        types = {
            name: _value_type(path, file.schema_arrow.field(at)) for name, at in zip(columns, wanted, strict=True)
        }
        stored = {name: dtype for name, of in types.items() if (dtype := _stored(of)) is not None}
        for batch in file.iter_batches(batch_size=CHUNK):
            numbers = range(start, start := start + batch.num_rows)
            all_cells = [[_text(value) for value in column.to_pylist()] for column in batch.columns]
            cells = {name: all_cells[at] for name, at in zip(columns, wanted, strict=True)}
            for name, at in zip(columns, wanted, strict=True):  # the digests stay those of the bytes
                if _is_bytes(types[name]):
                    cells[name] = _decoded(path, name, types[name], numbers, batch.columns[at].to_pylist())
            yield Rows(
                path, "row", numbers, cells, [digests.of(row) for row in zip(*all_cells, strict=True)], stored
            )


def columns_in(path: Path) -> list[str]:
    """The names of all columns. Raises DataError as `read` does."""
    with _opened(path) as file:
        return [composed(name) for name in file.schema_arrow.names]


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file, open. What goes wrong with it within becomes a DataError."""
    try:
        import pyarrow  # imported here, because most processes read the arrays from the cache
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(f"{path} needs the package pyarrow ({error}); pip install pyarrow") from error
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{path} is damaged or not a Parquet file: {reason[:200]}; write it again") from error


def _value_type(path: Path, column: Any) -> Any:
    """The type of the values of a column. Raises DataError if they are lists or the like."""
    from pyarrow import types

    of = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_nested(of):
        raise DataError(
            f"{path}, column {quoted(column.name)}: its type {quoted(str(of))} is no number and no text; write a "
            "column for each of its values"
        )
    return of


def _stored(of: Any) -> type[np.generic] | None:
    """The type of numbers; None for all that is read as text. Decimals are exact, so they are as float64 here."""
    from pyarrow import types

    if types.is_boolean(of):
        return np.bool_
    if types.is_float16(of) or types.is_float32(of):
        return np.float16 if types.is_float16(of) else np.float32
    return np.float64 if types.is_integer(of) or types.is_floating(of) or types.is_decimal(of) else None


def _is_bytes(of: Any) -> bool:
    return str(of).startswith(("binary", "large_binary", "fixed_size_binary"))


def _decoded(path: Path, name: str, of: Any, numbers: Sequence[int], values: Sequence[bytes | None]) -> list[str]:
    cells = []
    for number, value in zip(numbers, values, strict=True):
        try:
            cells.append(composed((value or b"").decode()))
        except UnicodeDecodeError:
            raise DataError(
                f"{path}, row {number}, column {quoted(name)}: its type is {of}, and its bytes are not text in "
                "UTF-8; write the column as text (string)"
            ) from None
    return cells


def _text(value: Any) -> str:
    """A value as it would be in a CSV file; a float keeps all its digits."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else composed(str(value))
