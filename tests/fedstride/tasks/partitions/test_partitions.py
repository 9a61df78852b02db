"""Partitions: every example once, the same partition from the same seed, advice if a partition is impossible.

The rules of the schemes are in `test_partition_schemes.py`.
"""

from __future__ import annotations

import functools
import hashlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedstride.errors import ConfigError, DataError
from fedstride.parts import Choice
from fedstride.tasks.data import Data
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.partitions import schemes
from fedstride.tasks.partitions.divisible_examples import Divisible
from fedstride.tasks.partitions.schemes import partition
from fedstride.tasks.registry import PARTITIONS
from fedstride.tasks.spec import Spec, Target

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 60))  # 600 examples
SOURCE = Divisible(600, LABELS, np.random.default_rng(1).integers(0, 25, 600))
IID, Dirichlet, Pathological = (PARTITIONS.config(name) for name in ("iid", "dirichlet", "pathological"))
DIRICHLET = Dirichlet(alpha=0.3, min_size=5)
PATHOLOGICAL = Pathological(classes_per_client=2)
ALL = [
    IID(),
    DIRICHLET,
    Dirichlet(alpha=5.0, balanced=True),
    PATHOLOGICAL,
    *(PARTITIONS.config(name)() for name in PARTITIONS if name not in ("iid", "dirichlet", "pathological", "own")),
]
CLIENTS = 12  # class_groups needs a multiple of three


def replace_by(monkeypatch: pytest.MonkeyPatch, name: str, draw: Callable[..., object]) -> None:
    """Replace the partition with this name by `draw`, which gets the same settings."""
    monkeypatch.setattr(schemes, name, functools.wraps(getattr(schemes, name))(draw))


def held(config: Choice, clients: int = CLIENTS, seed: int = 1) -> list[list[int]]:
    return [part.tolist() for part in partition(config, SOURCE, clients, seed)]


@pytest.mark.parametrize("config", ALL, ids=lambda c: c.name)
def test_every_example_belongs_to_exactly_one_client(config: Choice) -> None:
    parts = partition(config, SOURCE, CLIENTS, 1)
    assert len(parts) == CLIENTS
    assert all(part.dtype == np.int64 and len(part) > 0 for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(600))


@pytest.mark.parametrize("config", ALL, ids=lambda c: c.name)
def test_the_same_seed_gives_the_same_partition(
    config: Choice, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = held(config)
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(own_cache) + "-2")
    assert held(config) == first


@pytest.mark.parametrize("config", ALL, ids=lambda c: c.name)
def test_another_seed_gives_another_partition(config: Choice) -> None:
    assert held(config, seed=1) != held(config, seed=2)


