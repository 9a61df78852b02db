"""The proxy set of a task: which examples it takes, and that nothing else has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstride.errors import ConfigError, DataError
from fedstride.tasks import data
from fedstride.tasks.partitions import schemes
from fedstride.tasks.partitions.divisible_examples import Divisible
from fedstride.tasks.proxy import counts_of_classes, positions
from fedstride.tasks.registry import PARTITIONS, TASKS


def load(name: str = "mnist5k", **values: Any) -> data.Data:
    return data.load(TASKS.config(name)(**values))


# ---------------------------------------------------------------- which examples


def test_counts() -> None:
    assert counts_of_classes(200, 10) == [20] * 10
    assert counts_of_classes(205, 10) == [20] * 10
    assert counts_of_classes(7, 10) == [0] * 10
    assert counts_of_classes(3, 1) == [3]


def test_the_long_tailed_set_of_the_fedlws_paper() -> None:
    """Class c has int(200 / C 0.1^(c / (C - 1)))."""
    found = counts_of_classes(200, 10, 0.1)
    assert found == [20, 15, 11, 9, 7, 5, 4, 3, 2, 2]
    assert counts_of_classes(200, 100, 0.1)[::33] == [2, 0, 0, 0]


@settings(max_examples=40, deadline=None, database=None, derandomize=True)
@given(st.integers(2, 6), st.integers(1, 60), st.floats(0.05, 1.0), st.integers(0, 99))
def test_any_labels(classes: int, count: int, smallest: float, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, classes, 900)
    counts = counts_of_classes(count, classes, smallest)
    if not sum(counts):
        return
    found = positions(labels, counts, "test")
    assert np.bincount(labels[found], minlength=classes).tolist() == counts
    assert len(set(found.tolist())) == len(found) and sorted(found.tolist()) == found.tolist()
    assert positions(labels, counts, "test").tolist() == found.tolist()
    smaller = counts_of_classes(max(classes, count // 2), classes)
    larger = [max(a, b) for a, b in zip(smaller, counts, strict=True)]
    assert set(positions(labels, smaller, "test").tolist()) <= set(positions(labels, larger, "test").tolist())


@pytest.mark.parametrize(
    ("counts", "said"),
    [([3, 3], "takes 3 test examples of class 1, which has 3, and at least one"), ([0, 0], "must be at least 2")],
)
def test_sets_that_cannot_be_taken(counts: list[int], said: str) -> None:
    with pytest.raises(DataError, match=said):
        positions(np.array([0] * 5 + [1] * 3), counts, "test")


# ---------------------------------------------------------------- of a task


def test_the_test_set_loses_it_and_training_does_not() -> None:
    found, plain = load(proxy="test"), load()
    assert isinstance(found, data.WithProxy) and not isinstance(plain, data.WithProxy)
    assert np.bincount(found.test_y[found.proxy]).tolist() == [20] * 10
    assert sorted([*found.proxy, *found.measured]) == list(range(1000))
    assert len(plain.measured) == 1000 and len(found.divisible) == len(plain.divisible) == 4000
    assert found.proxy_examples[0] is found.test_x


def test_the_training_examples_lose_it_and_the_test_set_does_not() -> None:
    found = load(proxy="train_holdout", proxy_examples=400, proxy_smallest=0.5)
    assert isinstance(found, data.WithProxy)
    assert np.bincount(found.train_y[found.proxy])[[0, 9]].tolist() == [40, 20]
    assert len(found.measured) == 1000
    for name in ("iid", "dirichlet", "shards"):
        parts = schemes.partition(PARTITIONS.config(name)(), found.divisible, 5, 1)
        members = np.concatenate(parts)
        assert sorted([*members, *found.proxy]) == list(range(4000)), name


def test_clients_find_the_same_parts_from_the_message() -> None:
    from client_app import message_settings

    task = TASKS.unflatten(TASKS.flatten(TASKS.config("mnist5k")(proxy="train_holdout")))
    iid = PARTITIONS.config("iid")()
    source = data.load(task)
    assert isinstance(source, data.WithProxy)
    at_clients = np.concatenate(message_settings.members(task, iid, 4, 1))
    assert set(at_clients) & set(source.proxy) == set()
    at_server = np.concatenate(schemes.partition(iid, source.divisible, 4, 1))
    assert at_clients.tolist() == at_server.tolist()


def test_without_keeps_labels_groups_and_places() -> None:
    whole = Divisible(6, np.array([0, 1, 2, 0, 1, 2]), np.array([5, 5, 5, 6, 6, 6]))
    twice = whole.without(np.array([1, 4])).without(np.array([0]))
    assert twice.positions is not None and twice.labels is not None and twice.groups is not None
    assert (twice.positions.tolist(), twice.labels.tolist(), twice.groups.tolist()) == (
        [2, 3, 5],
        [2, 0, 2],
        [5, 6, 6],
    )


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("diabetes", {"proxy": "test"}, r"^task\.proxy = 'test' .*none: task=diabetes has no classes"),
        (
            "own_images",
            {"proxy": "test", "classes": ["a", "b"]},
            r"^task\.proxy = 'test' .*the server has no test examples of task=own_images",
        ),
        (
            "mnist5k",
            {"proxy": "test", "proxy_examples": 1000},
            r"takes 100 test examples of class 0, which has 100",
        ),
    ],
)
def test_tasks_without_such_a_set(name: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, DataError), match=said):
        load(name, **values)
