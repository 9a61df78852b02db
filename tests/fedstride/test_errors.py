"""The error classes, and messages that say what is allowed and suggest similar names."""

from __future__ import annotations

import pytest

from fedstride import errors
from fedstride.errors import ConfigError, FedstrideError, nearest, require, unknown


@pytest.mark.parametrize("name", ["ConfigError", "DataError", "ReplyError", "CheckpointError", "RunError"])
def test_every_error_is_a_fedstride_error_with_an_exit_code(name: str) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, FedstrideError)
    assert kind.exit_code == (2 if name == "ConfigError" else 1)


def test_a_config_error_is_a_value_error() -> None:
    assert issubclass(ConfigError, ValueError)


def test_nearest_puts_the_best_first() -> None:
    assert nearest("fednnn", ["fedavg", "fednnnn", "fedalr"])[0] == "fednnnn"
    assert nearest("lr", ["client.lr", "rounds"]) == ["client.lr"]
    assert nearest("qqqq", ["client.lr", "rounds"]) == []
    assert nearest("", ["client.lr"]) == []


def test_nearest_is_limited_and_never_repeats() -> None:
    found = nearest("abc", ["abcd", "abce", "abcf", "abcg"])
    assert len(found) == len(set(found)) == 3


def test_unknown_lists_the_word_similar_names_and_all_names() -> None:
    text = str(unknown("strategy", "fedavgg", ["krum", "fedavg"]))
    assert text == "unknown strategy 'fedavgg'. Did you mean 'fedavg'? Known: fedavg, krum"


def test_unknown_without_similar_names() -> None:
    assert str(unknown("task", "zzz", ["mnist5k"])) == "unknown task 'zzz'. Known: mnist5k"


def test_require_reports_key_value_and_what_is_allowed() -> None:
    require(True, "a", 1, "anything")
    with pytest.raises(ConfigError) as caught:
        require(False, "client.lr", -1.0, "greater than 0")
    assert str(caught.value) == "client.lr = -1.0 is not allowed: lr must be greater than 0"
