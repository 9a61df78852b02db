"""Definitions of a notebook or program as text that stands alone: with their imports, helpers and constants.

Only what a definition uses is taken from the cells, since all else that they do would be done again.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import symtable
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, GenericAlias, ModuleType, UnionType
from typing import Any, NamedTuple

from fedstride.errors import ConfigError
from fedstride.settings import Setting

HERE = "__main__"
"""The module of what is defined in a cell, and in the program that was started."""

INSTEAD = "write it to a file, and give parts=FILE"


class CellSource(NamedTuple):
    """The text of a cell or a program, and its statements."""

    text: str
    body: list[ast.stmt]

    def lines(self, numbers: range) -> str:
        """These lines, counted from 1."""
        return "\n".join(self.text.splitlines()[numbers.start - 1 : numbers.stop - 1])


def sources() -> Iterator[CellSource]:
    """What was executed in `__main__`, the newest first: cells, or the program's file."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    texts = [] if shell is None else list(reversed(shell.user_ns.get("In", [])))
    file = getattr(sys.modules[HERE], "__file__", None)
    if file is not None and Path(file).is_file():
        texts.append(Path(file).read_text())
    for text in texts:
        try:
            yield CellSource(text, ast.parse(text).body)
        except SyntaxError:  # it was not executed
            continue


