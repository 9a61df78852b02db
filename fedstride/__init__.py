"""What both sides share: settings, parts, names that travel, arrays, seeds, errors, tasks; and all public names.

Knows neither the server nor the client; of what the other rooms offer it knows the names alone:
`from fedstride import FedLWS` is the same in a clone, in a bundle and from the wheel. Importing it loads nothing
heavy: what stands behind a name is imported when the name is used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from client_app import Method as Method
    from client_app import NeuronSGD as NeuronSGD
    from client_app import Plan as Plan
    from client_app import Returned as Returned
    from client_app import network_rates as network_rates
    from strategies import *  # noqa: F403

    from .metrics import Metric as Metric
    from .metrics import declare as declare
    from .parts import part as part
    from .settings import Setting as Setting
    from .tasks.data import Data as Data

__version__ = "0.1.0"

_HOMES = {
    "Data": "tasks.data",
    "Metric": "metrics",
    "Setting": "settings",
    "declare": "metrics",
    "part": "parts",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    # `from fedstride import wire` asks here first: a module of that name is then imported, and no other room.
    if name.startswith("_") or find_spec(f"{__name__}.{name}") is not None:
        raise AttributeError(f"module 'fedstride' has no attribute {name!r}")
    import client_app
    import strategies

    if name in strategies.places():
        return getattr(strategies, name)
    if name not in client_app.HOMES:
        raise AttributeError(f"module 'fedstride' has no attribute {name!r}; it offers {', '.join(__dir__())}")
    try:
        return getattr(client_app, name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"{name} needs torch: pip install 'fedstride[client]'") from error


def __dir__() -> list[str]:
    import client_app
    import strategies

    return sorted([*_HOMES, *strategies.places(), *client_app.HOMES, "__version__"])
