"""Server rules as Flower strategies, one file for each method; `registry.py` lists them.

The package needs flwr and numpy, but neither torch nor Hydra. A module is imported when one of its names is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cohort_for_tests import make_cohort as make_cohort
    from .norm_analysis import NormAnalysis as NormAnalysis
    from .registry import *  # noqa: F403
    from .replies.declared_needs import Needs as Needs
    from .replies.screening_settings import Screening as Screening
    from .shell.requests import Request as Request
    from .shell.rule_strategy import RuleStrategy as RuleStrategy
    from .shell.stack import RoundResult as RoundResult
    from .shell.wrapper import Wrapper as Wrapper
    from .sums.means import add_step as add_step
    from .sums.means import averaged_buffers as averaged_buffers
    from .sums.means import mean_update as mean_update
    from .sums.means import movement as movement

_HOMES = {
    "Request": "shell.requests",
    "RoundResult": "shell.stack",
    "Needs": "replies.declared_needs",
    "NormAnalysis": "norm_analysis",
    "RuleStrategy": "shell.rule_strategy",
    "Screening": "replies.screening_settings",
    "Wrapper": "shell.wrapper",
    "averaged_buffers": "sums.means",
    "make_cohort": "cohort_for_tests",
    "add_step": "sums.means",
    "mean_update": "sums.means",
    "movement": "sums.means",
}
"""The modules of the names that are not parts themselves: base classes and functions to build parts with."""


def places() -> dict[str, str]:
    """The module of each name that the package offers; those of parts come from their tables."""
    from .registry import PRIVACY, STRATEGIES

    listed = [str(part.place) for table in (STRATEGIES, PRIVACY) for part in table.built_in()]
    chosen = {name: module for module, name in (place.split(":") for place in listed) if name[0].isupper()}
    return _HOMES | chosen


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and name in (known := places()):
        return getattr(import_module(f".{known[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(sorted(places()))}")


def __dir__() -> list[str]:
    return sorted({*globals(), *places()})
