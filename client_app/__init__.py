"""The ClientApp: one client's part of one round. Knows neither the server nor Hydra."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .method import Method as Method
    from .method import Plan as Plan
    from .method import Returned as Returned
    from .rules.fednlr import NeuronSGD as NeuronSGD
    from .rules.fednlr import network_rates as network_rates

HOMES = {
    "Method": "method",
    "NeuronSGD": "rules.fednlr",
    "Plan": "method",
    "Returned": "method",
    "network_rates": "rules.fednlr",
}
"""What the package offers to others, by module; imported when it is used, since it needs torch."""


def __getattr__(name: str) -> Any:
    if name in HOMES:
        return getattr(import_module(f".{HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
