"""Finds private names of Flower in a file: what Flower's public packages do not have, however it is written.

Not found: a name that is put together when the program runs, and an attribute without an underscore of an object
that came from Flower.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

PUBLIC = (
    "flwr.app",
    "flwr.clientapp",
    "flwr.clientapp.mod",
    "flwr.serverapp",
    "flwr.serverapp.strategy",
    "flwr.simulation",
)
"""Flower's public packages. What is in their `__all__` is public, and its attributes without an underscore."""

UNKNOWN = "?"
"""Stands for a part of a string that is only known when the program runs."""

IN_TEXT = re.compile(rf"(?<![\w.])flwr(?:[.:][\w{UNKNOWN}]+)+")
TO_FILL_IN = re.compile(r"%\w|\{\w*\}")
UNDERSCORE = re.compile(r"_[A-Za-z]\w*")
STANDARD = {"_asdict", "_exit", "_field_defaults", "_fields", "_make", "_replace"}
"""Attributes with an underscore that are Python's own, and public."""

Found = Iterator[tuple[int, str]]
"""Lines, each with the name that was found there."""


def names_of_flower(tree: ast.AST) -> Found:
    """Every dotted name of Flower: imported, read from an imported module, or in a string."""
    bound = _bound(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names if _is_flowers(each.name))
        elif isinstance(node, ast.ImportFrom) and not node.level and _is_flowers(node.module or ""):
            yield from ((node.lineno, f"{node.module}.{each.name}") for each in node.names)
        elif isinstance(node, (ast.Attribute, ast.Call)) and (name := _dotted(node, bound)):
            yield node.lineno, name
    for line, text in _strings(tree):
        yield from ((line, name.replace(":", ".")) for name in IN_TEXT.findall(TO_FILL_IN.sub(UNKNOWN, text)))


def is_public(name: str) -> bool:
    """Whether this dotted name of Flower is public."""
    if name in ("flwr", "flwr.__version__", *PUBLIC):
        return True
    package = max((each for each in PUBLIC if name.startswith(f"{each}.")), key=len, default="")
    first, *attributes = name.removeprefix(f"{package}.").split(".")
    has_it = package and (first == "*" or first in _exported(package))
    return bool(has_it) and not any(UNDERSCORE.fullmatch(each) for each in attributes)


def hidden_names(files: Iterable[Path]) -> set[str]:
    """The names by which these files reach into Flower's objects without an import.

    They are attributes with an underscore of any object except `self`, names of this form in strings, and names
    of classes that are compared with strings.
    """
    found = set()
    for tree in map(_parsed, files):
        found |= {name for _, name in (*_foreign(tree), *_compared(tree))}
        found |= {text for _, text in _strings(tree) if UNDERSCORE.fullmatch(text)}
    return found - STANDARD


def violations(path: Path, hidden: set[str]) -> list[str]:
    """The private names of Flower in this file, and each `hidden` name, with their lines."""
    tree = _parsed(path)
    found = {each for each in names_of_flower(tree) if not is_public(each[1])}
    found |= {(line, f".{name}") for line, name in _foreign(tree) if name in hidden}
    found |= {(line, f'"{text}"') for line, text in _strings(tree) if text in hidden}
    found |= {(line, f'a class named "{name}"') for line, name in _compared(tree)}
    return [f"{path}, line {line}: {name}" for line, name in sorted(found)]


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _exported(package: str) -> frozenset[str]:
    return frozenset(import_module(package).__all__)


def _is_flowers(module: str) -> bool:
    return module.split(".")[0] == "flwr"


def _bound(tree: ast.AST) -> dict[str, str]:
    """The dotted name of Flower for which each imported name stands."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in filter(lambda alias: _is_flowers(alias.name), node.names):
                found[each.asname or "flwr"] = each.name if each.asname else "flwr"
        elif isinstance(node, ast.ImportFrom) and not node.level and _is_flowers(node.module or ""):
            found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return found


def _dotted(node: ast.AST, bound: dict[str, str]) -> str | None:
    """What `a.b.c` or `getattr(a.b, "c")` means, if `a` is imported from Flower."""
    if isinstance(node, ast.Name):
        return bound.get(node.id)
    if isinstance(node, ast.Attribute):
        owner, name = node.value, node.attr
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) > 1:
        owner, name = node.args[0], _text(node.args[1])
    else:
        return None
    before = _dotted(owner, bound)
    return None if before is None else f"{before}.{name}"


def _foreign(tree: ast.AST) -> Found:
    """The attributes with an underscore of any object except `self` and `cls`."""
    for node in ast.walk(tree):
        is_hidden = isinstance(node, ast.Attribute) and UNDERSCORE.fullmatch(node.attr)
        if is_hidden and ast.unparse(node.value) not in ("self", "cls", "super()"):
            yield node.lineno, node.attr


def _compared(tree: ast.AST) -> Found:
    """The strings with which the name of a class is compared."""
    for node in ast.walk(tree):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        if any(isinstance(side, ast.Attribute) and side.attr in ("__name__", "__qualname__") for side in sides):
            yield from (each for side in sides for each in _strings(side))


def _strings(tree: ast.AST) -> Found:
    """The strings in a tree, without docstrings. Those that are put together count as one, and each part too."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
        if is_sum or isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and id(node) not in docs):
            yield node.lineno, _text(node)


def _text(node: ast.AST) -> str:
    """What a string will be, as far as the source says it."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else UNKNOWN
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return UNKNOWN
