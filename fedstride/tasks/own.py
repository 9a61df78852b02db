"""Reads a node's own examples, from an `.npz` file or a folder with one subfolder for each class.

The examples are checked against the task. The arrays are kept in the cache, because in a deployment each message
is handled by a new process.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError
from .cache import cached

SUFFIXES = (".png", ".jpg", ".jpeg")
MODES = {1: ("L", "1"), 3: ("RGB", "P"), 4: ("RGBA",)}  # Pillow's image modes, by number of channels
LAYOUTS = "an .npz file with images and labels, or a folder with one subfolder for each class"


@dataclass(frozen=True)
class NodeData:
    """A node's examples: images uint8 (n, channels, height, width), labels int64 (n,)."""

    x: np.ndarray
    y: np.ndarray


def load(path: str | Path, shape: tuple[int, ...], classes: int) -> NodeData:
    """The examples at `path`. They must have the task's shape (channels, height, width) and number of classes.

    Raises DataError with the file, what was found and what is allowed.
    """
    source = Path(path).expanduser().resolve()
    if source.is_dir():
        files = _labelled_files(source, classes)
    elif source.suffix == ".npz" and source.is_file():
        files = [(source, 0)]
    elif source.exists():
        raise DataError(f"data = {str(source)!r} cannot be read: it must be {LAYOUTS}")
    else:
        raise DataError(f"data = {str(source)!r} does not exist on this node: it must be {LAYOUTS}")

    def make() -> dict[str, np.ndarray]:
        found = _read_folder(source, files, shape) if source.is_dir() else _read_npz(source, shape, classes)
        return {"x": found.x, "y": found.y}

    key = {"source": str(source), "files": _digest(files, source), "shape": list(shape), "classes": classes}
    arrays = cached("own", key, make)
    return NodeData(arrays["x"], arrays["y"])


def _digest(files: Sequence[tuple[Path, int]], source: Path) -> str:
    """Digest of the names, labels, sizes and modification times of the files: changes if a file changes."""
    entries = []
    for file, label in files:
        status = _stat(file)
        entries.append([os.path.relpath(file, source), label, status.st_size, status.st_mtime_ns])
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()


def _stat(file: Path) -> os.stat_result:
    try:
        return file.stat()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


# ---------------------------------------------------------------- .npz


def _read_npz(path: Path, shape: tuple[int, ...], classes: int) -> NodeData:
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not a readable .npz file; write it with numpy.savez_compressed")
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in ("images", "labels") if name not in file]
            if missing:
                raise DataError(
                    f"{path} has no array {missing[0]!r}: it contains {sorted(file)}, but needs images and labels"
                )
            images, labels = file["images"], file["labels"]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not a readable .npz file: {_first_line(error)}") from error
    if images.dtype != np.uint8:
        raise DataError(f"{path}: images have dtype {images.dtype}, but must have uint8 (0 to 255)")
    x = _channels_first(images, shape, path)
    if labels.shape != (len(x),) or labels.dtype.kind not in "iu":
        raise DataError(
            f"{path}: labels have dtype {labels.dtype} and shape {labels.shape}, but must be {len(x)} whole "
            "numbers, one for each image"
        )
    if not len(x):
        raise DataError(f"{path} contains no examples")
    outside = labels[(labels < 0) | (labels >= classes)]
    if len(outside):
        raise DataError(f"{path}: label {outside[0]} is not allowed: the task has classes 0 to {classes - 1}")
    return NodeData(np.ascontiguousarray(x), labels.astype(np.int64))


def _channels_first(images: np.ndarray, shape: tuple[int, ...], path: Path) -> np.ndarray:
    """Images of shape (n, h, w), (n, h, w, c) or (n, c, h, w) as (n, c, h, w); the task's shape decides which."""
    channels, height, width = shape
    if images.shape[1:] == shape:
        return images
    if images.shape[1:] == (height, width, channels):
        return np.moveaxis(images, -1, 1)
    if channels == 1 and images.shape[1:] == (height, width):
        return images[:, None]
    allowed = [f"(n, {channels}, {height}, {width})", f"(n, {height}, {width}, {channels})"]
    allowed += [f"(n, {height}, {width})"] * (channels == 1)
    raise DataError(f"{path}: images have shape {images.shape}, but this task needs {' or '.join(allowed)}")


# ---------------------------------------------------------------- folders


def _class_folders(source: Path, classes: int) -> list[Path]:
    """The subfolders in the order of the classes: sorted by name, or by number if all names are numbers.

    Raises DataError if there is not exactly one for each class, because a missing class would shift the labels.
    """
    names = [entry.name for entry in _entries(source) if entry.is_dir()]
    if len(names) != classes:
        raise DataError(
            f"{source} has {len(names)} subfolders, but needs one for each of the task's {classes} classes; "
            "create an empty subfolder for a class without examples on this node"
        )
    numbers = all(name.isascii() and name.isdigit() for name in names)
    return [source / name for name in sorted(names, key=lambda name: (int(name) if numbers else 0, name))]


def _image_files(folder: Path) -> list[Path]:
    """The images of a class, sorted by name. Raises DataError for any other kind of file; no file is skipped."""
    files = [folder / entry.name for entry in _entries(folder)]
    for file in files:
        if file.suffix.lower() not in SUFFIXES:
            raise DataError(f"{file} is not a supported image file: its name must end with {', '.join(SUFFIXES)}")
    return sorted(files)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """What is in a folder, but for what the system hides there."""
    try:
        with os.scandir(folder) as found:
            yield from (entry for entry in found if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from error


def _labelled_files(source: Path, classes: int) -> list[tuple[Path, int]]:
    folders = enumerate(_class_folders(source, classes))
    return [(file, label) for label, folder in folders for file in _image_files(folder)]


def _read_folder(source: Path, files: Sequence[tuple[Path, int]], shape: tuple[int, ...]) -> NodeData:
    if not files:
        raise DataError(f"{source} contains no examples in its subfolders")
    x = np.empty((len(files), *shape), dtype=np.uint8)
    for row, (file, _) in enumerate(files):
        x[row] = _read_image(file, shape)
    return NodeData(x, np.array([label for _, label in files], dtype=np.int64))


def _read_image(file: Path, shape: tuple[int, ...]) -> np.ndarray:
    from PIL import Image  # imported here, because most processes read the arrays from the cache

    channels, height, width = shape
    modes = MODES.get(channels, ())
    try:
        with Image.open(file) as image:
            if image.size != (width, height) or image.mode not in modes:
                raise DataError(
                    f"{file} has size {image.width}x{image.height} and mode {image.mode}, but this task needs "
                    f"{width}x{height} and mode {' or '.join(modes) or f'(none has {channels} channels)'}"
                )
            pixels: np.ndarray[Any, Any] = np.asarray(image.convert(modes[0]))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{file} is not a readable image: {_first_line(error)}") from error
    return pixels[None] if channels == 1 else np.moveaxis(pixels, -1, 0)
