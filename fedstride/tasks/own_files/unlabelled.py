"""Examples of which the target is to be predicted: from files as a node has them, without targets and classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ..data_toml.site import read_form_of
from ..files import files_in
from ..spec import Spec
from .checks import stored_examples
from .readers import folders, npz
from .tables import table_file
from .tables.rows import IN_MEMORY, Rows, positions


class Unlabelled(NamedTuple):
    """Examples in the stored form of the task, (n, ...), and where each is in its source."""

    x: np.ndarray
    where: list[str]
    unit: str  # line, row or file


def read(source: Path, spec: Spec) -> Unlabelled:
    """The examples of a table, of an .npz file with x, of a file of one example, or of all such files in a folder.

    `source` can also be a site's own file about a table (`data.toml`), which says how it is written.

    Of a table, other columns than those of the task are ignored. Where the task takes an empty cell for the mean
    of its column, it does so with a category that it does not know. Raises DataError, with the place, for what
    does not fit the task.
    """
    site = read_form_of(source)
    source = site.path
    if not source.exists():
        raise DataError(f"{source} does not exist: name a table, an {npz.SUFFIX} file, or a folder")
    if source.is_dir() or source.name.lower().endswith(folders.SUFFIXES.get(spec.inputs.kind, ())):
        return _of_files(source, spec)
    if source.suffix.lower() == npz.SUFFIX:
        return of_array(npz.inputs(source, spec), spec, str(source))
    if site.is_table and table_file.possible(spec):
        return _joined(table_file.unlabelled(site, spec), source)
    other = table_file.other_table(source) if table_file.possible(spec) else ""
    raise DataError(f"{source} cannot be read as examples of kind {spec.inputs.kind}: {_possible(spec)}{other}")


def of_frame(columns: Sequence[str], rows: Iterable[Sequence[Any]], spec: Spec) -> Unlabelled:
    """The examples of a table in memory: its columns, and the values of each row.

    None and NaN are empty cells. Raises DataError as `read` does; the table is called `table` in it.
    """
    if not table_file.possible(spec):
        raise DataError(f"a table cannot be read as examples of kind {spec.inputs.kind}: {_possible(spec)}")
    names = [str(name).strip() for name in columns]
    wanted = table_file.inputs_of(spec)
    places = positions(Path("table"), names, wanted, IN_MEMORY)
    values = [[_text(row[place]) for place in places] for row in rows]
    cells = {name: [row[at] for row in values] for at, name in enumerate(wanted)}
    part = Rows(Path("table"), "row", range(1, len(values) + 1), cells, [b""] * len(values))
    return _joined(iter([(table_file.examples(part, spec), part)] if values else []), Path("table"))


def of_array(x: np.ndarray, spec: Spec, source: str = "array") -> Unlabelled:
    """The examples of an array (n, ...), in the form of an .npz file."""
    examples = stored_examples(x, spec, source)
    return Unlabelled(examples, [str(number) for number in range(1, len(examples) + 1)], "row")


def _joined(parts: Iterator[tuple[np.ndarray, Rows]], source: Path) -> Unlabelled:
    chunks = [(x, [str(number) for number in rows.numbers], rows.unit) for x, rows in parts]
    if not chunks:
        raise DataError(f"{source} contains no examples: it has no rows")
    return Unlabelled(
        np.concatenate([x for x, _, _ in chunks]), [name for _, names, _ in chunks for name in names], chunks[0][2]
    )


def _of_files(source: Path, spec: Spec) -> Unlabelled:
    if spec.inputs.kind not in folders.SUFFIXES:
        raise DataError(f"{source} cannot be read as examples of kind {spec.inputs.kind}: {_possible(spec)}")
    files = _files(source)
    if not files:
        raise DataError(f"{source} contains no examples: it is empty")
    where = [file.relative_to(source).as_posix() if source.is_dir() else file.name for file in files]
    return Unlabelled(folders.READERS[spec.inputs.kind](files, spec), where, "file")


def _files(source: Path) -> list[Path]:
    """The files in a folder, or in its subfolders if it has nothing else, as for training; or the file itself."""
    if not source.is_dir():
        return [source]
    found = files_in(source)
    return [file for each in found for file in files_in(each)] if all(map(Path.is_dir, found)) else found


def _possible(spec: Spec) -> str:
    layouts = [f"an {npz.SUFFIX} file with x"]
    if table_file.possible(spec):
        layouts.append(f"a table ({', '.join(table_file.SUFFIXES)})")
    if spec.inputs.kind in folders.SUFFIXES:
        layouts.append(f"a folder of files ({', '.join(folders.SUFFIXES[spec.inputs.kind])}), or one such file")
    return f"it must be {' or '.join(layouts)}"


def _text(value: Any) -> str:
    """A value of a table in memory as it would be in a CSV file."""
    if value is None or (isinstance(value, float) and value != value) or str(value) == "<NA>":
        return ""
    return str(int(value)) if isinstance(value, (bool, np.bool_)) else str(value)
