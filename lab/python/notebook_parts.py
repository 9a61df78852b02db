"""Parts that are defined in a notebook's cells, or in the program itself: as a file, from which they are chosen.

A run names a file with its parts, so that workers, a simulation, a resumed run and a table find them too.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedstride.errors import ConfigError, FedstrideError
from fedstride.files import atomic
from fedstride.parts import HALF, METRIC, MODULE_PREFIX, USER_PARTS, Part
from server_app.config.grammar import as_text
from server_app.config.methods import ALL, METHOD
from server_app.config.methods import PARTS as METHOD_PARTS
from server_app.config.overrides import Override, parts_in, written
from server_app.config.schema import TABLES, Config
from server_app.records.run_folder import runs_dir

from .notebook_definitions import HERE, Definitions, sources

HEAD = '"""Parts of a notebook or program, written by fedstride."""\n\nfrom __future__ import annotations\n\n'

FOLDER = "parts"
"""Of these files, in the folder of runs."""

FIGURES = "task.metrics"
"""The key that chooses figures, several at once."""

Chosen = list[tuple[str, Part]]
"""Groups, each with one of its parts."""


def chosen(given: Sequence[Override]) -> Chosen:
    """The parts of `__main__` that are chosen, with the halves of rules.

    Raises ConfigError for a part of an imported module, which a run could not record, and for parts of both
    `__main__` and a file.
    """
    parts: dict[tuple[str, str], Part] = {}
    file = parts_in(given)
    for override in given:
        for group in _groups(override.key):
            names = _names(override)
            for name, part in USER_PARTS.get(group, {}).items():
                if name in names or (override.key == METHOD and override.name == ALL):
                    parts |= _with_half(group, part, file)
    if parts and file:
        (group, name), *_ = parts
        raise ConfigError(
            f"{group} = {name!r} is defined in this session, and parts = {file!r} is a file: write it to that "
            "file too, or leave out parts"
        )
    return [(group, part) for (group, _), part in parts.items()]


def _groups(key: str) -> list[str]:
    """The groups of which this key chooses parts."""
    if key == METHOD:
        return [table.group for table in METHOD_PARTS]
    if key == FIGURES:
        return [METRIC]
    return [key] if key in TABLES else []


def _names(override: Override) -> list[str]:
    """The names that an override chooses: one, several that are joined by `+`, or a list of them."""
    chosen = override.value if isinstance(override.value, list) else [override.value]
    return [name for one in chosen for name in str(as_text(one)).split("+")]


def _with_half(group: str, part: Part, file: str | None) -> dict[tuple[str, str], Part]:
    """The part and its half, as far as they are of `__main__`."""
    half = USER_PARTS.get(HALF, {}).get(str(getattr(part.place, "half", None)))
    both = [(group, part), *([] if half is None else [(HALF, half)])]
    return {(its_group, one.name): one for its_group, one in both if _is_of_main(its_group, one, file)}


def _is_of_main(group: str, part: Part, file: str | None) -> bool:
    module = str(getattr(part.place, "__module__", ""))
    if module != HERE and not module.startswith(MODULE_PREFIX) and not file:
        its = getattr(sys.modules.get(module), "__file__", None) or "FILE"
        raise ConfigError(
            f"{group} = {part.name!r} is defined in the module {module}: choose its file too, with parts={its!r}"
        )
    return module == HERE


def text_of(parts: Chosen) -> str:
    """The content of a file with these parts. Raises ConfigError, in one line, if one cannot be written."""
    together = Definitions(vars(sys.modules[HERE]), list(sources()))
    for group, part in parts:
        together.define(f"{group} = {part.name!r}", str(getattr(part.place, "__name__", part.name)), part.place)
    return HEAD + together.text


@contextlib.contextmanager
def as_file(text: str, given: Sequence[Override]) -> Iterator[Override]:
    """The override that chooses a file with this content. If an error follows inside, a new file is removed.

    Its name has a part of the content's hash: runs with the same parts share it, and later ones do not change it.
    """
    out = [override.name for override in given if override.key == "out" and override.value]
    path = runs_dir(Config(out=out[-1] if out else None)) / FOLDER / f"cells_{_short(text)}.py"
    bytecode = Path(importlib.util.cache_from_source(str(path)))
    new = [place for place in (bytecode, bytecode.parent, path, *path.parents[:2]) if not place.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, text.encode())
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written ({error.strerror}): choose another folder with out"
        ) from error
    try:
        yield written("parts", str(path))
    except FedstrideError:
        _remove(new)
        raise


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _remove(new: Sequence[Path]) -> None:
    """Remove a file and its folders, as far as they are new, the innermost first."""
    for path in new:
        with contextlib.suppress(OSError):  # a folder that has other files by now
            path.rmdir() if path.is_dir() else path.unlink()
