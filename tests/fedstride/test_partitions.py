"""Partitions: every example once, the same partition from the same seed, advice if a partition is impossible."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedstride.errors import ConfigError, DataError
from fedstride.parts import Choice
from fedstride.tasks import partitions
from fedstride.tasks.partitions import partition
from fedstride.tasks.parts import PARTITIONS

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 60))  # 600 examples
IID, Dirichlet, Pathological = (PARTITIONS.config(name) for name in ("iid", "dirichlet", "pathological"))
DIRICHLET = Dirichlet(alpha=0.3, min_size=5)
PATHOLOGICAL = Pathological(classes_per_client=2)
ALL = [IID(), DIRICHLET, Dirichlet(alpha=5.0, balanced=True), PATHOLOGICAL]


def replace_by(monkeypatch: pytest.MonkeyPatch, name: str, draw: Callable[..., object]) -> None:
    """Replace the partition with this name by `draw`, which gets the same settings."""
    monkeypatch.setattr(partitions, name, functools.wraps(getattr(partitions, name))(draw))


def held(config: Choice, clients: int = 10, seed: int = 1) -> list[list[int]]:
    return [part.tolist() for part in partition(config, LABELS, clients, seed)]


@pytest.mark.parametrize("config", ALL, ids=lambda c: c.name)
def test_every_example_belongs_to_exactly_one_client(config: Choice) -> None:
    parts = partition(config, LABELS, 10, 1)
    assert len(parts) == 10
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
        {"labels": LABELS[::-1]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_a_draw_depends_on_is_in_its_cache_key(
    change: dict[str, object], own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    whole = partitions.dirichlet
    replace_by(monkeypatch, "dirichlet", lambda *a, **k: drawn.append(1) or whole(*a, **k))
    usual = {"config": DIRICHLET, "labels": LABELS, "clients": 10, "seed": 1}
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
        parts = partition(Dirichlet(alpha=alpha, min_size=1), LABELS, 5, 3)
        return float(np.mean([np.bincount(LABELS[part]).max() / len(part) for part in parts]))

    assert largest_class(0.05) > largest_class(1.0) > largest_class(100.0)


def test_every_client_gets_at_least_min_size_examples() -> None:
    assert min(len(part) for part in held(Dirichlet(alpha=0.3, min_size=20))) >= 20


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_pathological_clients_have_the_given_number_of_classes(classes: int) -> None:
    config = Pathological(classes_per_client=classes)
    assert all(len({int(LABELS[i]) for i in part}) == classes for part in held(config))


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
        partition(config, LABELS, clients, 1)


def test_a_partition_with_an_empty_client_is_rejected(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_by(monkeypatch, "iid", lambda *_: [np.arange(600), np.arange(0)])
    with pytest.raises(DataError, match=r"'iid' gives no examples to the clients \[1\]; use fewer clients"):
        partition(IID(), LABELS, 2, 1)


def test_an_unknown_partition() -> None:
    with pytest.raises(ConfigError, match=r"unknown partition 'iidd'. Did you mean 'iid'\?"):
        partition(Choice("iidd"), LABELS, 2, 1)


def test_drawing_does_not_change_the_global_random_state() -> None:
    before = np.random.get_state()[1].tobytes()
    partition(DIRICHLET, LABELS, 10, 77)
    partition(PATHOLOGICAL, LABELS, 10, 77)
    assert np.random.get_state()[1].tobytes() == before