class Definitions:
    """Statements that are put together, each after those that it needs.

    `namespace`: the names of `__main__`. `cells`: what was executed there, the newest first.
    """

    def __init__(self, namespace: Mapping[str, Any], cells: Sequence[CellSource]) -> None:
        self._namespace, self._cells = namespace, cells
        self._imports: dict[str, None] = {}
        self._statements: dict[str, str] = {}  # by the name that each defines

    @property
    def text(self) -> str:
        """The imports, and then all other statements."""
        return "\n".join(self._imports) + "\n\n\n" + "\n\n\n".join(self._statements.values()) + "\n"

    def define(self, what: str, name: str, value: Any) -> None:
        """Add the class or function with this name, for what a message calls `what`.

        Raises ConfigError, in one line, if its source or something that it uses cannot be written.
        """
        if name in self._statements:
            return
        text = self._text(name, value)
        if text is None:
            raise ConfigError(f"{what} needs {name}, whose source in this session is not known: {INSTEAD}")
        self._state(what, name, text)

    def _state(self, what: str, name: str, text: str) -> None:
        """Add the statement that defines this name, after what it uses."""
        self._statements[name] = text  # noted now, since what it uses may use it too
        for used in used_names(text):
            self._add(what, used)
        self._statements[name] = self._statements.pop(name)

    def _add(self, what: str, name: str) -> None:
        """Add what `__main__` has under this name; another one is Python's own, or an error when it is used."""
        if name in self._statements or name not in self._namespace:
            return
        value = self._namespace[name]
        is_defined_here = isinstance(value, (type, FunctionType)) and value.__module__ == HERE
        if hasattr(builtins, name) and not is_defined_here:  # a notebook replaces some, such as `open`
            return
        if is_defined_here:
            self.define(what, value.__name__, value)
            if value.__name__ != name:
                self._statements[name] = f"{name} = {value.__name__}"
        elif isinstance(value, ModuleType):
            self._imports |= dict.fromkeys(
                [f"import {value.__name__}" + _as(value.__name__, name), *self._inside(name)]
            )
        elif (line := self._import(name, value)) is not None:
            self._imports[line] = None
        elif is_type(value) and (text := self._assigned(name)) is not None:
            self._state(what, name, text)
        elif is_constant(value):
            self._statements[name] = f"{name} = {value!r}"
        else:
            raise ConfigError(
                f"{what} uses {name}, a {type(value).__name__} of this session, which a run cannot record: make "
                f"it a setting or a constant of the part, or {INSTEAD}"
            )

    def _text(self, name: str, value: Any) -> str | None:
        """The source of the definition with this name, the newest that was executed."""
        for cell in self._cells:
            for node in reversed(cell.body):
                if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
                    start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                    lines = range(start, (node.end_lineno or start) + 1)
                    if is_source(cell.text, lines, value):
                        return cell.lines(lines)
        return None

    def _assigned(self, name: str) -> str | None:
        """The newest statement that gives this name a value, and nothing else."""
        for cell in self._cells:
            for node in reversed(cell.body):
                targets = node.targets if isinstance(node, ast.Assign) else []
                if len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == name:
                    return cell.lines(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return None

    def _inside(self, package: str) -> list[str]:
        """The lines of cells that import modules of this package under its own name."""
        return [
            f"import {alias.name}"
            for cell in self._cells
            for node in cell.body
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.asname is None and alias.name.startswith(f"{package}.")
        ]

    def _import(self, name: str, value: Any) -> str | None:
        """The line that imports this object: as a cell does, or else from where the object says it is."""
        places = [
            (node.module, alias.name)
            for cell in self._cells
            for node in cell.body
            if isinstance(node, ast.ImportFrom) and node.module is not None and not node.level
            for alias in node.names
            if (alias.asname or alias.name) == name
        ]
        its = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        for module, attribute in [*places, its]:
            if isinstance(module, str) and isinstance(attribute, str) and _imported(module, attribute) is value:
                return f"from {module} import {attribute}" + _as(attribute, name)
        return None


def _as(imported: str, name: str) -> str:
    return "" if imported == name else f" as {name}"


def _imported(module: str, attribute: str) -> Any:
    """What `from module import attribute` gives; None if nothing, or if it is of `__main__`."""
    if module == HERE:
        return None
    try:
        return getattr(import_module(module), attribute, None)
    except ImportError:
        return None


def is_constant(value: object) -> bool:
    """Whether a value is what it is written as: a number, text, or a tuple of such."""
    if type(value) is tuple:
        return all(map(is_constant, value))
    return value is None or value is ... or (type(value) in (bool, int, float, str, bytes) and is_literal(value))


def is_type(value: object) -> bool:
    """Whether a value only says what others are: a name for a type, or a Setting."""
    return isinstance(value, (GenericAlias, UnionType, Setting)) or type(value).__module__ == "typing"


def is_literal(value: object) -> bool:
    """Whether Python reads what it shows of this value; not of an infinite number."""
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except ValueError:
        return False


def used_names(text: str) -> list[str]:
    """The names that a definition takes from its module, sorted."""
    names: set[str] = set()

    def look(table: symtable.SymbolTable) -> None:
        is_module = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() if is_module else symbol.is_global():
                names.add(symbol.get_name())
        for inner in table.get_children():
            look(inner)

    look(symtable.symtable(text, "cell", "exec"))
    return sorted(names)


def is_source(text: str, lines: range, value: Any) -> bool:
    """Whether these lines of a cell are the source of a class or function: its functions have the same code.

    Another cell may have a definition of the same name that was not executed. The whole cell is compiled, as how a
    function is compiled depends on what its module imports.
    """
    functions = list(vars(value).values()) if isinstance(value, type) else [value]
    codes = [
        getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
        for function in functions
    ]
    for flags in (0, annotations.compiler_flag):  # a notebook keeps this import for later cells
        whole = compile(text, "cell", "exec", flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        by_name = {name: code for name, code in _codes(whole) if code.co_firstlineno in lines}
        known = [(code, by_name[code.co_qualname]) for code in codes if code and code.co_qualname in by_name]
        if all(_alike(one, other) for one, other in known):
            return True
    return False


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from _codes(constant)


def _alike(one: CodeType, other: CodeType) -> bool:
    """Whether two functions do the same, wherever they are defined."""
    inner = [dict(_codes(code)) for code in (one, other)]
    plain = [
        [constant for constant in code.co_consts if not isinstance(constant, CodeType)] for code in (one, other)
    ]
    same = one.co_code == other.co_code and one.co_names == other.co_names and repr(plain[0]) == repr(plain[1])
    return same and inner[0].keys() == inner[1].keys() and all(_alike(inner[0][k], inner[1][k]) for k in inner[0])
