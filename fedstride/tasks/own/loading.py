"""From a path to the examples: which layout it has, and the copy in the cache.

The arrays are kept in the cache, because in a deployment each message is handled by a new process.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import DataError, printable
from ..cache import cached
from ..files import digest
from ..logmel import FLOOR
from ..reading import PREPARED_VARIABLE
from ..spec import Spec
from ..tokens import RULE
from . import folders, npz, tables
from .checks import quoted

FORM = "form.json"


@dataclass(frozen=True)
class NodeData:
    """A node's examples, in the stored form of the task.

    x (n, ...): images uint8 or float32; signals int16 or float32; frames and tables float32; tokens uint16 or
    int32. A missing number of a table is NaN. y: int64 (n,) of classes, uint8 (n, outputs) of labels, float32
    (n, outputs) of values.
    """

    x: np.ndarray
    y: np.ndarray


def load(path: str | Path, spec: Spec) -> NodeData:
    """The examples at `path`, which must fit the task: memory-mapped and read-only.

    The layouts are described in docs/deployment.md. Raises DataError, one line with the file, what was found and
    what is allowed; ConfigError if the task itself does not say how its files are read.
    """
    if prepared := os.environ.get(PREPARED_VARIABLE):
        return _prepared(Path(prepared), spec)
    try:
        return _load(_resolved(path), spec)
    except DataError as error:  # names of files and texts in them can contain line breaks
        raise DataError(printable(str(error))) from error


def prepare(path: str | Path, spec: Spec, folder: Path) -> int:
    """Write the examples at `path` into this folder, for `load` in another process; their number.

    Raises the errors of `load`.
    """
    source = _resolved(path)
    try:
        arrays = _read(source, _files(source, spec), spec)
    except DataError as error:
        raise DataError(printable(str(error))) from error
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    (folder / FORM).write_text(json.dumps(_form(spec), sort_keys=True))
    return len(arrays["y"])


def _prepared(folder: Path, spec: Spec) -> NodeData:
    """What `prepare` has written. Raises DataError if it is of another form than the message asks for."""
    if (folder / FORM).read_text() != json.dumps(_form(spec), sort_keys=True):
        raise DataError(
            "the node has read its data in another form than this app asks for; use one version of fedstride at "
            "the node and in the app"
        )
    return NodeData(*(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ("x", "y")))


def _resolved(path: str | Path) -> Path:
    """The absolute path. Raises DataError for one that the operating system does not allow."""
    try:
        source = Path(path).expanduser().resolve()
        source.stat()
    except FileNotFoundError:
        return source
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"data = {quoted(str(path), 200)} cannot be read: {str(error)[:200]}") from error
    return source


def _load(source: Path, spec: Spec) -> NodeData:
    files = _files(source, spec)
    key = {"source": str(source), "files": digest(files, source), **_form(spec)}
    arrays = cached("own", key, lambda: _read(source, files, spec))
    return NodeData(arrays["x"], arrays["y"])


def _files(source: Path, spec: Spec) -> list[tuple[Path, int]]:
    """The files with examples; in a folder, each with its class."""
    return folders.labelled_files(source, spec) if source.is_dir() else [(_file(source, spec), 0)]


def _read(source: Path, files: list[tuple[Path, int]], spec: Spec) -> dict[str, np.ndarray]:
    if source.is_dir():
        x, y = folders.read(source, files, spec)
    else:
        x, y = npz.read(source, spec) if source.suffix.lower() == npz.SUFFIX else tables.read(source, spec)
    return {"x": x, "y": y}


def _form(spec: Spec) -> dict[str, object]:
    """Everything of a task on which the arrays depend. Normalisation is done later."""
    flat = {key: value for key, value in spec.flatten().items() if key not in ("spec.mean", "spec.std")}
    return flat | {"words": RULE, "floor": FLOOR}


def _file(source: Path, spec: Spec) -> Path:
    """The path, if it is a file in one of the layouts of this kind of example."""
    layouts = layouts_of(spec)
    if not source.exists():
        raise DataError(f"data = {str(source)!r} does not exist on this node: it must be {layouts}")
    suffixes = (npz.SUFFIX, *(tables.SUFFIXES if spec.inputs.kind in tables.KINDS else ()))
    if not source.is_file() or not source.name.lower().endswith(suffixes):
        raise DataError(f"data = {str(source)!r} cannot be read: it must be {layouts}")
    return source


def layouts_of(spec: Spec) -> str:
    """The layouts for the task's kind of example and target, in words."""
    kind = spec.inputs.kind
    found = [f"an {npz.SUFFIX} file with x and y"]
    if kind in tables.KINDS:
        found.append(f"one table ({', '.join(tables.SUFFIXES)})")
    if folders.possible(spec):
        found.append(f"a folder with one subfolder of {', '.join(folders.SUFFIXES[kind])} files for each class")
    return " or ".join(found)
