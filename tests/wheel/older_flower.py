"""A pytest plugin (`-p older_flower`) for the tests of the strategies with Flower from 1.21 on.

A test that uses a strategy which this Flower does not have yet is skipped. A test may fail if FedAvg or FedAdam
of an older Flower behaves differently: this is not a fault of fedstride.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import flwr
import pytest
from flwr.serverapp import strategy

from fedstride.flower import strategy_internals  # noqa: F401  imported before the stand-ins exist

LATER = ("FedAvgM", "FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum", "QFedAvg")
"""Strategies added after Flower 1.21."""

DIFFERENT = {
    "test_flowers_own_fails_the_run_without_a_wrapper*": "its error is not an Exception and ends the process",
    "test_arrays_without_dimensions*<lambda>0?": "its FedAdam fails for arrays without dimensions",
    "test_nothing_is_sent_where_the_inner_strategy_sends_nothing*": "its FedAvg sends messages anyway",
}
"""Patterns of tests that need a later Flower, and what older versions do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark these tests as expected failures in an older Flower."""
    if tuple(map(int, flwr.__version__.split(".")[:2])) >= (1, 30):
        return
    for item in items:
        for pattern, reason in DIFFERENT.items():
            if fnmatchcase(item.name, pattern):
                item.add_marker(pytest.mark.xfail(reason=reason, raises=BaseException, strict=False))


def _stand_in(name: str) -> type:
    def skip(self: Any, *args: Any, **kwargs: Any) -> None:
        pytest.skip(f"Flower {flwr.__version__} has no {name}")

    return type(name, (strategy.FedAvg,), {"__init__": skip})


for _name in LATER:
    if not hasattr(strategy, _name):
        setattr(strategy, _name, _stand_in(_name))
