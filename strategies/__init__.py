"""Server rules as Flower strategies, one file a method.

Knows what a server does with a round's replies; needs flwr and numpy, neither torch nor Hydra.
Importing the package loads nothing until a name is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fedalr import Fedalr
    from .fedavg import FedAvg
    from .fedlws import FedLWS
    from .fednnnn import FedNNNN, Momentum, NormNorm
    from .norms import NormAnalysis
    from .privacy import DifferentialPrivacy
    from .two_d_lrd import TwoDLRD

_HOME = {
    "DifferentialPrivacy": "privacy",
    "FedAvg": "fedavg",
    "FedLWS": "fedlws",
    "FedNNNN": "fednnnn",
    "Fedalr": "fedalr",
    "Momentum": "fednnnn",
    "NormAnalysis": "norms",
    "NormNorm": "fednnnn",
    "TwoDLRD": "two_d_lrd",
}

__all__ = [
    "DifferentialPrivacy",
    "FedAvg",
    "FedLWS",
    "FedNNNN",
    "Fedalr",
    "Momentum",
    "NormAnalysis",
    "NormNorm",
    "TwoDLRD",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module 'strategies' has no attribute {name!r}; it has {', '.join(__all__)}")
