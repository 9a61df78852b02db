"""Public names of fedstride that are defined here, each with its module. Importing this module is cheap."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .python.beginning import beginning

MODULE_OF = {
    "Comparison": "python.comparison",
    "Result": "python.run_result",
    "Results": "python.several_results",
    "compare": "python.calls",
    "load": "prediction.model",
    "results": "python.calls",
    "resume": "python.calls",
    "run": "python.calls",
    "sweep": "python.calls",
}


@beginning()
def load(name: str) -> Any:
    """The object with this public name. Raises ImportError, in one line, if a package that it needs is missing."""
    try:
        return getattr(import_module(f".{MODULE_OF[name]}", __package__), name)
    except ModuleNotFoundError as error:
        lacks = str(error.name).partition(".")[0]
        raise ImportError(f"{name} needs {lacks}: pip install 'fedstride[desk]'") from error
