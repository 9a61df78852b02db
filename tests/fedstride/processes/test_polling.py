"""Pauses that grow, with a clock of the test."""

from __future__ import annotations

import pytest

from fedstride.processes.polling import Growing


def test_a_wait_grows_the_longer_nothing_comes() -> None:
    now = 100.0
    growing = Growing(0.1, 3.0, lambda: now)
    pauses = {}
    for waited in (0.0, 0.5, 1.0, 2.0, 10.0, 29.0, 30.0, 1e6):
        now = 100.0 + waited
        pauses[waited] = growing.pause()
    assert pauses == pytest.approx(
        {0.0: 0.1, 0.5: 0.1, 1.0: 0.1, 2.0: 0.2, 10.0: 1.0, 29.0: 2.9, 30.0: 3.0, 1e6: 3.0}
    )
    growing.restart()
    assert growing.pause() == 0.1


def test_what_takes_long_is_noticed_late_by_at_most_a_tenth() -> None:
    """The pauses follow each other; wherever the next event falls, it ends one of them."""
    now = 0.0
    growing = Growing(0.01, 0.5, lambda: now)
    while now < 100.0:
        pause = growing.pause()
        assert pause <= max(0.01, 0.1 * now)
        assert pause <= 0.5
        now += pause


def test_an_idle_node_asks_no_more_often_than_flowers() -> None:
    """In an hour without messages: 1200 requests with a fixed wait of three seconds."""
    now, asked = 0.0, 0
    growing = Growing(0.1, 3.0, lambda: now)
    while now < 3600.0:
        asked += 1
        now += growing.pause()
    assert 1200 <= asked < 1240
