"""Settings for all tests: time limits, Hypothesis profiles, and a fixture for Ctrl-C.

`--hypothesis-profile=long --timeout=0` tries ten times as many examples of what clients can send.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

SLOW_SECONDS = 900.0  # real processes on a machine that may have other work

settings.register_profile("long", max_examples=10_000, deadline=None, database=None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests get a longer limit, and with `--dist loadgroup` each module stays on one worker.

    A limit on the command line holds for all. The modules of the group `deployment` share a worker, so that only
    one deployment at a time needs the machine.
    """
    limited = config.getoption("timeout") is None
    for item in items:
        if not item.get_closest_marker("slow"):
            continue
        if limited and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT interrupts this process and its child processes, also if the tests run in the background.

    A shell script starts a process with `&` with SIGINT ignored, and its child processes inherit this.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
