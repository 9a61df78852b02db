"""Public names of fedstride, and code that server and client share: settings, parts, arrays, seeds, errors, tasks.

`from fedstride import FedLWS` works in a clone, in a Flower bundle and with the installed wheel. Importing this
package is cheap: a class is imported only when its name is used.
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
    from lab.prediction.model import load as load
    from lab.python.calls import compare as compare
    from lab.python.calls import results as results
    from lab.python.calls import resume as resume
    from lab.python.calls import run as run
    from lab.python.calls import sweep as sweep
    from lab.python.comparison import Comparison as Comparison
    from lab.python.run_result import Result as Result
    from lab.python.several_results import Results as Results
    from strategies import *  # noqa: F403

    from .figures.figure import Figure as Figure
    from .figures.metrics import Metric as Metric
    from .figures.metrics import declare as declare
    from .parts import part as part
    from .settings import Setting as Setting
    from .tasks.data import Data as Data
    from .tasks.inputs import Inputs as Inputs
    from .tasks.inputs import Kind as Kind
    from .tasks.partitions.divisible_examples import Divisible as Divisible
    from .tasks.spec import Spec as Spec
    from .tasks.spec import Target as Target

__version__ = "0.1.0"

_MODULE_OF = {
    "Data": "tasks.data",
    "Divisible": "tasks.partitions.divisible_examples",
    "Figure": "figures.figure",
    "Inputs": "tasks.inputs",
    "Kind": "tasks.inputs",
    "Metric": "figures.metrics",
    "Setting": "settings",
    "Spec": "tasks.spec",
    "Target": "tasks.spec",
    "declare": "figures.metrics",
    "part": "parts",
}


def __getattr__(name: str) -> Any:
    if name == "__all__":  # for `from fedstride import *`
        return _importable()
    if name in _MODULE_OF:
        return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    # `from fedstride import settings` calls this function first. The error makes Python import the submodule, and
    # `strategies` and `client_app` are not imported.
    if name.startswith("_") or find_spec(f"{__name__}.{name}") is not None:
        raise AttributeError(f"module 'fedstride' has no attribute {name!r}")
    import client_app
    import strategies

    if name in strategies.places():
        return getattr(strategies, name)
    if name in client_app.MODULE_OF:
        try:
            return getattr(client_app, name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ImportError(f"{name} needs torch: pip install 'fedstride[client]'") from error
    if name in _at_the_desk():
        from lab import public_names

        return public_names.load(name)
    raise AttributeError(f"module 'fedstride' has no attribute {name!r}; it has {', '.join(__dir__())}")


def _at_the_desk() -> list[str]:
    """Names from the package of tools, which is not in a Flower bundle, and which a ServerApp may not read."""
    try:
        from lab import public_names
    except (ModuleNotFoundError, PermissionError):
        return []
    return list(public_names.MODULE_OF)


def _importable() -> list[str]:
    """The public names; those that need torch only with it, those of the tools only with all that they need."""
    import client_app

    from .__main__ import DESK, NODE

    absent = set() if find_spec("torch") else set(client_app.MODULE_OF)
    absent |= set() if all(map(find_spec, (*DESK, *NODE))) else set(_at_the_desk())
    return [name for name in __dir__() if not name.startswith("_") and name not in absent]


def __dir__() -> list[str]:
    import client_app
    import strategies

    return sorted([*_MODULE_OF, *_at_the_desk(), *strategies.places(), *client_app.MODULE_OF, "__version__"])
