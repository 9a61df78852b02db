"""A table with one example in each row: numbers and categories, or texts, and what is to be predicted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from ....errors import ConfigError, DataError, counted
from ...data_toml.dictionary import NUMBER, TEXT, AllowedCells
from ...data_toml.file_form import FileForm
from ...data_toml.site import SiteData
from ...evaluation.holdout import digest_of, stacked
from ...forms.columns import Column, alike, width
from ...forms.tokens import tokens
from ...inputs import Kind
from ...reading import Reading
from ...spec import Spec, Target
from ..checks import quoted, stored_targets
from ..reader_result import ReaderResult
from . import cells, csv_file, parquet_file
from .rows import Rows
from .translated import Read, translated

SUFFIXES = (*csv_file.SUFFIXES, *parquet_file.SUFFIXES)


NOTHING: Mapping[str, AllowedCells] = {}

OF_A_SPREADSHEET = (".xlsx", ".xls", ".xlsm", ".ods")
OF_TEXT = (".tsv", ".tab", ".txt", ".data", ".dat")


def other_table(path: Path) -> str:
    """What to do to read a file as a table, by its name; empty if it is no other form of one."""
    name = path.name.lower()
    if name.endswith(OF_A_SPREADSHEET):
        return "; save the sheet as CSV"
    if name.endswith(OF_TEXT):
        separator = r"\t" if name.endswith((".tsv", ".tab")) else ","
        return f'; if it is a table, say in [file] of a data file format = "csv" and separator = "{separator}"'
    return ""


def possible(spec: Spec) -> bool:
    """Whether examples can be rows of a table."""
    return spec.inputs.kind in (Kind.TABLE, Kind.TOKENS) or bool(spec.reading.signals)


def read(site: SiteData, spec: Spec) -> ReaderResult:
    """The examples in the rows; other columns than those of the task are ignored.

    Raises DataError, with the file and where possible line and column, for data that do not fit the task, and
    ConfigError if the task does not name its columns.
    """
    wanted = list(dict.fromkeys([*inputs_of(spec), *_targets(spec), *([site.id] if site.id else [])]))
    parts = list(_converted(rows_of(site, wanted, numbers(spec)), spec, site))
    if not parts:
        raise DataError(f"{site.path} contains no examples: it has no rows")
    x, y, rows, contents = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if spec.target is Target.CLASS:
        y = y[:, 0].astype(np.int64)
    return ReaderResult(x, stored_targets(y, len(x), spec, str(site.path)), rows, contents)


def inputs_of(spec: Spec) -> list[str]:
    """The columns of which an example consists. Raises ConfigError if the task does not name them."""
    return [column.name for column in _columns(spec)] or list(spec.reading.texts)


def unlabelled(site: SiteData, spec: Spec) -> Iterator[tuple[np.ndarray, Rows]]:
    """The examples in some thousands of rows at a time, without targets, and the rows. See `examples`."""
    said = {} if site.dictionary is None else site.dictionary.columns
    chunks = rows_of(site, inputs_of(spec), _numbers_of_examples(spec))
    return ((examples(rows, spec, said), rows) for rows in chunks)


def examples(rows: Rows, spec: Spec, said: Mapping[str, AllowedCells] = NOTHING) -> np.ndarray:
    """The examples in these rows, to be predicted: a category that the task does not know is a missing one.

    `said`: what a site's data file says of its columns. Raises DataError, with the place, for other cells that are
    not allowed, and for empty ones and unknown categories if the task has no missing cells.
    """
    return _inputs(rows, spec, said, may_be_unknown=True)


def faults(site: SiteData) -> tuple[int, int, list[str]]:
    """The number of rows, that of ids (or of rows again), and what is not as the site's data file says: a line for
    each column, with the cells.

    Raises DataError if the table cannot be read at all.
    """
    assert site.dictionary is not None
    said = site.dictionary.columns
    by_column: dict[str, tuple[int, DataError]] = {}
    wanted = [*said, *([site.id] if site.id and site.id not in said else [])]
    count, ids = 0, set[str]()
    for rows in rows_of(site, wanted, [name for name, column in said.items() if column.kind == NUMBER]):
        count += len(rows)
        for name, cells_of in said.items():
            _count(rows, name, cells_of, by_column)
        if site.id:
            _count(rows, site.id, AllowedCells(TEXT), by_column)
            ids.update(alike(cell) for cell in rows.cells[site.id] if not cells.is_empty(cell))
    if not count:
        raise DataError(f"{site.path} contains no examples: it has no rows")
    return (
        count,
        len(ids) if site.id else count,
        [
            f"column {quoted(name)}: {counted(times, 'cell')}; the first: {error}"
            for name, (times, error) in by_column.items()
        ],
    )


def _count(rows: Rows, name: str, said: AllowedCells, by_column: dict[str, tuple[int, DataError]]) -> None:
    """Count the cells of a column that are not as it is said."""
    for place, error in cells.unfit(rows, name, said):
        times, first = by_column.get(name, (0, None))
        by_column[name] = times + 1, first or rows.error(place, name, error)


def columns_in(site: SiteData) -> list[str]:
    """The names of the columns in a site's table, as the file has them. Raises DataError if it cannot be read."""
    if site.path.name.lower().endswith(parquet_file.SUFFIXES):
        return parquet_file.columns_in(site.path)
    return csv_file.columns_in(site.path, site.form)


