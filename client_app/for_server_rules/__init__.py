"""Client halves: the code that server rules need on the client, one module for each half.

The server sends the names of the halves. A module `NAME.py` in this folder has a class `Half`.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from fedstride.errors import ConfigError
from fedstride.parts import HALF, USER_PARTS

from ..training.method import ClientMethod

ROLE = "halves"  # the role of a client half among the methods of a round


def known() -> list[str]:
    """The names of the halves that this client has, user-defined ones included."""
    return sorted(_built_in() | set(USER_PARTS.get(HALF, {})))


def _built_in() -> set[str]:
    return {module.name for module in pkgutil.iter_modules(__path__)}


def names(sent: object) -> list[str]:
    """The names of the halves in a message, in its order. Empty if the message has none.

    Raises ConfigError if the value is not a list of names, or contains a name twice.
    """
    if sent is None:
        return []
    if not isinstance(sent, list) or not all(isinstance(name, str) for name in sent):
        raise ConfigError(f"halves = {sent!r} is not allowed: it must be a list of names")
    if len(set(sent)) < len(sent):
        raise ConfigError(f"halves = {sent!r} is not allowed: it must not contain a name twice")
    return sent


def make(name: str) -> ClientMethod:
    """A client half for one round. Raises ConfigError for an unknown or ambiguous name.

    Only modules of this folder and registered user-defined halves can be named, so a message cannot cause the
    import of other modules.
    """
    if name not in known():
        raise ConfigError(
            f"the client half {name!r} is unknown to this client (known: {', '.join(known())}); "
            "run the same version of fedstride on server and clients"
        )
    user_half = USER_PARTS.get(HALF, {}).get(name)
    if user_half is not None and name in _built_in():
        raise ConfigError(
            f"the client half {name!r} of a parts file has the name of a built-in one; choose another name"
        )
    made: ClientMethod = import_module(f".{name}", __name__).Half() if user_half is None else user_half.place()  # type: ignore[operator]
    return made
