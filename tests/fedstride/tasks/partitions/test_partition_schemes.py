"""The rules of the partition schemes: who gets which classes, groups and sizes; advice if that is impossible."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fedstride.errors import DataError
from fedstride.tasks.partitions import by_classes as by_class
from fedstride.tasks.partitions import client_sizes
from fedstride.tasks.partitions import schemes as schemes
from fedstride.tasks.partitions.divisible_examples import Divisible

Draw = Callable[..., list[np.ndarray]]
TEN = Divisible(4000, np.random.default_rng(0).permutation(np.repeat(np.arange(10), 400)))
UNEVEN = Divisible(3000, np.random.default_rng(0).permutation(np.repeat([0, 1, 3, 7], [1500, 900, 560, 40])))

DRAWS: dict[str, tuple[Draw, Any]] = {  # with the settings that Hypothesis chooses
    "iid": (schemes.iid, st.just({})),
    "quantity_skew": (
        schemes.quantity_skew,
        st.fixed_dictionaries({"exponent": st.floats(0, 5), "min_size": st.integers(1, 4)}),
    ),
    "dirichlet": (
        schemes.dirichlet,
        st.fixed_dictionaries({"alpha": st.floats(0.1, 10), "min_size": st.just(1), "balanced": st.booleans()}),
    ),
    "dirichlet_by_client": (schemes.dirichlet_by_client, st.fixed_dictionaries({"alpha": st.floats(0.1, 10)})),
    "shards": (
        by_class.shards,
        st.fixed_dictionaries({"classes_per_client": st.integers(1, 5), "balanced": st.booleans()}),
    ),
    "sorted_shards": (by_class.sorted_shards, st.fixed_dictionaries({"shards_per_client": st.integers(1, 5)})),
    "two_classes": (
        by_class.two_classes,
        st.fixed_dictionaries(
            {
                "sizes": st.sampled_from(["equal", "power_law"]),
                "exponent": st.floats(0, 3),
                "min_size": st.integers(2, 4),
            }
        ),
    ),
    "one_class": (by_class.one_class, st.just({})),
    "class_groups": (by_class.class_groups, st.just({})),
    "by_group": (schemes.by_group, st.just({})),
}
SLOW = {"dirichlet", "dirichlet_by_client"}  # Flower's partitioners
tries = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


def classes_of(parts: list[np.ndarray], labels: np.ndarray) -> list[set[int]]:
    return [set(labels[part].tolist()) for part in parts]


def sizes_of(parts: list[np.ndarray]) -> list[int]:
    return [len(part) for part in parts]


def table_of(parts: list[np.ndarray], labels: np.ndarray) -> np.ndarray:
    return np.stack([np.bincount(labels[part], minlength=labels.max() + 1) for part in parts])


# ---------------------------------------------------------------- all schemes


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWS)
def test_each_example_belongs_to_one_client_or_the_division_is_refused(name: str) -> None:
    """For all sizes, classes, groups, clients and seeds. A refusal is one line with what to change."""
    draw, options = DRAWS[name]
    found, refused = [], []

    @settings(tries, max_examples=20 if name in SLOW else 60)
    @example([*range(4)] * 10, 6, 1, 9, {})  # one that every scheme can divide
    @given(
        st.lists(st.integers(0, 7), min_size=1, max_size=120),
        st.integers(1, 20),
        st.integers(0, 2**63 - 1),
        st.integers(1, 9),
        options,
    )
    def check(labels: list[int], clients: int, seed: int, groups: int, chosen: dict[str, Any]) -> None:
        labels, clients = labels * 3, min(clients, len(labels))
        source = Divisible(len(labels), np.array(labels), np.arange(len(labels)) ** 2 % groups)
        try:
            parts = draw(source, clients, seed, **chosen)
        except DataError as error:
            refused.append(str(error))
            return
        found.append(len(parts))
        assert len(parts) == clients
        assert min(sizes_of(parts)) > 0
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
        assert all(np.array_equal(a, b) for a, b in zip(parts, draw(source, clients, seed, **chosen), strict=True))

    check()
    assert found  # not everything was refused
    assert all("\n" not in line and re.search("; (use|raise|lower) ", line) for line in refused)


def test_pathological_leaves_out_only_classes_without_a_client() -> None:
    parts = schemes.pathological(TEN, 4, 1, classes_per_client=3)
    assert set().union(*classes_of(parts, TEN.labels)) == set(range(6))
    assert sorted(np.concatenate(parts).tolist()) == np.flatnonzero(TEN.labels < 6).tolist()


# ---------------------------------------------------------------- sizes


def test_power_law_sizes_by_hand() -> None:
    assert client_sizes.power_law_sizes(1100, 3, 1.0, 1).tolist() == [600, 300, 200]
    assert client_sizes.power_law_sizes(10, 4, 0.0, 1).tolist() == [3, 3, 2, 2]
    assert client_sizes.power_law_sizes(1100, 3, 1.0, 250).tolist() == [567, 283, 250]  # 850 in shares 2 : 1
    assert client_sizes.power_law_sizes(10, 3, 1e9, 1).tolist() == [8, 1, 1]


def test_quantity_skew_is_a_power_law_with_mixed_labels() -> None:
    parts = schemes.quantity_skew(TEN, 20, 3, exponent=1.0, min_size=1)
    wanted = 4000 / np.arange(1, 21) / (1 / np.arange(1, 21)).sum()
    assert np.abs(np.array(sizes_of(parts)) - wanted).max() < 1
    assert len(classes_of(parts, TEN.labels)[0]) == 10
    with pytest.raises(
        DataError, match=r"partition.min_size = 201 .* needs 4020 .* use partition.min_size=200 or"
    ):
        schemes.quantity_skew(TEN, 20, 3, min_size=201)


# ---------------------------------------------------------------- Dirichlet by client


@pytest.mark.slow
def test_dirichlet_by_client_has_equal_sizes_and_less_skew_with_a_larger_alpha() -> None:
    def largest(alpha: float) -> float:
        parts = schemes.dirichlet_by_client(UNEVEN, 7, 3, alpha=alpha)
        assert set(sizes_of(parts)) <= {428, 429}
        table = table_of(parts, UNEVEN.labels)
        return float((table.max(axis=1) / table.sum(axis=1)).mean())

    assert largest(0.05) > largest(1.0) > largest(1000.0)
    even = table_of(schemes.dirichlet_by_client(TEN, 5, 3, alpha=1e6), TEN.labels)
    assert np.abs(even - 80).max() < 40


def test_an_alpha_that_leaves_no_proportions_is_refused() -> None:
    with pytest.raises(
        DataError, match=r"^partition.alpha = 0.0001 .*; raise partition.alpha, or use another seed"
    ):
        schemes.dirichlet_by_client(TEN, 5, 1, alpha=0.0001)


# ---------------------------------------------------------------- numbers of classes


@pytest.mark.parametrize("classes", [1, 2, 4, 10])
def test_shards_have_exactly_their_number_of_classes(classes: int) -> None:
    for balanced in (False, True):
        parts = by_class.shards(TEN, 20, 5, classes_per_client=classes, balanced=balanced)
        assert {len(each) for each in classes_of(parts, TEN.labels)} == {classes}
        assert (set(sizes_of(parts)) == {200}) == balanced
        holders = (table_of(parts, TEN.labels) > 0).sum(axis=0)
        assert set(holders) == {2 * classes}


def test_balanced_shards_of_uneven_classes_have_equal_sizes() -> None:
    parts = by_class.shards(UNEVEN, 13, 1, classes_per_client=3, balanced=True)
    assert set(sizes_of(parts)) == {230, 231}
    assert {len(each) for each in classes_of(parts, UNEVEN.labels)} == {3}


@pytest.mark.parametrize("source", [TEN, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("sizes", ["equal", "power_law"])
def test_two_classes_with_exact_sizes(source: Divisible, sizes: str) -> None:
    parts = by_class.two_classes(source, 30, 2, sizes=sizes, exponent=0.8)
    assert {len(each) for each in classes_of(parts, source.labels)} == {2}
    expected = (
        client_sizes.equal_sizes(len(source), 30)
        if sizes == "equal"
        else client_sizes.power_law_sizes(len(source), 30, 0.8, 10)
    )
    assert sizes_of(parts) == expected.tolist()


def test_fednnnns_hundred_clients_have_twenty_examples_of_each_of_two_classes() -> None:
    table = table_of(by_class.two_classes(TEN, 100, 1), TEN.labels)
    assert sorted(set(table.ravel().tolist())) == [0, 20]
    skewed = by_class.two_classes(TEN, 100, 1, sizes="power_law", exponent=1.0)
    assert max(sizes_of(skewed)) > 700 and min(sizes_of(skewed)) == 10


def test_one_class_for_each_client() -> None:
    parts = by_class.one_class(TEN, 20, 1)
    assert classes_of(parts, TEN.labels) == [{k % 10} for k in range(20)]
    assert set(sizes_of(parts)) == {200}
    assert classes_of(by_class.one_class(Divisible(2, np.array([1, 0])), 2, 1), np.array([1, 0])) == [{0}, {1}]


def test_class_groups_are_those_of_fedlws() -> None:
    parts = by_class.class_groups(TEN, 12, 1)
    first, second = set(range(5)), set(range(5, 10))
    assert classes_of(parts, TEN.labels) == [first] * 4 + [second] * 4 + [first | second] * 4
    assert set(sizes_of(parts)) == {333, 334}
    table = table_of(parts, TEN.labels)
    assert table[:4, :5].min() >= 66 and table[8:].min() >= 33


# ---------------------------------------------------------------- shards of the sorted data


def test_sorted_shards_are_pure_if_they_divide_the_classes() -> None:
    parts = by_class.sorted_shards(TEN, 100, 1)  # 200 shards of 20, 20 shards of each class
    table = table_of(parts, TEN.labels)
    assert set(sizes_of(parts)) == {40}
    assert set(table.ravel().tolist()) <= {0, 20, 40}


def test_one_shard_per_client_divides_the_sorted_data_evenly() -> None:
    parts = by_class.sorted_shards(TEN, 12, 1, shards_per_client=1)
    assert set(sizes_of(parts)) == {333, 334}
    spans = sorted((TEN.labels[part].min(), TEN.labels[part].max()) for part in parts)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


# ---------------------------------------------------------------- groups


def test_groups_stay_whole_if_there_are_enough() -> None:
    groups = np.random.default_rng(0).integers(0, 25, 1000)
    parts = schemes.by_group(Divisible(1000, None, groups), 10, 1)
    held = classes_of(parts, groups)
    assert sorted(group for each in held for group in each) == list(range(25))
    assert {len(each) for each in held} == {2, 3}


def test_groups_are_divided_in_proportion_among_more_clients() -> None:
    groups = np.repeat([3, 5, 9], [600, 300, 100])
    parts = schemes.by_group(Divisible(1000, None, groups), 10, 1)
    assert classes_of(parts, groups) == [{3}] * 6 + [{5}] * 3 + [{9}]
    assert set(sizes_of(parts)) == {100}


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("draw", "clients", "chosen", "said"),
    [
        (
            by_class.shards,
            20,
            {"classes_per_client": 11},
            r"classes_per_client = 11, but the task has 10 classes; use at",
        ),
        (
            by_class.shards,
            4,
            {},
            "classes_per_client = 2 with clients = 4 leaves .* 10 classes .* at least 5 clients",
        ),
        (by_class.shards, 2001, {}, "clients = 2001 needs 4002 examples, but the task has 4000; use at most 2000"),
        (
            by_class.sorted_shards,
            7,
            {"shards_per_client": 700},
            "gives 4900 shards, .* use at most partition.shards_per_client=571",
        ),
        (
            by_class.two_classes,
            4,
            {},
            "partition = 'two_classes' with clients = 4 leaves .* use at least 5 clients",
        ),
        (
            by_class.two_classes,
            20,
            {"sizes": "power_law", "exponent": 3.0},
            "20 clients with 10 to 3243 examples of 2 classes each cannot be .*; lower partition.exponent",
        ),
        (
            by_class.two_classes,
            401,
            {"sizes": "power_law"},
            "partition.min_size = 10 .* use partition.min_size=9 or",
        ),
        (
            by_class.one_class,
            9,
            {},
            "'one_class' cannot divide 10 classes, .* clients = 9; use from 10 to 4000 clients",
        ),
        (by_class.class_groups, 10, {}, "multiple of three clients .*; use clients=9 or clients=12"),
    ],
)
def test_impossible_divisions_are_refused(draw: Draw, clients: int, chosen: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        draw(TEN, clients, 1, **chosen)


def test_class_groups_need_two_halves_of_similar_size() -> None:
    labels = np.repeat([0, 1], [90, 10])
    with pytest.raises(DataError, match="the halves have 90 and 10 of 100 examples; use a task with classes of"):
        by_class.class_groups(Divisible(100, labels), 3, 1)


def test_two_classes_need_two_classes() -> None:
    with pytest.raises(DataError, match="'two_classes' needs 2 classes, but the task has 1"):
        by_class.two_classes(Divisible(10, np.zeros(10, int)), 3, 1)


# ---------------------------------------------------------------- tables


@settings(tries, max_examples=60)
@given(st.data())
def test_a_table_is_found_if_there_is_one(data: st.DataObject) -> None:
    shape = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    cells = st.lists(st.integers(0, 9), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])
    known = np.array(data.draw(cells)).reshape(shape)
    allowed, least = known > 0, data.draw(st.integers(0, 1))
    found = client_sizes.table_with_sums(allowed, known.sum(axis=1), known.sum(axis=0), least)
    assert found is not None
    assert (found.sum(axis=1) == known.sum(axis=1)).all() and (found.sum(axis=0) == known.sum(axis=0)).all()
    assert (found[allowed] >= least).all() and (found[~allowed] == 0).all()


def test_a_table_that_does_not_exist_is_not_found() -> None:
    allowed = np.array([[True, False], [True, True]])
    assert client_sizes.table_with_sums(allowed, np.array([5, 5]), np.array([4, 6]), 0) is None
    assert client_sizes.table_with_sums(allowed, np.array([5, 5]), np.array([5, 5]), 0) is not None
    assert client_sizes.table_with_sums(allowed, np.array([5, 5]), np.array([5, 5]), 1) is None
