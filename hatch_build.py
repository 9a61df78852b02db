"""Puts the wheel together: one package, `fedstride`, with the other rooms, `conf/` and the app inside.

Knows how a room names another one; does not know what is in them. In a clone the rooms lie side by side and say
`from strategies.norms import ...`; in the wheel the same line says `from fedstride.strategies.norms import ...`.
Only these imports differ. A reference that cannot be rewritten ends the build. An editable install is the clone.
"""

from __future__ import annotations

import ast
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "fedstride"
ROOMS = ("strategies", "client_app", "server_app", "lab")

_ROOM = "|".join(ROOMS)
_DOTTED = re.compile(rf"(?:{_ROOM})(?:\.\w+)+(?::\w+)?")  # a module's name in a string
_NOT_CODE = shutil.ignore_patterns("__pycache__", "*.pyc")


class CustomBuildHook(BuildHookInterface[Any]):
    """Called by the build: hands it the staged package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Stage the package for a wheel; leave an editable install alone."""
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory(prefix="fedstride-wheel-")
        stage(Path(self.root), Path(self._folder.name))
        build_data["force_include"][self._folder.name] = PACKAGE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was staged."""
        if version != "editable":
            self._folder.cleanup()


def stage(root: Path, target: Path) -> None:
    """Write the package into the folder `target`, from the clone or source distribution at `root`."""
    for room in (PACKAGE, *ROOMS):
        inside = target if room == PACKAGE else target / room
        shutil.copytree(root / room, inside, ignore=_NOT_CODE, dirs_exist_ok=room == PACKAGE)
    shutil.copytree(root / "conf", target / "conf")
    for path in sorted(target.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        path.write_text(rewritten(source, str(path.relative_to(target))), encoding="utf-8")
    app = app_toml((root / "pyproject.toml").read_text(encoding="utf-8"))
    (target / "app.toml").write_text(app, encoding="utf-8")


def rewritten(source: str, name: str) -> str:
    """A module's source with its imports of other rooms as they are in the wheel.

    Raises ValueError for a reference that an insertion cannot turn: `import room.module`, a module's name in a
    string.
    """
    lines = source.encode().splitlines(keepends=True)  # positions in the tree count bytes
    for line, column, pattern, put in sorted(_edits(ast.parse(source), name), reverse=True):
        text = lines[line - 1]
        found = re.compile(pattern).match(text, column)
        if found is None:
            raise ValueError(f"{name}, line {line}: write an import of another room on one line")
        lines[line - 1] = text[: found.start(1)] + put + text[found.end(1) :]
    return b"".join(lines).decode()


def _edits(tree: ast.AST, name: str) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Line, column, a pattern from there on, and what takes the place of its first group."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and _is_room(node.module or ""):
            yield node.lineno, node.col_offset, rb"from\s+()\w", f"{PACKAGE}.".encode()
        elif isinstance(node, ast.Import) and any(_is_room(alias.name) for alias in node.names):
            if len(node.names) > 1 or "." in node.names[0].name:
                what = ", ".join(alias.name for alias in node.names)
                raise ValueError(f"{name}, line {node.lineno}: write `from ... import ...` for `import {what}`")
            yield node.lineno, node.col_offset, rb"()import\s", f"from {PACKAGE} ".encode()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
            raise ValueError(
                f"{name}, line {node.lineno}: the wheel has another name for the module {node.value!r}"
            )


def _is_room(module: str) -> bool:
    return module.split(".")[0] in ROOMS


def app_toml(pyproject: str) -> str:
    """The pyproject.toml of the app that the wheel holds: its components and files are inside the package."""
    text, components = re.subn(rf'^(\w+ = ")((?:{_ROOM})\.app:app")$', rf"\1{PACKAGE}.\2", pyproject, flags=re.M)
    text, includes = re.subn(r"^fab-include = \[[^\]]*\]$", f'fab-include = ["{PACKAGE}/**"]', text, flags=re.M)
    if (components, includes) != (2, 1):
        raise ValueError("pyproject.toml: [tool.flwr.app] is not written as hatch_build.py expects it")
    return text
