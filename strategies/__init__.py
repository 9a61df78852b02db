"""Server rules as Flower strategies, one file a method; `parts.py` says which there are.

Knows what a server does with a round's replies; needs flwr and numpy, neither torch nor Hydra.
Importing the package loads nothing until a name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .norms import NormAnalysis as NormAnalysis
    from .parts import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name == "NormAnalysis":  # no choice: it stands around every strategy
        from .norms import NormAnalysis

        return NormAnalysis
    from .parts import PRIVACY, STRATEGIES

    for table in (STRATEGIES, PRIVACY):
        for part in table.values():
            if str(part.place).endswith(f":{name}"):
                return table.load(part.name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(_classes())}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_classes()})


def _classes() -> list[str]:
    """The names of the strategies, as the tables' places have them."""
    from .parts import PRIVACY, STRATEGIES

    places = [str(part.place).rpartition(":")[2] for table in (STRATEGIES, PRIVACY) for part in table.values()]
    return sorted({"NormAnalysis", *(name for name in places if name[:1].isupper())})
