"""Server rules as Flower strategies, one file for each method; `parts.py` lists them.

The package needs flwr and numpy, but neither torch nor Hydra. A module is imported when one of its names is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .limits import Screening as Screening
    from .means import add_step as add_step
    from .means import averaged_buffers as averaged_buffers
    from .means import mean_update as mean_update
    from .means import movement as movement
    from .needs import Needs as Needs
    from .norms import NormAnalysis as NormAnalysis
    from .parts import *  # noqa: F403
    from .requests import Request as Request
    from .rules import RuleStrategy as RuleStrategy
    from .stack import RoundResult as RoundResult
    from .testing import make_cohort as make_cohort
    from .wrappers import Wrapper as Wrapper

_HOMES = {
    "Request": "requests",
    "RoundResult": "stack",
    "Needs": "needs",
    "NormAnalysis": "norms",
    "RuleStrategy": "rules",
    "Screening": "limits",
    "Wrapper": "wrappers",
    "averaged_buffers": "means",
    "make_cohort": "testing",
    "add_step": "means",
    "mean_update": "means",
    "movement": "means",
}
"""The modules of the names that are not parts themselves: base classes and functions to build parts with."""


def places() -> dict[str, str]:
    """The module of each name that the package offers; those of parts come from their tables."""
    from .parts import PRIVACY, STRATEGIES

    found = [str(part.place) for table in (STRATEGIES, PRIVACY) for part in table.built_in()]
    chosen = {name: module for module, name in (place.split(":") for place in found) if name[0].isupper()}
    return _HOMES | chosen


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and name in (known := places()):
        return getattr(import_module(f".{known[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(sorted(places()))}")


def __dir__() -> list[str]:
    return sorted({*globals(), *places()})
