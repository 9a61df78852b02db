"""Refuses methods of clients that cannot work, before any work: two that set the same, and one that hides a hook.

The server does not import the clients' code. What a built-in method sets is in the clients' table. A user's parts
file is loaded here, so the text of its methods is read: the fields that they give to a `Plan`, and the attributes
that they set. What cannot be found in this way is refused by the clients, in the same words.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from client_app.registry import EXCLUSIVE, HIDDEN, METHODS, OBJECTIVES, RULES, SETS
from fedstride.errors import ConfigError
from fedstride.parts import HALF, USER_PARTS, Part
from strategies.registry import STRATEGIES

from .keys import chain

if TYPE_CHECKING:
    from .schema import Config


def check_methods(config: Config) -> None:
    """Raise ConfigError, with both labels, if two methods of a client set a field that only one can set."""
    set_by: dict[str, str] = {}
    for label, place in _methods(config):
        if place is not None:
            _check_hooks(place)
        for field in SETS.get(label, ()) if place is None else _set_by(place):
            other = set_by.setdefault(field, label)
            if other != label:
                raise ConfigError(
                    f"{other} and {label} cannot be used together: both set {EXCLUSIVE[field]}; choose one of them"
                )


def _methods(config: Config) -> Iterator[tuple[str, Any]]:
    """The methods of a client in their order, by label, with the object of one that is the user's."""
    for table, spec in ((RULES, config.client), (OBJECTIVES, config.objective)):
        if spec.name in table:  # not for placeholders
            yield f"{table.group}.{spec.name}", _own(table[spec.name])
    for half in _halves(config):
        user_half = USER_PARTS.get(HALF, {}).get(half)
        yield f"halves.{half}", None if user_half is None else _own(user_half)


def _halves(config: Config) -> list[str]:
    """The client halves of the strategies, each of another one. Raises ConfigError for one that two have."""
    of: dict[str, str] = {}
    for choice in chain(config.strategy):
        half = getattr(STRATEGIES.load(choice.name), HALF, "") if choice.name in STRATEGIES else ""
        if half in of:
            both = f"strategy.{of[half]} and strategy.{choice.name}"
            raise ConfigError(
                f"{both} cannot be used together: a client executes the half {half} once; choose one of them"
            )
        of |= {half: choice.name} if half else {}
    return list(of)


def _own(part: Part) -> Any:
    return None if isinstance(part.place, str) else part.place


# ---------------------------------------------------------------- read from the user's code


def _set_by(place: Any) -> list[str]:
    """The exclusive fields of a Plan that the code of this method names."""
    fields = {field for function in _all_functions(place) for field in _plan_fields(function)}
    return [field for field in EXCLUSIVE if field in fields]


def _plan_fields(function: Any) -> Iterator[str]:
    for node in _nodes(function):
        if isinstance(node, ast.Call) and (plan := _plan(node.func, function)) is not None:
            given = dict(zip([field.name for field in dataclasses.fields(plan)], node.args, strict=False))
            given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
            for name, value in given.items():
                if not (isinstance(value, ast.Constant) and value.value is None):
                    yield name


def _plan(called: ast.expr, function: Any) -> Any:
    """The class Plan if this is what is called, by whatever name; else None."""
    kind = _named(called, function.__globals__)
    return kind if kind is not None and kind is getattr(_methods_module(), "Plan", None) else None


def _methods_module() -> Any:
    """The clients' module of methods, if the user's file has imported it; it needs torch."""
    return sys.modules.get(METHODS)


def _named(node: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Attribute):
        return getattr(_named(node.value, names), node.attr, None)
    return names.get(node.id) if isinstance(node, ast.Name) else None


def _check_hooks(place: Any) -> None:
    """Raise ConfigError if a class of methods sets an attribute with the name of a hook."""
    base = getattr(_methods_module(), "Method", None)
    hooks = [] if base is None else [value.__name__ for value in _functions(base)]
    for kind in inspect.getmro(place) if isinstance(place, type) else ():
        set_here = {name for name, value in vars(kind).items() if not callable(value)}
        set_here |= set(inspect.get_annotations(kind))
        set_here |= {name for function in _functions(kind) for name in _attributes(function)}
        for hook in hooks:
            if hook in set_here:
                raise ConfigError(HIDDEN.format(kind=kind.__name__, hook=hook))


def _attributes(function: Any) -> Iterator[str]:
    """The attributes that a method sets of its object."""
    self_name = next(iter(inspect.signature(function).parameters), "")
    for node in _nodes(function):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute, ctx=ast.Store()) if name == self_name:
                yield attribute


def _functions(kind: type) -> list[Any]:
    return [value for value in vars(kind).values() if inspect.isfunction(value)]


def _all_functions(place: Any) -> list[Any]:
    """The functions of a class and those that it is derived from, and what they name in their own module."""
    functions: list[Any] = []
    waiting = [place] if isinstance(place, type) or inspect.isfunction(place) else []
    for part in waiting:
        if isinstance(part, type):
            named = [function for kind in inspect.getmro(part) for function in _functions(kind)]
        else:
            functions.append(part)
            others = (part.__globals__.get(name) for name in part.__code__.co_names)
            code = (other for other in others if isinstance(other, type) or inspect.isfunction(other))
            named = [other for other in code if other.__module__ == part.__module__]
        waiting += [other for other in named if other not in waiting]
    return functions


def _nodes(function: Any) -> Iterator[ast.AST]:
    """The syntax of a function; none of one that has no text."""
    try:
        return ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))
    except (OSError, TypeError, SyntaxError):
        return iter(())
