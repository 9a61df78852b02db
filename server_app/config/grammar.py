"""Hydra's grammar of overrides: reads one text, once, and writes a value so that it is read as it is.

Three things are other than in Hydra. Numbers and truth values keep their text, for settings that are text
(`name=1e3`). Signs that its grammar does not know (letters outside ASCII, `~`, `#`, `&`, `;`) are read as letters.
A backslash does not change the sign after it: where Hydra would remove it, quotation marks are asked for.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from hydra.core.override_parser import types
from hydra.core.override_parser.overrides_parser import create_functions
from hydra.core.override_parser.overrides_visitor import HydraErrorListener, HydraOverrideVisitor
from hydra.errors import HydraException
from hydra.grammar.gen.OverrideLexer import (  # type: ignore[attr-defined]
    CommonTokenStream,
    InputStream,
    OverrideLexer,
)
from hydra.grammar.gen.OverrideParser import OverrideParser


@dataclass(frozen=True)
class Typed:
    """A number, a truth value or, in a list, null, with the text that was typed for it."""

    value: Any
    text: str


class Item(NamedTuple):
    """One of several values of an override, and its text."""

    text: str
    value: Any


class Read(NamedTuple):
    """An override as it was read. Numbers and truth values in `value` and `items` are `Typed`."""

    key: str
    package: str | None  # after @
    changes: bool  # whether it sets a key, and does not add or remove one
    value: Any
    items: Iterator[Item] | None  # if it lists several values
    is_sweep: bool


def read(text: str) -> Read:
    """Read one override. Raises HydraException for text that is not one."""
    try:
        override = _parsed(with_letters(text))
    except (ValueError, RecursionError) as error:  # thousands of digits, or of brackets
        raise HydraException(str(error)) from error
    is_listed = override.is_discrete_sweep() and override.value_type is not types.ValueType.GLOB_CHOICE_SWEEP
    return Read(
        override.key_or_group,
        override.package,
        override.type is types.OverrideType.CHANGE,
        _alone(override.value()),
        _items(override) if is_listed else None,
        override.is_sweep_override(),
    )


def _alone(value: Any) -> Any:
    """Only as an item of a list of texts, `null` can be text."""
    return None if isinstance(value, Typed) and value.value is None else value


def _parsed(text: str) -> types.Override:
    """As Hydra's `OverridesParser.parse_override`, with our visitor."""
    errors = HydraErrorListener()
    lexer = OverrideLexer(InputStream(text))
    parser = OverrideParser(CommonTokenStream(lexer))
    for recognizer in (lexer, parser):
        recognizer.removeErrorListeners()
        recognizer.addErrorListener(errors)
    override: types.Override = _Reader().visit(parser.override())  # type: ignore[no-untyped-call]
    return override


class _Reader(HydraOverrideVisitor):
    def __init__(self) -> None:
        super().__init__(create_functions())
        self.in_function = False  # Hydra's functions check the types of what they get

    def visitPrimitive(self, ctx: Any) -> Any:
        if any(child.symbol.type == OverrideLexer.ESC for child in ctx.getChildren()):
            raise HydraException("a backslash before a sign")
        value = super().visitPrimitive(ctx)
        keeps = (value is None or isinstance(value, (bool, int, float))) and not self.in_function
        return Typed(value, ctx.getText().strip()) if keeps else value

    def visitFunction(self, ctx: Any) -> Any:
        if self.in_function:
            return super().visitFunction(ctx)
        if ctx.ID().getText() == "choice" and not ctx.argName():
            return types.ChoiceSweep(list=[self._item(child) for child in ctx.element()])
        self.in_function = True
        try:
            value = super().visitFunction(ctx)
        finally:
            self.in_function = False
        return value if isinstance(value, (types.Sweep, types.Glob)) else Typed(value, ctx.getText())

    def visitSimpleChoiceSweep(self, ctx: Any) -> types.ChoiceSweep:
        return types.ChoiceSweep(simple_form=True, list=[self._item(child) for child in ctx.element()])

    def _item(self, ctx: Any) -> Any:
        return Item(ctx.getText().strip(), self.visitElement(ctx))


