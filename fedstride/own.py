"""Parts of a user's own, from one Python file: `fedstride run parts=my_parts.py strategy=mine`.

Knows how the file is found and loaded; does not know what its parts do. The server is told the file's path;
a message names the file only. A client looks for it in its own copy of the app, or in the folder that
FEDSTRIDE_PARTS names on its machine (a simulation started from a clone imports the clone, not the bundle).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from .errors import ConfigError, unknown
from .parts import HALF, MODULE, OWN, Part, Table

BUNDLED = Path(__file__).resolve().parents[1] / "own_parts"
"""Where the app's bundle has the file."""

LONGEST = 255
"""Characters of a file's name: no file system here takes more."""

_LOADED: dict[str, Path] = {}  # by file name
_DIGESTS: dict[str, str] = {}  # likewise, of what was loaded: the file may be edited while a run goes on


def load_parts(path: str, tables: Mapping[str, Table]) -> None:
    """Load the file, whose parts then stand in their tables; once a process.

    Raises ConfigError where there is no such file, it cannot be run, or what it adds cannot be chosen.
    """
    _load(find(path), tables)


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
        if group == HALF:
            continue
        if group not in tables:
            raise unknown(f"group in {file.name}", group, [*tables, HALF])
        if name in {part.name for part in tables[group].built_in()}:
            raise ConfigError(f"{file}: {group} = {name!r} is taken by a part of ours: choose another name")
        try:
            tables[group].config(name)
        except Exception as error:  # whatever a signature may hold
            raise ConfigError(f"{file}: {group} = {name!r} cannot be chosen: {_line(error)}") from error


def load_bundled(names: object) -> None:
    """Load the files that a message names, from this app's bundle.

    Raises ConfigError for what is no list of file names, and where one is missing or cannot be run.
    """
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"parts = {names!r} is not allowed: it must be a list of file names")
    for name in names:
        if name in _LOADED:
            continue
        if Path(name).name != name or not name.endswith(".py") or len(name) > LONGEST:
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
    """Names the content of the file, as it was when it was loaded if it was; empty where there is none."""
    if path is None:
        return ""
    name = Path(path).name
    return _DIGESTS[name] if name in _LOADED and name in _DIGESTS else _digest(find(path))


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _load(file: Path, tables: Mapping[str, Table] | None = None) -> None:
    """Run the file, and check what it adds where tables are given; nothing of one that is refused stays."""
    loaded = _LOADED.get(file.name)
    if loaded == file:
        return
    if loaded is not None:
        raise ConfigError(f"parts = {str(file)!r}: {loaded} is loaded already; rename one of them")
    before = {group: dict(parts) for group, parts in OWN.items()}
    name = MODULE + file.stem
    try:
        digest = _digest(file)
        _run(file, name)
        if tables is not None:
            _check_added(file, before, tables)
    except BaseException:
        sys.modules.pop(name, None)
        OWN.clear()
        OWN.update(before)
        raise
    _LOADED[file.name], _DIGESTS[file.name] = file, digest


def _run(file: Path, name: str) -> None:
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"parts = {str(file)!r} is not allowed: it must be a Python file, NAME.py")
    module = module_from_spec(spec)
    sys.modules[name] = module  # annotations are looked up there
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for what the command itself says
            spec.loader.exec_module(module)
    except (
        Exception,
        SystemExit,
    ) as error:  # `sys.exit()` is for scripts: it would end the run as if all were well
        raise ConfigError(f"{file} cannot be loaded: {_line(error)}") from error


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
