"""The ClientApp: executes a client's part of one round."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .rules.fednlr import NeuronSGD as NeuronSGD
    from .rules.fednlr import network_rates as network_rates
    from .training.method import Method as Method
    from .training.method import Plan as Plan
    from .training.method import Returned as Returned

MODULE_OF = {
    "Method": "training.method",
    "NeuronSGD": "rules.fednlr",
    "Plan": "training.method",
    "Returned": "training.method",
    "network_rates": "rules.fednlr",
}
"""The public names of this package and their modules. They are imported on first use, because they need torch."""


def __getattr__(name: str) -> Any:
    if name in MODULE_OF:
        return getattr(import_module(f".{MODULE_OF[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
