"""From a path to the examples: which layout it has, and the copy in the cache.

The arrays are kept in the cache, because in a deployment each message is handled by a new process.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from ...errors import DataError, printable
from ..cache import cached
from ..data_toml.site import SiteData, read_site
from ..evaluation.holdout import draws_of, key_of
from ..files import digest
from ..forms.columns import ALIKE
from ..forms.images import UPRIGHT
from ..forms.logmel import FLOOR
from ..forms.tokens import RULE
from ..reading import PREPARED_VARIABLE
from ..spec import NORMALISATION, Spec
from ..statistics.example_digests import keyed
from ..statistics.over_sites import Report
from .checks import quoted
from .reader_result import ReaderResult
from .readers import folders, npz
from .tables import table_file, translated

FORM = "form.json"
ARRAYS = ("x", "y", "marks")


@dataclass(frozen=True)
class NodeData:
    """A node's examples, in the stored form of the task.

    x (n, ...): images uint8 or float32; signals int16 or float32; frames and tables float32; tokens uint16 or
    int32. A missing number of a table is NaN. y: int64 (n,) of classes, uint8 (n, outputs) of labels, float32
    (n, outputs) of values.

    `marks`: the draws of the hold-out, uint64 (n,), or the digests from which they are drawn, uint8 (n, 16).
    `content`: the digest of all of them (`ReaderResult.content`); where there are draws, already with the key.
    `key`: the site's own for both. `said`: what the node says of its columns; None: what they are. `min_rows`:
    the smallest number of rows of which the node says something.
    """

    x: np.ndarray
    y: np.ndarray
    marks: np.ndarray
    content: bytes
    key: bytes | None = None
    said: Report | None = None
    min_rows: int = 1
    order: bytes | None = None  # the site's own key of the order of examples; None: the run's seed decides

    def draws(self, split_seed: int) -> np.ndarray:
        """The draws of the hold-out, uint64 (n,). The seed counts only where the site has no secret of its own."""
        if self.marks.ndim == 1:
            return self.marks
        return _draws(self.marks.tobytes(), self.key or key_of(split_seed))

    def content_as_kept(self, split_seed: int) -> bytes:
        """The digest of the examples, as this client keeps it: with the site's own key, or that of the seed."""
        return self.content if self.marks.ndim == 1 else keyed(self.content, self.key or key_of(split_seed))


def load(path: str | Path, spec: Spec) -> NodeData:
    """The examples at `path`, which must fit the task: memory-mapped and read-only.

    `path`: the data, or a site's own file about them. The layouts are described in docs/node-data.md. Raises
    DataError, one line with the file, what was found and what is allowed; ConfigError if the task itself does not
    say how its files are read, or asks for what the site's file does not have.
    """
    if folder := os.environ.get(PREPARED_VARIABLE):
        return _prepared(Path(folder), spec)
    site = read_site(resolved(path))
    site = replace(site, path=resolved(site.path))
    site.check(spec)
    try:
        return _load(site, spec)
    except DataError as error:  # names of files and texts in them can contain line breaks
        raise DataError(printable(str(error))) from error


def _prepared(folder: Path, spec: Spec) -> NodeData:
    """What `node_process.prepared` has written. Raises DataError if the message asks for another form."""
    about = json.loads((folder / FORM).read_text())
    if about["form"] != json.loads(json.dumps(of_task(spec))):
        raise DataError(
            "the node has read its data in another form than this app asks for; use one version of fedstride at "
            "the node and in the app"
        )
    x, y, marks = (np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ARRAYS)
    said = None if about["moments"] is None else Report.unflatten(about["moments"], spec)
    order = about["order"] and bytes.fromhex(about["order"])
    content = bytes.fromhex(about["content"])
    return NodeData(x, y, marks, content, said=said, min_rows=about["min_rows"], order=order)


@lru_cache(maxsize=16)
def _draws(digests: bytes, key: bytes) -> np.ndarray:
    return draws_of(np.frombuffer(digests, np.uint8), key)


def resolved(path: str | Path) -> Path:
    """The absolute path. Raises DataError for one that the operating system does not allow."""
    try:
        source = Path(path).expanduser().resolve()
        source.stat()
    except FileNotFoundError:
        return source
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"data = {quoted(str(path), 200)} cannot be read: {str(error)[:200]}") from error
    return source


def _load(site: SiteData, spec: Spec) -> NodeData:
    those = files(site, spec)
    key = {
        "source": str(site.path),
        "files": digest(those, site.path),
        "cells": translated.RULE,
        **form(site, spec),
    }

    def arrays() -> dict[str, np.ndarray]:
        examples = examples_in(site, those, spec)
        content = np.frombuffer(examples.content(), np.uint8)
        return {"x": examples.x, "y": examples.y, "rows": examples.rows, "content": content}

    entry = cached("own", key, arrays)
    return NodeData(entry["x"], entry["y"], entry["rows"], entry["content"].tobytes(), site.key, order=site.order)


def files(site: SiteData, spec: Spec) -> list[tuple[Path, int]]:
    """The files with examples; in a folder, each with its class."""
    return folders.labelled_files(site.path, spec) if site.path.is_dir() else [(_file(site, spec), 0)]


def examples_in(site: SiteData, those: list[tuple[Path, int]], spec: Spec) -> ReaderResult:
    """The examples in these files of `files`. Raises the errors of `load`."""
    if site.path.is_dir():
        return folders.read(site.path, those, spec)
    return npz.read(site.path, spec) if site.path.suffix.lower() == npz.SUFFIX else table_file.read(site, spec)


def form(site: SiteData, spec: Spec) -> dict[str, object]:
    """Everything of a site's file and of a task on which the arrays depend."""
    return {
        **of_task(spec),
        "id": site.id,
        "columns": site.is_table,
        "dictionary": repr(site.dictionary),
        "file": repr(site.form),
    }


def of_task(spec: Spec) -> dict[str, object]:
    """Everything of a task on which the arrays depend. Normalisation is done later."""
    flat = {key: value for key, value in spec.flatten().items() if key not in NORMALISATION}
    return flat | {"words": RULE, "floor": FLOOR, "turned": UPRIGHT, "names": ALIKE}


def _file(site: SiteData, spec: Spec) -> Path:
    """The path, if it is a file in one of the layouts of this kind of example."""
    source, layouts = site.path, layouts_of(spec)
    if not source.exists():
        raise DataError(f"data = {str(source)!r} does not exist on this node: it must be {layouts}")
    is_table = site.is_table and table_file.possible(spec)
    if not source.is_file() or not (is_table or source.suffix.lower() == npz.SUFFIX):
        raise DataError(f"data = {str(source)!r} cannot be read: it must be {layouts}{other_form(source, spec)}")
    return source


def other_form(source: Path, spec: Spec) -> str:
    """What to do about a table in another form, if examples can be rows of one."""
    return table_file.other_table(source) if table_file.possible(spec) and source.is_file() else ""


def layouts_of(spec: Spec) -> str:
    """The layouts for the task's kind of example and target, in words."""
    kind = spec.inputs.kind
    layouts = [f"an {npz.SUFFIX} file with x and y"]
    if table_file.possible(spec):
        layouts.append(f"one table ({', '.join(table_file.SUFFIXES)})")
    if folders.possible(spec):
        layouts.append(f"a folder with one subfolder of {', '.join(folders.SUFFIXES[kind])} files for each class")
    return " or ".join(layouts)
