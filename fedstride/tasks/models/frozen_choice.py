"""Divides a network's arrays into those that are trained and sent, and those that are frozen.

Arrays are chosen by their names and by the modules of the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import nn

from ...arrays.named import BUFFER_NAMES
from ...errors import ConfigError, require
from .tensors import array_names, tied_names

KEY = "train"
MAX_NAMES = 20
"""Names of parameters in an error message."""


@dataclass(frozen=True)
class Split:
    """The names of a network's arrays, each part in the network's order."""

    sent: tuple[str, ...]  # trained, and sent in both directions
    frozen: tuple[str, ...] = ()  # the same for all clients and rounds


def split(model: nn.Module, patterns: Sequence[str] | None) -> Split:
    """The arrays that the patterns (fnmatch, case-sensitive) name, and the others; None: all are sent.

    A pattern names a parameter if it matches the parameter's name or that of a module that contains it; a tied
    parameter has several names. Buffers belong to the parameters of their own module: they are sent if one of
    these is. Buffers of a module without parameters of its own are sent if a pattern matches their names. Raises
    ConfigError for a pattern that names no parameter, or if nothing is left to train.
    """
    names = array_names(model)
    if patterns is None:
        return Split(tuple(names))
    require(not isinstance(patterns, str), KEY, patterns, "a list of patterns, such as ['head.*']")
    aliases: dict[str, set[str]] = {name: {name} for name, _ in model.named_parameters()}
    for other, first in tied_names(model).items():
        aliases[first].add(other)
    kept: set[str] = set()
    for pattern in patterns:
        matching = {name for name, known in aliases.items() if any(_matches(alias, pattern) for alias in known)}
        if not matching:
            raise ConfigError(_no_match(patterns, pattern, list(aliases)))
        kept |= matching
    parameters = dict(model.named_parameters())
    if not any(parameters[name].requires_grad for name in kept):
        raise ConfigError(
            f"{KEY} = {list(patterns)!r} is not allowed: nothing is left to train; name at least one parameter "
            "that the network trains, or omit it"
        )
    kept |= {name for name in names if name not in aliases and _moves(model, name, kept, patterns)}
    return Split(tuple(name for name in names if name in kept), tuple(name for name in names if name not in kept))


def freeze_(model: nn.Module, parts: Split) -> None:
    """Make the frozen parameters untrainable, in place."""
    frozen = set(parts.frozen)
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)


def fixed_norms(model: nn.Module, parts: Split) -> Iterator[nn.Module]:
    """The normalisations whose running statistics are frozen. They must be in eval mode during training."""
    frozen = set(parts.frozen)
    for prefix, module in model.named_modules():
        buffers = {name for name, _ in module.named_buffers(prefix, recurse=False)}
        if any(name in frozen and name.rpartition(".")[2] in BUFFER_NAMES for name in buffers):
            yield module


def _moves(model: nn.Module, buffer: str, kept: set[str], patterns: Sequence[str]) -> bool:
    """Whether a buffer is sent, given the parameters that are."""
    ids = {id(parameter) for parameter in model.get_submodule(buffer.rpartition(".")[0]).parameters(recurse=False)}
    if ids:
        return any(id(parameter) in ids for name, parameter in model.named_parameters() if name in kept)
    return any(_matches(buffer, pattern) for pattern in patterns)


def _matches(name: str, pattern: str) -> bool:
    """Whether the pattern matches the name of an array, or of a module that contains it."""
    ends = [i for i, char in enumerate(name) if char == "."]
    return any(fnmatchcase(name[:end], pattern) for end in [*ends, len(name)])


def _no_match(patterns: Sequence[str], pattern: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return (
        f"{KEY} = {list(patterns)!r} is not allowed: the pattern {pattern!r} matches no parameter of the model; "
        f"the parameters are: {', '.join(map(repr, names[:MAX_NAMES]))}{more}"
    )
