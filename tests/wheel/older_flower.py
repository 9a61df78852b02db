"""A pytest plugin (`-p older_flower`): what the tests of the strategies ask of Flower and older ones do not have.

Knows Flower's versions from 1.21 on. Strategies that came later skip the tests that make one; where an older
Flower's own FedAvg or FedAdam behaves otherwise, the test may fail: it says nothing about ours.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import flwr
import pytest
from flwr.serverapp import strategy

from fedstride import flower  # noqa: F401  before there are stand-ins

LATER = ("FedAvgM", "FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum")  # than 1.21

OTHERWISE = {
    "test_flowers_own_fails_the_run_without_a_wrapper*": "it ends the process, by an error that is no Exception",
    "test_arrays_without_dimensions*<lambda>0?": "its FedAdam fails for arrays without dimensions",
    "test_nothing_is_sent_where_the_inner_strategy_sends_nothing*": "its FedAvg sends all the same",
}
"""Patterns of tests that need a later Flower, with what older ones do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let those tests fail in an older Flower."""
    if tuple(map(int, flwr.__version__.split(".")[:2])) >= (1, 30):
        return
    for item in items:
        for pattern, reason in OTHERWISE.items():
            if fnmatchcase(item.name, pattern):
                item.add_marker(pytest.mark.xfail(reason=reason, raises=BaseException, strict=False))


def _stand_in(name: str) -> type:
    def skip(self: Any, *args: Any, **kwargs: Any) -> None:
        pytest.skip(f"Flower {flwr.__version__} has no {name}")

    return type(name, (strategy.FedAvg,), {"__init__": skip})


for _name in LATER:
    if not hasattr(strategy, _name):
        setattr(strategy, _name, _stand_in(_name))
