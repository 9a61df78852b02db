"""Pieces of a plan that can be computed for several clients at once.

A piece is a pull, a correction of the gradient or a change of the logits: a dataclass derived from `Stackable`,
whose fields are tensors, sequences of tensors, and plain values. For several clients its tensors get a first
axis, the clients. The class states how it is then called: a `Correction` with gradients and parameters that have
this axis too, so it must compute element by element; a `LogitsChange` for one client after the other
(`torch.func.vmap`), so it must return a tensor made from tensors, without writing into one. A `Pull` is not
called; `step.py` reads it.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from fedstride.errors import ConfigError

P = TypeVar("P", bound="Stackable")


class Stackable:
    """A part of a plan that several clients can share once its tensors are stacked."""


class Correction(Stackable, ABC):
    """(gradients, parameters) -> gradients, element by element."""

    @abstractmethod
    def __call__(self, gradients: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]) -> Any:
        """The corrected gradients."""


class LogitsChange(Stackable, ABC):
    """Logits (n, outputs) -> logits of the same shape."""

    @abstractmethod
    def __call__(self, z: torch.Tensor) -> torch.Tensor:
        """The changed logits."""


@dataclasses.dataclass(frozen=True)
class Pull(Stackable):
    """(strength / 2) ||w - anchor||^2 as a part of the loss: its gradient is strength (w - anchor)."""

    strength: float  # > 0
    anchor: Sequence[torch.Tensor]  # one for each trainable parameter, in the network's order

    def __post_init__(self) -> None:
        if not 0.0 < self.strength < math.inf:
            raise ConfigError(
                f"the strength of a pull is {self.strength!r}, but must be a finite number greater than 0; for no "
                "pull, omit the field in the Plan"
            )


def one_pull(pulls: Sequence[Pull]) -> Pull | None:
    """The pull whose gradient is the sum of theirs: to the mean of the anchors, weighted by strength."""
    if len(pulls) < 2:
        return pulls[0] if pulls else None
    total = sum(pull.strength for pull in pulls)
    anchors = zip(*(pull.anchor for pull in pulls), strict=True)
    shares = [pull.strength / total for pull in pulls]
    return Pull(total, [sum(s * a for s, a in zip(shares, column, strict=True)) for column in anchors])


def signature(piece: Stackable) -> Hashable:
    """What two pieces must have in common to be stacked: the class and the plain values."""
    return type(piece), *((name, value) for name, value in _fields(piece) if not _is_tensors(value))


def stacked(pieces: Sequence[P]) -> P:
    """One piece for several clients. They have the same signature."""
    columns = {name: [getattr(piece, name) for piece in pieces] for name, _ in _tensors(pieces[0])}
    return dataclasses.replace(pieces[0], **{name: _stack(column) for name, column in columns.items()})  # type: ignore[type-var]


def first(piece: P, count: int) -> P:
    """The piece of the first clients of a stacked one; it shares their memory."""
    return dataclasses.replace(piece, **{n: _map(v, lambda t: t[:count]) for n, v in _tensors(piece)})  # type: ignore[type-var]


def tensors(piece: Stackable) -> list[torch.Tensor]:
    """All tensors of a piece, always in the same order."""
    collected: list[torch.Tensor] = []
    for _, value in _tensors(piece):
        collected += [value] if isinstance(value, torch.Tensor) else value
    return collected


def of_each_client(piece: LogitsChange, logits: torch.Tensor) -> torch.Tensor:
    """The change of a stacked piece: (clients, n, outputs) -> the same shape."""

    def change(tensors: Mapping[str, Any], values: torch.Tensor) -> torch.Tensor:
        changed: torch.Tensor = dataclasses.replace(piece, **tensors)(values)  # type: ignore[type-var]
        return changed

    result: torch.Tensor = torch.func.vmap(change)(dict(_tensors(piece)), logits)
    return result


def _fields(piece: Stackable) -> list[tuple[str, Any]]:
    return [(field.name, getattr(piece, field.name)) for field in dataclasses.fields(piece)]  # type: ignore[arg-type]


def _tensors(piece: Stackable) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in _fields(piece) if _is_tensors(value)]


def _is_tensors(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (
        isinstance(value, (list, tuple)) and any(isinstance(part, torch.Tensor) for part in value)
    )


def _stack(column: Sequence[Any]) -> Any:
    if isinstance(column[0], torch.Tensor):
        return torch.stack(list(column))
    return [torch.stack(list(group)) for group in zip(*column, strict=True)]


def _map(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return change(value) if isinstance(value, torch.Tensor) else [change(tensor) for tensor in value]
