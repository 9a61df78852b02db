"""What one example of a task is for a network: its kind and its shape."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..errors import ConfigError


class Kind(StrEnum):
    """What the dimensions of an example mean. A network gets batches with the number of examples before them."""

    IMAGE = "image"  # (channels, height, width), float32
    SIGNAL = "signal"  # (channels, samples), float32
    FRAMES = "frames"  # (frames, features), float32: features of sound over time
    TOKENS = "tokens"  # (length,), int64: numbers of words, 0 is padding
    TABLE = "table"  # (columns,), float32


@dataclass(frozen=True)
class Inputs:
    """Kind and shape of one example; for tokens the number of different ones, padding included."""

    kind: Kind
    shape: tuple[int, ...]
    vocabulary: int = 0

    def __str__(self) -> str:
        tokens = f" of {self.vocabulary} tokens" if self.kind is Kind.TOKENS else ""
        shape = tuple(map(int, self.shape))  # a user's task may have a list here, or numpy's numbers
        return f"{self.kind}, shape {shape}{tokens}"

    @property
    def size(self) -> int:
        """The number of values of one example."""
        size = 1
        for length in self.shape:
            size *= length
        return size

    def require(self, model: str, *kinds: Kind, shape: tuple[int | None, ...] | None = None) -> None:
        """Raise ConfigError if a network of this name does not take such examples.

        `kinds`: what it takes. `shape`: the shape that it needs, with None for any length of a dimension.
        """
        fits = shape is None or (
            len(shape) == len(self.shape)
            and all(need in (None, length) for need, length in zip(shape, self.shape, strict=True))
        )
        if self.kind in kinds and fits:
            return
        needed = " or ".join(kinds)
        if shape is not None:
            needed += f" of shape ({', '.join('any' if need is None else str(need) for need in shape)})"
        raise ConfigError(
            f"model = {model!r} needs examples of kind {needed}, but the task's examples are: {self}; choose "
            "another model (fedstride list model)"
        )
