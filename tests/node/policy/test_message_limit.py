"""How long a message may take at `fedstride node`."""

from __future__ import annotations

import pytest

from fedstride.errors import ConfigError
from node.policy.time_limit import message_limit


def test_the_limit_of_a_message() -> None:
    assert message_limit({}) == float("inf")
    assert message_limit({"FEDSTRIDE_MESSAGE_SECONDS": "90.5"}) == 90.5


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan"])
def test_a_limit_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(
        ConfigError, match=f"FEDSTRIDE_MESSAGE_SECONDS is '{text}', but must be a number of seconds"
    ):
        message_limit({"FEDSTRIDE_MESSAGE_SECONDS": text})