def test_a_draw_is_cached_on_disk(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = held(DIRICHLET)
    replace_by(monkeypatch, "dirichlet", lambda *_, **__: pytest.fail("drawn again"))
    assert held(DIRICHLET) == first


@pytest.mark.parametrize(
    "change",
    [
        {"config": Dirichlet(alpha=0.31, min_size=5)},
        {"config": Dirichlet(alpha=0.3, min_size=6)},
        {"clients": 9},
        {"seed": 2},
        {"source": Divisible(600, LABELS[::-1], SOURCE.groups)},
        {"source": Divisible(600, LABELS)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_a_draw_depends_on_is_in_its_cache_key(
    change: dict[str, object], own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    whole = schemes.dirichlet
    replace_by(monkeypatch, "dirichlet", lambda *a, **k: drawn.append(1) or whole(*a, **k))
    usual = {"config": DIRICHLET, "source": SOURCE, "clients": 10, "seed": 1}
    partition(**usual)
    partition(**usual)
    assert len(drawn) == 1
    partition(**(usual | change))
    assert len(drawn) == 2


def test_iid_parts_are_even_and_mixed() -> None:
    parts = held(IID(), clients=7)
    assert {len(part) for part in parts} == {85, 86}
    assert all(len({int(LABELS[i]) for i in part}) == 10 for part in parts)


def test_a_smaller_alpha_is_more_skewed() -> None:
    def largest_class(alpha: float) -> float:
        parts = partition(Dirichlet(alpha=alpha, min_size=1), SOURCE, 5, 3)
        return float(np.mean([np.bincount(LABELS[part]).max() / len(part) for part in parts]))

    assert largest_class(0.05) > largest_class(1.0) > largest_class(100.0)


def test_every_client_gets_at_least_min_size_examples() -> None:
    assert min(len(part) for part in held(Dirichlet(alpha=0.3, min_size=20))) >= 20


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_pathological_clients_have_the_given_number_of_classes(classes: int) -> None:
    config = Pathological(classes_per_client=classes)
    assert all(len({int(LABELS[i]) for i in part}) == classes for part in held(config, clients=10))


def test_a_single_client_has_all_examples() -> None:
    assert sorted(held(IID(), clients=1)[0]) == list(range(600))


@pytest.mark.parametrize(
    ("config", "clients", "said"),
    [
        (IID(), 601, "clients = 601 is more than the task's 600 training examples"),
        (
            Dirichlet(alpha=1e-6, min_size=10),
            10,
            r"partition.alpha = 1e-06 .* raise partition.alpha or lower partition.min_size",
        ),
        (
            Dirichlet(alpha=1.0, min_size=61),
            10,
            r"each of the 10 clients has at least 61 of the 600 examples; raise",
        ),
        (Pathological(classes_per_client=11), 10, "= 11, but the task has 10 classes"),
        (Pathological(classes_per_client=10), 70, "70 clients with 10 classes each cannot"),
    ],
)
def test_impossible_partitions_are_rejected(config: Choice, clients: int, said: str) -> None:
    with pytest.raises(DataError, match=said):
        partition(config, SOURCE, clients, 1)


def test_a_partition_with_an_empty_client_is_rejected(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_by(monkeypatch, "iid", lambda *_: [np.arange(600), np.arange(0)])
    with pytest.raises(DataError, match=r"'iid' gives no examples to the clients \[1\]; use fewer clients"):
        partition(IID(), SOURCE, 2, 1)


def test_an_unknown_partition() -> None:
    with pytest.raises(ConfigError, match=r"unknown partition 'iidd'. Did you mean 'iid'\?"):
        partition(Choice("iidd"), SOURCE, 2, 1)


@pytest.mark.parametrize(
    ("config", "clients", "digest"),
    [
        (IID(), 7, "507a95ac3c123a29"),
        (DIRICHLET, 10, "37f363a123368ddd"),
        (Dirichlet(alpha=5.0, balanced=True), 10, "acce9cf26f17da8d"),
        (PATHOLOGICAL, 10, "35b374da56d45bf5"),
    ],
    ids=["iid", "dirichlet", "dirichlet-balanced", "pathological"],
)
def test_the_bits_of_a_partition_stay(config: Choice, clients: int, digest: str) -> None:
    """Runs of earlier versions can be repeated."""
    parts = [part.astype("<i8").tobytes() for part in partition(config, SOURCE, clients, 1)]
    assert hashlib.sha256(b"|".join(parts)).hexdigest()[:16] == digest


@pytest.mark.parametrize("config", ALL, ids=lambda c: c.name)
def test_global_random_states_are_neither_used_nor_changed(config: Choice, own_cache: Path) -> None:
    first = held(config, seed=77)
    np.random.seed(5)
    random.seed(5)
    before = np.random.get_state()[1].tobytes(), random.getstate()
    shutil.rmtree(own_cache)
    assert held(config, seed=77) == first
    assert (np.random.get_state()[1].tobytes(), random.getstate()) == before


# ---------------------------------------------------------------- tasks without classes or groups


@pytest.mark.parametrize("config", ALL, ids=lambda c: c.name)
def test_a_partition_that_needs_classes_or_groups_says_so(config: Choice) -> None:
    wanted = {"iid": "", "quantity_skew": "", "by_group": "groups"}.get(config.name, "classes")
    if not wanted:
        assert sorted(np.concatenate(partition(config, Divisible(60), 3, 1)).tolist()) == list(range(60))
        return
    line = rf"^partition = '{config.name}' divides by {wanted}[^\n]*but this task has no {wanted}; use [^\n]*$"
    with pytest.raises(DataError, match=line):
        partition(config, Divisible(600), CLIENTS, 1)


def test_by_group_is_advised_for_a_task_with_groups() -> None:
    with pytest.raises(DataError, match="use partition=iid, quantity_skew or by_group, or a task with classes"):
        partition(DIRICHLET, Divisible(600, groups=SOURCE.groups), 5, 1)


@pytest.mark.parametrize("values", [np.zeros(5, int), np.zeros((6, 1), int), np.zeros(6)])
def test_labels_and_groups_are_one_whole_number_per_example(values: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"labels of the training examples have .* must be 6 whole numbers"):
        Divisible(6, labels=values)
    with pytest.raises(DataError, match=r"groups of the training examples have .* must be 6 whole numbers"):
        Divisible(6, groups=values)
    assert len(Divisible(6)) == 6


def test_a_task_without_classes_has_no_labels() -> None:
    def task(y: np.ndarray, target: Target, groups: np.ndarray | None = None) -> Divisible:
        x = np.zeros((4, 2), np.float32)
        return Data(Spec(Inputs(Kind.TABLE, (2,)), 4, target), x, y, x, y, groups=groups).divisible

    assert task(np.arange(4), Target.CLASS).labels is not None
    assert task(np.arange(4), Target.CLASS).groups is None
    assert task(np.arange(4), Target.CLASS, np.arange(4)).groups is not None
    assert task(np.zeros((4, 4), np.uint8), Target.LABELS).labels is None
    assert task(np.zeros((4, 4), np.float32), Target.VALUES).labels is None
    assert len(task(np.zeros((4, 4), np.float32), Target.VALUES)) == 4
