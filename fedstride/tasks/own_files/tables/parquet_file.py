"""A table in a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ....errors import DataError
from ...forms.columns import composed
from .rows import CHUNK, RowDigests, Rows, positions

SUFFIXES = (".parquet",)


def read(path: Path, columns: Sequence[str]) -> Iterator[Rows]:
    """The rows with these columns, each value as text; null becomes an empty text, true and false 1 and 0.

    Raises DataError if pyarrow is not installed, for a file that is damaged or no Parquet file, and for columns
    that are missing.
    """
    start = 1
    with _opened(path) as file:
        names = list(file.schema_arrow.names)
        wanted, digests = positions(path, names, columns), RowDigests(names)
        for batch in file.iter_batches(batch_size=CHUNK):
            numbers = range(start, start := start + batch.num_rows)
            all_cells = [[_text(value) for value in column.to_pylist()] for column in batch.columns]
            cells = {name: all_cells[at] for name, at in zip(columns, wanted, strict=True)}
            yield Rows(path, "row", numbers, cells, [digests.of(row) for row in zip(*all_cells, strict=True)])


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


def _text(value: Any) -> str:
    """A value as it would be in a CSV file; a float keeps all its digits."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else composed(str(value))