def rows_of(site: SiteData, wanted: Sequence[str], numbers: Collection[str]) -> Iterator[Rows]:
    """The rows of a site's table, with the wanted columns as the task writes them."""
    return translated(_reader(site.path, site.form), site.path, wanted, site.form, numbers)


def numbers(spec: Spec) -> list[str]:
    """The columns of numbers: of the examples, and the targets, unless they are classes with names."""
    targets = [] if spec.target is Target.CLASS and spec.names else list(spec.reading.targets)
    return [*_numbers_of_examples(spec), *targets]


def _numbers_of_examples(spec: Spec) -> list[str]:
    return [column.name for column in _columns(spec) if not column.categories]


def _reader(path: Path, form: FileForm) -> Read:
    if path.name.lower().endswith(parquet_file.SUFFIXES):
        return parquet_file.read
    return lambda path, columns: csv_file.read(path, columns, form)


def _columns(spec: Spec) -> list[Column]:
    """The columns of numbers and categories; none for texts."""
    if spec.inputs.kind is Kind.TOKENS:
        return []
    columns = _reading(spec).parsed
    if not columns:
        raise ConfigError("the task does not name the columns of a table, so this node needs an .npz file")
    if (numbers := width(columns) + len(spec.reading.indicators)) != spec.inputs.size:
        raise ConfigError(f"the task's columns give {numbers} numbers, but its examples have {spec.inputs.size}")
    return columns


def _reading(spec: Spec) -> Reading:
    """What the task says of a table, with a column for each sample of a signal."""
    return _of_signals(spec.reading, spec.inputs.shape[-1]) if spec.reading.signals else spec.reading


@lru_cache(maxsize=4)
def _of_signals(reading: Reading, samples: int) -> Reading:
    return replace(reading, columns=reading.of_signals(samples), signals=())


def _inputs(
    rows: Rows, spec: Spec, said: Mapping[str, AllowedCells], *, may_be_unknown: bool = False
) -> np.ndarray:
    if not _columns(spec):
        return _tokens(rows, spec)
    x = cells.inputs(rows, _reading(spec), said, may_be_unknown=may_be_unknown)
    return x.reshape(len(x), *spec.inputs.shape)


def _targets(spec: Spec) -> tuple[str, ...]:
    """The columns of the targets."""
    names = spec.reading.targets
    if len(names) != spec.targets:
        raise ConfigError(f"the task names {len(names)} columns of targets, but needs {spec.targets}")
    return names


def converts_of(spec: Spec) -> list[cells.Convert]:
    """What a cell of each column to predict becomes."""
    of_target: dict[Target, list[cells.Convert]] = {
        Target.CLASS: [cells.class_of(spec.names, spec.outputs)],
        Target.LABELS: [cells.label] * spec.outputs,
        Target.VALUES: [cells.number] * spec.outputs,
        Target.SURVIVAL: [cells.duration, cells.label],
    }
    return of_target[spec.target]


def _converted(chunks: Iterator[Rows], spec: Spec, site: SiteData) -> Iterator[tuple[np.ndarray, ...]]:
    """The examples, the targets and the two digests of each chunk of rows."""
    converts = converts_of(spec)
    said = {} if site.dictionary is None else site.dictionary.columns
    for rows in chunks:
        x = _inputs(rows, spec, said)
        contents = stacked(rows.digests)
        together = stacked(ids_of(rows, site.id)) if site.id else contents
        yield x, cells.targets(rows, spec.reading.targets, converts, said), together, contents


def ids_of(rows: Rows, column: str) -> Iterator[bytes]:
    """A digest for each row that is the same for rows of one id."""
    for position, cell in enumerate(rows.cells[column]):
        if cells.is_empty(cell):
            raise rows.error(position, column, "the id is empty; fill it or delete the row")
        yield digest_of(alike(cell).encode("utf-8", "surrogatepass"))


def _tokens(rows: Rows, spec: Spec) -> np.ndarray:
    texts = [" ".join(parts) for parts in zip(*(rows.cells[name] for name in spec.reading.texts), strict=True)]
    for position, text in enumerate(texts):
        if not text.strip():
            raise rows.error(position, spec.reading.texts[0], "the text is empty; fill it or delete the row")
    return tokens(texts, spec.inputs.shape[0], spec.inputs.vocabulary)
