"""Loads user-defined parts from one Python file: `fedstride run parts=my_parts.py strategy=mine`.

The server gets the path of the file. A message to a client contains the file's name only. The client looks for
it in its own copy of the app, then in the folder that FEDSTRIDE_PARTS names on its machine (a simulation that was
started from a clone imports the clone, not the bundle).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from .errors import ConfigError, unknown
from .figures.scores import SCORES, own_figure
from .parts import HALF, METRIC, MODULE_PREFIX, USER_PARTS, Part, Table

BUNDLED = Path(__file__).resolve().parents[1] / "own_parts"
"""The folder of the file in the app's bundle."""

PARTS_VARIABLE = "FEDSTRIDE_PARTS"
"""The variable that names another folder in which a client looks for such files."""

MAX_NAME_LENGTH = 255
"""Maximum number of characters of a file name, as in common file systems."""

_LOADED: dict[str, Path] = {}  # by file name
_DIGESTS: dict[str, str] = {}  # by file name, at the time of loading: the file may be edited during a run


def load_parts(path: str, tables: Mapping[str, Table]) -> None:
    """Load the file and add its parts to their tables. A process loads a file only once.

    Raises ConfigError if the file does not exist or fails, or if one of its parts cannot be chosen.
    """
    _load(find(path), tables)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Inside, no part of a user is known at first; afterwards those are known that were before.

    So in a process with several runs each has the parts of its own file, as the file is when that run begins.
    """
    before = {group: dict(parts) for group, parts in USER_PARTS.items()}, dict(_LOADED), dict(_DIGESTS)
    _set({}, {}, {})
    try:
        yield
    finally:
        _set(*before)


def _set(parts: dict[str, dict[str, Part]], loaded: dict[str, Path], digests: dict[str, str]) -> None:
    USER_PARTS.clear()
    USER_PARTS.update(parts)
    _LOADED.clear()
    _LOADED.update(loaded)
    _DIGESTS.clear()
    _DIGESTS.update(digests)


def code_of(part: Part) -> str:
    """SHA-256 of the file with a user's part, as it was loaded; empty for a part that is in no such file."""
    module = str(getattr(part.place, "__module__", ""))
    return _DIGESTS.get(f"{module.removeprefix(MODULE_PREFIX)}.py", "") if module.startswith(MODULE_PREFIX) else ""


def _check_added(file: Path, before: Mapping[str, Mapping[str, Part]], tables: Mapping[str, Table]) -> None:
    added = {
        (group, name): part
        for group, parts in USER_PARTS.items()
        for name, part in parts.items()
        if before.get(group, {}).get(name) is not part
    }
    if not added:
        raise ConfigError(f'{file} defines no part; mark a class or function, as in @part(strategy="mine")')
    for (group, name), part in added.items():
        if group == HALF:
            continue
        if group == METRIC:
            _check_figure(file, part)
            continue
        if group not in tables:
            raise unknown(f"group in {file.name}", group, [*tables, HALF, METRIC])
        if name in {part.name for part in tables[group].built_in()}:
            raise ConfigError(f"{file}: {group} = {name!r} is the name of a built-in part; choose another name")
        try:
            tables[group].config(name)
        except Exception as error:  # a user's signature can raise any error
            raise ConfigError(f"{file}: {group} = {name!r} cannot be chosen: {_one_line(error)}") from error


def _check_figure(file: Path, part: Part) -> None:
    """Refuse a figure with the name of a built-in one, and what is no figure."""
    if part.name in SCORES or part.name == "loss":
        raise ConfigError(f"{file}: metric = {part.name!r} is the name of a built-in figure; choose another name")
    try:
        own_figure(part)
    except Exception as error:  # a user's class can raise any error
        raise ConfigError(f"{file}: metric = {part.name!r} cannot be chosen: {_one_line(error)}") from error


def load_bundled(names: object) -> None:
    """Load the files that a message names, from this app's bundle or from the folder FEDSTRIDE_PARTS.

    Raises ConfigError if `names` is not a list of file names, or if a file is missing or fails.
    """
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"parts = {names!r} is not allowed: it must be a list of file names")
    for name in names:
        if name in _LOADED:
            continue
        if Path(name).name != name or not name.endswith(".py") or len(name) > MAX_NAME_LENGTH:
            raise ConfigError(
                f"parts = {name!r} is not allowed: it must be the name of a Python file, without a folder"
            )
        local = os.environ.get(PARTS_VARIABLE)
        folders = [BUNDLED] if local is None else [BUNDLED, Path(local)]
        file = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if file is None:
            raise ConfigError(
                f"parts = {name!r} is not in this client's copy of the app; start the run with fedstride submit "
                f"or fedstride simulate, and parts=PATH/{name}"
            )
        _load(file)


def find(path: str) -> Path:
    """The file for `parts=PATH`: this path, or else the file with this name in the app's bundle.

    Raises ConfigError if neither exists.
    """
    for file in (Path(os.path.expanduser(path)), BUNDLED / Path(path).name):
        if file.is_file():
            return file.resolve()
    raise ConfigError(f"parts = {path!r} does not exist; give the path of a Python file that defines parts")


def digest_of(path: str | None) -> str:
    """SHA-256 of the file's content, at the time of loading if it is loaded. Empty if `path` is None."""
    if path is None:
        return ""
    name = Path(path).name
    return _DIGESTS[name] if name in _LOADED and name in _DIGESTS else _digest(find(path))


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _load(file: Path, tables: Mapping[str, Table] | None = None) -> None:
    """Execute the file and, if tables are given, check its parts. A rejected file leaves no parts registered."""
    loaded = _LOADED.get(file.name)
    if loaded == file:
        return
    if loaded is not None:
        raise ConfigError(
            f"parts = {str(file)!r} is not allowed: {loaded}, a file of the same name, is already loaded; rename "
            "one of them"
        )
    before = {group: dict(parts) for group, parts in USER_PARTS.items()}
    name = MODULE_PREFIX + file.stem
    try:
        digest = _digest(file)
        _execute(file, name)
        if tables is not None:
            _check_added(file, before, tables)
    except BaseException:
        sys.modules.pop(name, None)
        USER_PARTS.clear()
        USER_PARTS.update(before)
        raise
    _LOADED[file.name], _DIGESTS[file.name] = file, digest


def _execute(file: Path, name: str) -> None:
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"parts = {str(file)!r} is not allowed: it must be a Python file, NAME.py")
    module = module_from_spec(spec)
    sys.modules[name] = module  # typing.get_type_hints looks up annotations there
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is reserved for the command's own output
            spec.loader.exec_module(module)
    # `sys.exit()` in a parts file must not end the command as if it had succeeded.
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{file} cannot be loaded: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
