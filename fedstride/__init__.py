"""The words that both sides share: configuration, wire names, arrays, seeds, errors, tasks. And the public names.

Knows neither the server nor the client; of what the other rooms offer it knows the names alone:
`from fedstride import FedLWS` is the same in a clone, in a bundle and from the wheel. Importing it loads nothing
heavy: what stands behind a name is imported when the name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from client_app.rules.fednlr import NeuronSGD, network_rates
    from strategies import (
        DifferentialPrivacy,
        Fedalr,
        FedAvg,
        FedLWS,
        FedNNNN,
        Momentum,
        NormAnalysis,
        NormNorm,
        TwoDLRD,
    )
    from strategies.base import RuleStrategy
    from strategies.wrapper import Wrapper

__version__ = "0.1.0"

__all__ = [
    "DifferentialPrivacy",
    "FedAvg",
    "FedLWS",
    "FedNNNN",
    "Fedalr",
    "Momentum",
    "NeuronSGD",
    "NormAnalysis",
    "NormNorm",
    "RuleStrategy",
    "TwoDLRD",
    "Wrapper",
    "network_rates",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fedstride' has no attribute {name!r}; it offers {', '.join(__all__)}")
    if name in ("NeuronSGD", "network_rates"):
        try:
            from client_app.rules import fednlr
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ImportError(f"{name} needs torch: pip install 'fedstride[client]'") from error
        return getattr(fednlr, name)
    if name == "RuleStrategy":
        from strategies.base import RuleStrategy

        return RuleStrategy
    if name == "Wrapper":
        from strategies.wrapper import Wrapper

        return Wrapper
    import strategies

    return getattr(strategies, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
