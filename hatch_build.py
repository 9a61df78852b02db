"""Builds the wheel: one package, `fedstride`, that contains the other packages, `conf/` and the Flower app.

In a clone the packages are next to each other, with imports such as `from strategies.fedlws import ...`. In the
wheel the same line is `from fedstride.strategies.fedlws import ...`. Only these imports differ. If a reference
cannot be rewritten, the build fails. An editable install uses the clone itself.
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
PACKAGES = ("strategies", "client_app", "server_app", "confinement", "node", "superlink", "lab")
"""The top-level packages of a clone that become subpackages of PACKAGE in the wheel."""

_ANY_PACKAGE = "|".join(PACKAGES)
_DOTTED = re.compile(rf"(?:{_ANY_PACKAGE})(?:\.\w+)+(?::\w+)?")  # the name of a module in a string
_NOT_CODE = shutil.ignore_patterns("__pycache__", "*.pyc")


class CustomBuildHook(BuildHookInterface[Any]):
    """The build hook that hatchling calls. It adds the staged package to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Stage the package for a wheel. For an editable install, do nothing."""
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory(prefix="fedstride-wheel-")
        stage(Path(self.root), Path(self._folder.name))
        build_data["force_include"][self._folder.name] = PACKAGE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the staged files."""
        if version != "editable":
            self._folder.cleanup()


def stage(root: Path, target: Path) -> None:
    """Write the package into the folder `target`, from the clone or source distribution at `root`."""
    for package in (PACKAGE, *PACKAGES):
        inside = target if package == PACKAGE else target / package
        shutil.copytree(root / package, inside, ignore=_NOT_CODE, dirs_exist_ok=package == PACKAGE)
    shutil.copytree(root / "conf", target / "conf")
    for path in sorted(target.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        path.write_text(rewritten(source, str(path.relative_to(target))), encoding="utf-8")
    app = app_toml((root / "pyproject.toml").read_text(encoding="utf-8"))
    (target / "app.toml").write_text(app, encoding="utf-8")


def rewritten(source: str, name: str) -> str:
    """A module's source with its imports of other packages as they are in the wheel.

    Raises ValueError for a reference that cannot be rewritten by an insertion: `import package.module`, an import
    on several lines, or the name of a module in a string.
    """
    lines = source.encode().splitlines(keepends=True)  # positions in the tree count bytes
    for line, column, pattern, put in sorted(_edits(ast.parse(source), name), reverse=True):
        text = lines[line - 1]
        match = re.compile(pattern).match(text, column)
        if match is None:
            raise ValueError(f"{name}, line {line}: an import of another package must be on one line")
        lines[line - 1] = text[: match.start(1)] + put + text[match.end(1) :]
    return b"".join(lines).decode()


def _edits(tree: ast.AST, name: str) -> Iterator[tuple[int, int, bytes, bytes]]:
    """For each edit: line, column, a pattern that matches there, and the replacement of its first group."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and _is_packaged(node.module or ""):
            yield node.lineno, node.col_offset, rb"from\s+()\w", f"{PACKAGE}.".encode()
        elif isinstance(node, ast.Import) and any(_is_packaged(alias.name) for alias in node.names):
            if len(node.names) > 1 or "." in node.names[0].name:
                what = ", ".join(alias.name for alias in node.names)
                raise ValueError(
                    f"{name}, line {node.lineno}: write `from ... import ...` instead of `import {what}`"
                )
            yield node.lineno, node.col_offset, rb"()import\s", f"from {PACKAGE} ".encode()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
            raise ValueError(
                f"{name}, line {node.lineno}: a string must not be the module name {node.value!r}, because the "
                "module has another name in the wheel"
            )


def _is_packaged(module: str) -> bool:
    return module.split(".")[0] in PACKAGES


def app_toml(pyproject: str) -> str:
    """The pyproject.toml of the Flower app in the wheel, whose components and files are inside the package."""
    pattern = rf'^(\w+ = ")((?:{_ANY_PACKAGE})\.app:app")$'
    text, components = re.subn(pattern, rf"\1{PACKAGE}.\2", pyproject, flags=re.M)
    text, includes = re.subn(r"^fab-include = \[[^\]]*\]$", f'fab-include = ["{PACKAGE}/**"]', text, flags=re.M)
    if (components, includes) != (2, 1):
        raise ValueError("pyproject.toml: [tool.flwr.app] does not have the form that hatch_build.py expects")
    return text
