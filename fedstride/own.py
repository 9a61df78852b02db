"""Parts of a user's own, from a Python file of hers: `fedstride run parts=my_parts.py strategy=mine`.

Knows how the file is found and loaded; does not know what its parts do. The server is told the file's path;
a message names the file only. A client looks for it in its own copy of the app, or in the folder that
FEDSTRIDE_PARTS names on its machine (a simulation started from a clone imports the clone, not the bundle).
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from .errors import ConfigError, unknown
from .parts import HALF, OWN, Part, Table

BUNDLED = Path(__file__).resolve().parents[1] / "parts"
"""Where the app's bundle has the file."""

_LOADED: dict[str, Path] = {}  # by file name


def load_parts(path: str, tables: Mapping[str, Table]) -> None:
    """Load the file, whose parts then stand in their tables; once a process.

    Raises ConfigError where there is no such file, it cannot be run, or it adds nothing that can be chosen.
    """
    file = find(path)
    if _LOADED.get(file.name) == file:
        return
    before = {group: dict(parts) for group, parts in OWN.items()}
    try:
        _load(file)
        _check_added(file, before, tables)
    except ConfigError:  # nothing of a file that is refused stays
        OWN.clear()
        OWN.update(before)
        if _LOADED.get(file.name) == file:
            del _LOADED[file.name]
        raise


def _check_added(file: Path, before: Mapping[str, Mapping[str, Part]], tables: Mapping[str, Table]) -> None:
    added = [
        (group, name)
        for group, parts in OWN.items()
        for name, part in parts.items()
        if before.get(group, {}).get(name) is not part
    ]
    if not added:
        raise ConfigError(f'{file} adds no part: mark a class or function with @part(strategy="mine")')
    for group, name in added:
        if group != HALF and group not in tables:
            raise unknown(f"group in {file.name}", group, [*tables, HALF])
        if group in tables and name in {part.name for part in tables[group].built_in()}:
            raise ConfigError(f"{file}: {group} = {name!r} is taken by a part of ours: choose another name")


def load_bundled(names: Iterable[str]) -> None:
    """Load the files that a message names, from this app's bundle. Raises ConfigError where one is missing."""
    for name in names:
        if name in _LOADED:
            continue
        if Path(name).name != name or not name.endswith(".py"):
            raise ConfigError(f"parts = {name!r} is not allowed: it must be the name of a Python file")
        here = os.environ.get("FEDSTRIDE_PARTS")
        folders = [BUNDLED] if here is None else [BUNDLED, Path(here)]
        file = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if file is None:
            raise ConfigError(
                f"parts = {name!r} is not in this client's copy of the app: start the run with fedstride submit "
                f"or simulate and parts=PATH/{name}"
            )
        _load(file)


def find(path: str) -> Path:
    """The file that `parts=PATH` means: this path, or the file of that name in the app's bundle."""
    for file in (Path(path).expanduser(), BUNDLED / Path(path).name):
        if file.is_file():
            return file.resolve()
    raise ConfigError(f"parts = {path!r} does not exist: name a Python file with your own parts")


def digest_of(path: str | None) -> str:
    """Names the content of the file; empty where there is none."""
    return "" if path is None else hashlib.sha256(find(path).read_bytes()).hexdigest()


def _load(file: Path) -> None:
    before = _LOADED.get(file.name)
    if before == file:
        return
    if before is not None:
        raise ConfigError(f"parts = {str(file)!r}: {before} is loaded already; rename one of them")
    name = f"fedstride_parts_{file.stem}"
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # annotations are looked up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        text = next(iter(str(error).splitlines()), "")
        raise ConfigError(f"{file} cannot be loaded: {type(error).__name__}: {text}") from error
    _LOADED[file.name] = file