def _items(sweep: types.Override) -> Iterator[Item]:
    """The items of a sweep, made one by one; those of a function such as `range` have no text of their own."""
    for choice in sweep.sweep_iterator():
        text, read = choice if isinstance(choice, Item) else (None, choice)
        value = types.Override(types.OverrideType.CHANGE, "", types.ValueType.ELEMENT, read).value()
        yield Item(quote(value) if text is None else text, _alone(value))


# ---------------------------------------------------------------- a value as text or not


def as_value(read: Any) -> Any:
    """What was read, with numbers and truth values as such."""
    return _each(read, lambda typed: typed.value)


def as_text(read: Any) -> Any:
    """What was read, with the typed text in place of numbers and truth values."""
    return _each(read, lambda typed: typed.text)


def _each(read: Any, chosen: Any) -> Any:
    if isinstance(read, Typed):
        return chosen(read)
    if isinstance(read, dict):
        return {_each(key, chosen): _each(value, chosen) for key, value in read.items()}
    return [_each(part, chosen) for part in read] if isinstance(read, list) else read


# ---------------------------------------------------------------- signs and quotation marks

_STRUCTURE = r""",\[\](){}='\""""
_QUOTED = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*["]""", re.DOTALL)
_PIECE = re.compile(rf"{_QUOTED.pattern}|[^{_STRUCTURE}]+", re.DOTALL)
_ESCAPE = re.compile(r"\\[\\,\[\](){}:= \t]")
_UNKNOWN = re.compile(rf"[^A-Za-z0-9_/\-\\+.$%*@?|: \t{_STRUCTURE}]")


def with_letters(text: str) -> str:
    """The override with quotation marks around each piece that has signs unknown to Hydra's grammar."""
    key, equals, value = text.partition("=")
    bare = _QUOTED.sub("", value)
    left = "(" in bare or "{" in bare or _ESCAPE.search(bare)  # in functions and mappings Hydra decides
    if left or not _UNKNOWN.search(bare):
        return text
    return key + equals + _PIECE.sub(_quoted_if_unknown, value)


def _quoted_if_unknown(match: re.Match[str]) -> str:
    piece = match[0]
    kept = piece.strip(" \t")
    if piece[0] in "'\"" or not _UNKNOWN.search(piece):
        return piece
    return piece.replace(kept, _marked(kept, "'"))


_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\+[A-Za-z0-9_]+)*")
_WORDS = {"null", "true", "false", "nan", "inf"}


def quote(value: object) -> str:
    """A value in Hydra's grammar. Text that is not a plain name is quoted, so that Hydra reads it as text."""
    if isinstance(value, Typed):
        return value.text
    if value is None:
        return "null"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(quote, value)) + "]"
    text = str(as_value(value))
    if isinstance(value, bool):
        return text.lower()
    if isinstance(value, (int, float)) or (_BARE.fullmatch(text) and text.lower() not in _WORDS):
        return text
    return _marked(text, "'")


def _marked(text: str, mark: str) -> str:
    # Only backslashes before a mark are escaped in Hydra's grammar.
    return mark + re.sub(rf"(\\*)({mark}|\Z)", lambda m: m[1] * 2 + (f"\\{mark}" if m[2] else ""), text) + mark


_LIST_ITEM = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\([^()]*\)|\[[^\[\]]*\]|[^,])+""", re.DOTALL)


def as_typed_text(key: str, value: str, *, listed: bool) -> str:
    """The override for a shell, in quotation marks so that its value is this text, or `listed` these texts."""
    if not listed:
        return shlex.quote(f"{key}={_marked(value, chr(34))}")
    inner = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    items = [text.strip() for text in _LIST_ITEM.findall(inner)]
    shown = ",".join(text if _is_text_item(text) else _marked(text, chr(34)) for text in items)
    return shlex.quote(f"{key}=[{shown}]")


def _is_text_item(text: str) -> bool:
    try:
        value = read(f"x=[{text}]").value
    except HydraException:
        return False
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], (str, Typed))
