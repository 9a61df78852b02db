"""Keys and values of Python: which are taken, and the one line for each that is not."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fedstride.errors import ConfigError
from lab.python.keys_as_overrides import merged, single, swept
from server_app.config.compose import compose


@pytest.mark.parametrize(
    ("key", "value", "want"),
    [
        ("client.lr", 0.03, 0.03),
        ("client.lr", np.float32(0.5), 0.5),
        ("client.lr", 1e-7, 1e-7),
        ("client.lr", 1, 1.0),
        ("seed", np.int64(7), 7),
        ("rounds", np.array(3), 3),
        ("evaluate_clients", True, True),
        ("holdout", None, None),
        ("name", "a,b", "a,b"),
        ("name", "it's", "it's"),
        ("name", "true", "true"),
        ("name", "1e3", "1e3"),
        ("name", "a=b [c] {d}", "a=b [c] {d}"),
        ("name", "größe", "größe"),
        ("name", "null", "null"),
        ("name", 12, "12"),
        ("out", Path("some/where"), "some/where"),
        ("train", ["fc1.*", "fc2"], ["fc1.*", "fc2"]),
        ("train", ("fc1.*",), ["fc1.*"]),
        ("train", ["1e3", "true"], ["1e3", "true"]),
        ("task.metrics", np.array(["auroc", "f1"]), ["auroc", "f1"]),
    ],
)
def test_a_value_of_python_is_the_value_of_the_key(key: str, value: Any, want: object) -> None:
    config = compose(single({key: value}))
    found: Any = config
    for name in key.split("."):
        found = getattr(found, name)
    assert found == want and type(found) is type(want)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"lr": 0.1}, "client cannot be a dict: write each of its keys in full, as in {'client.lr': ...}"),
        ({0.1, 0.2}, "client is a set: it must be text, a number, True, False, None, a path, or a list of these"),
        (pd.DataFrame({"a": [1, 2]}), "client is a DataFrame: it must be"),
        (torch.zeros(2), "client is a Tensor: it must be"),
        (Decimal("0.1"), "client is a Decimal: it must be"),
        (b"sgd", "client is a bytes: it must be"),
        (lambda: 1, "client is a function: it must be"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_another_type_is_refused_in_one_line(value: Any, said: str) -> None:
    for form in (single, swept):
        with pytest.raises(ConfigError) as error:
            form({"client": value})
        assert str(error.value).startswith(said) and "\n" not in str(error.value)


@pytest.mark.parametrize("key", ["client.lr", "rounds", "strategy"])
def test_a_key_in_the_dict_and_as_a_keyword_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{key} is given twice, in the dict and as a keyword"):
        merged({key: 1, "seed": 2}, {key: 1})


@pytest.mark.parametrize("settings", [["rounds=2"], "rounds=2", 3])
def test_keys_that_are_in_no_dict_are_refused(settings: Any) -> None:
    with pytest.raises(ConfigError, match="the keys must be in a dict or given as keywords"):
        merged(settings, {})


def test_a_key_that_is_not_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="the key 3 is not text"):
        merged({3: 1}, {})  # type: ignore[dict-item]


@pytest.mark.parametrize("key", ["strategy", "method", "client", "strategy@strategy.inner", "task"])
def test_several_choices_belong_into_a_sweep(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{key} has several values: fedstride.sweep"):
        single({key: ["a", "b"]})


def test_a_list_in_a_sweep_has_several_values_and_a_tuple_is_one() -> None:
    given = {
        "seed": range(1, 4),
        "train": [("fc1",), ("fc1", "fc2")],
        "client.lr": np.array([0.1, 0.2]),
        "rounds": 2,
    }
    assert swept(given) == ["seed=1,2,3", "train=[fc1],[fc1,fc2]", "client.lr=0.1,0.2", "rounds=2"]


def test_an_empty_list_in_a_sweep_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^seed = \[\] is not allowed: a list in a sweep has at least one value"
    ):
        swept({"seed": []})
