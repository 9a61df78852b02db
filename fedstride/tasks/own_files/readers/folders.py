"""A folder with one subfolder for each class, which contains a file for each example."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ....errors import DataError, nearest
from ...evaluation.holdout import digest_of, stacked
from ...files import files_in
from ...forms.columns import alike
from ...inputs import Kind
from ...spec import Spec
from ..checks import quoted
from ..reader_result import ReaderResult
from ..tables import table_file
from . import images, sounds, texts

SUFFIXES: Mapping[Kind, tuple[str, ...]] = {
    Kind.IMAGE: images.SUFFIXES,
    Kind.SIGNAL: sounds.SUFFIXES,
    Kind.FRAMES: sounds.SUFFIXES,
    Kind.TOKENS: texts.SUFFIXES,
}
"""The files of each kind of example that has one file for each."""

READERS: Mapping[Kind, Callable[[Sequence[Path], Spec], np.ndarray]] = {
    Kind.IMAGE: images.read,
    Kind.SIGNAL: sounds.read,
    Kind.FRAMES: sounds.read,
    Kind.TOKENS: texts.read,
}
"""(files, spec) -> stored examples (n, ...)."""


def possible(spec: Spec) -> bool:
    """Whether a folder can contain this task's examples."""
    return spec.inputs.kind in SUFFIXES and spec.classes > 0


def labelled_files(source: Path, spec: Spec) -> list[tuple[Path, int]]:
    """The files of all examples with their classes, class by class and sorted by name.

    Raises DataError if a folder is not a layout of this task, or if the classes are not what it needs.
    """
    if not possible(spec):
        what = f"of kind {spec.inputs.kind}" if spec.classes else f"with {spec.target} to predict"
        raise DataError(
            f"data = {str(source)!r} is a folder, but examples {what} must be in one file: .npz"
            + (f", {', '.join(table_file.SUFFIXES)}" if table_file.possible(spec) else "")
        )
    return [(file, label) for label, folder in _classes(source, spec) for file in files_in(folder)]


def read(source: Path, files: Sequence[tuple[Path, int]], spec: Spec) -> ReaderResult:
    """The examples in the files. Raises DataError for those that do not fit the task, also by their names."""
    if not files:
        raise DataError(f"{source} contains no examples in its subfolders")
    x = READERS[spec.inputs.kind]([file for file, _ in files], spec)
    digests = stacked(digest_of(_content(file)) for file, _ in files)
    return ReaderResult(x, np.array([label for _, label in files], dtype=np.int64), digests, digests)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error


def _classes(source: Path, spec: Spec) -> list[tuple[int, Path]]:
    """The subfolders with their classes: by the task's class names, or in the order of their own if it has none.

    Names that are all numbers are sorted by their value. Raises DataError if a subfolder is not named after a
    class of the task, or if a task without names has another number of classes: labels would be shifted.
    """
    subfolders = [path for path in files_in(source) if path.is_dir()]
    known = {alike(name): label for label, name in enumerate(spec.names)}
    strange = [path.name for path in subfolders if alike(path.name) not in known]
    if subfolders and not strange:
        return sorted((known[alike(path.name)], path) for path in subfolders)
    if strange and known:
        hint = f" (did you mean {close[0]!r}?)" if (close := nearest(strange[0], known, 1)) else ""
        raise DataError(
            f"{source / strange[0]} is not named after a class of the task{hint}; the classes are "
            f"{quoted(', '.join(spec.names), 200)}"
        )
    if len(subfolders) != spec.classes:
        raise DataError(f"{source} has {len(subfolders)} subfolders, but needs {_needed(source, spec)}")
    numbers = all(path.name.isascii() and path.name.isdigit() for path in subfolders)
    return list(enumerate(sorted(subfolders, key=lambda path: (int(path.name) if numbers else 0, path.name))))


def _needed(source: Path, spec: Spec) -> str:
    """What a folder with another number of subfolders should be, in words."""
    if any(path.name.lower().endswith(table_file.SUFFIXES) for path in files_in(source)):
        return "one for each class; a folder with tables is not read: give the path of one table"
    if spec.names:
        return f"subfolders that are named after classes of the task: {quoted(', '.join(spec.names), 200)}"
    return (
        f"one for each of the task's {spec.classes} classes; create an empty subfolder for a class without "
        "examples on this node"
    )
