"""What leaves a node about an error: one of a list of sentences, and at most a key that the server has sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstride.error_kinds import ErrorKind, Fault, fault_of, parsed
from fedstride.errors import ConfigError, DataError, ReplyError

KEYS = {"client.lr", "holdout"}


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ConfigError("lr = 'Jane Doe'", key="client.lr"), Fault(ErrorKind.SETTING, "client.lr")),
        (ConfigError("Jane Doe", key="Jane Doe"), Fault(ErrorKind.SETTING)),
        (ConfigError("Jane Doe"), Fault(ErrorKind.SETTING)),
        (DataError("line 2, 'Jane Doe'"), Fault(ErrorKind.DATA)),
        (ReplyError("Jane Doe"), Fault(ErrorKind.APP)),
        (FileNotFoundError(2, "no", "/srv/Jane Doe"), Fault(ErrorKind.APP)),
        (KeyboardInterrupt("Jane Doe"), Fault(ErrorKind.APP)),
    ],
)
def test_of_an_error_only_the_kind_and_a_key_of_the_message(error: BaseException, fault: Fault) -> None:
    assert fault_of(error, KEYS) == fault
    assert "Jane" not in str(fault) and str(fault).endswith("details in the log of the node")


@given(st.sampled_from(ErrorKind), st.sampled_from(["", *KEYS]))
def test_a_fault_is_read_again(kind: ErrorKind, key: str) -> None:
    assert parsed(str(Fault(kind, key)), KEYS) == Fault(kind, key)
    assert parsed(str(Fault(kind, key or "x")) + " ", KEYS) is None


@given(st.text())
def test_nothing_else_is_a_fault(text: str) -> None:
    assert parsed(text, KEYS) is None
    assert parsed(str(Fault(ErrorKind.SETTING, f"other {text}")), KEYS) is None
