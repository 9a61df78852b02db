"""Whether a value from a file, a message or a setting is a number. True and False are none."""

from __future__ import annotations

from typing import TypeGuard


def is_number(value: object) -> TypeGuard[float]:
    """Whether this is an int or a float, also one that is not finite."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether this is an int."""
    return isinstance(value, int) and not isinstance(value, bool)
