"""What server rules need of a client beside training: one module a half, found by the name that is sent.

Knows names; does not know what any half does. A module `NAME.py` in this folder has a class `Half`.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from fedstride.errors import ConfigError
from fedstride.parts import HALF, OWN

from ..method import ClientMethod

ROLE = "halves"  # of a half among the methods of a round


def known() -> list[str]:
    """The halves that this client has; a user's own parts file may add some."""
    return sorted(_ours() | set(OWN.get(HALF, {})))


def _ours() -> set[str]:
    return {module.name for module in pkgutil.iter_modules(__path__)}


def names(sent: object) -> list[str]:
    """The halves that a message asks for, in its order; none where it says nothing.

    Raises ConfigError for what is no list of names, and for a name twice.
    """
    if sent is None:
        return []
    if not isinstance(sent, list) or not all(isinstance(name, str) for name in sent):
        raise ConfigError(f"halves = {sent!r} is not allowed: it must be a list of names")
    if len(set(sent)) < len(sent):
        raise ConfigError(f"halves = {sent!r} is not allowed: each name may stand in it once")
    return sent


def make(name: str) -> ClientMethod:
    """A half for one round. Raises ConfigError for a name that this client does not have, or has twice.

    Only the modules of this folder can be named: a message imports nothing else.
    """
    if name not in known():
        raise ConfigError(
            f"the half {name!r} of a server rule is not known to this client (known: {', '.join(known())}); "
            "run the same version of fedstride on server and clients"
        )
    own = OWN.get(HALF, {}).get(name)
    if own is not None and name in _ours():
        raise ConfigError(f"the half {name!r} of a file of parts is taken by one of ours: choose another name")
    made: ClientMethod = import_module(f".{name}", __name__).Half() if own is None else own.place()  # type: ignore[operator]
    return made
