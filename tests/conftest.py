"""Settings for all tests: time limits, Hypothesis profiles, and a fixture for Ctrl-C.

`--hypothesis-profile=long --timeout=0` tries ten times as many examples of what clients can send.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# The tests share the cores with each other and with the processes that they start. A thread of torch that waits
# for another must let go of its core: else two runs with two threads each on two cores take eight times as long.
# Torch reads it when it is loaded, here and in the processes of the tests. It changes no bit of a result.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

SLOW_SECONDS = 900.0  # real processes on a machine that may have other work

# No test may fail because the machine has other work: the time limit of a test is pytest's.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("untimed"), max_examples=10_000, database=None)
settings.load_profile("untimed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests get a longer limit; a limit on the command line holds for all."""
    if config.getoption("timeout") is not None:
        return
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))


class OneDeployment(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """A module stays on one worker, as with xdist's own `loadscope`; all of tests/deployment stay on one.

    Two deployments at the same time would need the machine so much that rounds exceed their limits.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return "deployment" if module.startswith("tests/deployment/") else module


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneDeployment | None:
    """Used for `--dist loadscope`; None: xdist's own."""
    return OneDeployment(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.fixture(autouse=True)
def _own_parts_of_this_test() -> Iterator[None]:
    """A test begins without parts of a user, and those that it loads are unloaded after it.

    A process loads a file of parts only once, and many tests have a file of the same name.
    """
    from fedstride import user_parts

    with user_parts.alone():
        yield


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT interrupts this process and its child processes, also if the tests run in the background.

    A shell script starts a process with `&` with SIGINT ignored, and its child processes inherit this.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def flowers_log_as_before() -> Iterator[None]:
    """A command that a test calls sets Flower's log for its process; the next test here needs it as it was."""
    logger = logging.getLogger("flwr")
    level, filters, propagate = logger.level, list(logger.filters), logger.propagate
    yield
    logger.setLevel(level)
    logger.filters[:] = filters
    logger.propagate = propagate


@pytest.fixture(autouse=True)
def undrawn_curves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The `curve.png` of a run in this process is empty: to draw it takes half of the time of a small run.

    Tests that look at it have the mark `curves`.
    """
    if request.node.get_closest_marker("curves"):
        return
    try:
        from server_app.reports import curve
    except ImportError:  # an environment for the strategies alone
        return
    monkeypatch.setattr(curve, "draw", lambda series, path, **about: path.write_bytes(b""))
