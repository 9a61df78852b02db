"""Replaces attributes of a module or object for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

_INHERITED = object()


@contextlib.contextmanager
def replaced(owner: Any, **values: Any) -> Iterator[None]:
    """Within this context the attributes of `owner` with these names have these values.

    An attribute that was not the owner's own, such as one that a module finds with `__getattr__`, is deleted
    again. Not for several threads.
    """
    before = {name: vars(owner).get(name, _INHERITED) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            if value is not _INHERITED:
                setattr(owner, name, value)
            elif name in vars(owner):
                delattr(owner, name)
