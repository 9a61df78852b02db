"""From a path to the examples: which layout it has, and the copy in the cache.

The arrays are kept in the cache, because in a deployment each message is handled by a new process.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import DataError, printable
from ..cache import cached
from ..files import digest
from ..logmel import FLOOR
from ..spec import Spec
from ..tokens import RULE
from . import folders, npz, tables
from .checks import quoted


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
    try:
        return _load(_resolved(path), spec)
    except DataError as error:  # names of files and texts in them can contain line breaks
        raise DataError(printable(str(error))) from error


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
    folder = source.is_dir()
    files = folders.labelled_files(source, spec) if folder else [(_file(source, spec), 0)]

    def make() -> dict[str, np.ndarray]:
        if folder:
            x, y = folders.read(source, files, spec)
        else:
            x, y = npz.read(source, spec) if source.suffix.lower() == npz.SUFFIX else tables.read(source, spec)
        return {"x": x, "y": y}

    arrays = cached("own", {"source": str(source), "files": digest(files, source), **_form(spec)}, make)
    return NodeData(arrays["x"], arrays["y"])


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
