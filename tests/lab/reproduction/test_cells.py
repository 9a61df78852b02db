"""The runs of a paper's table, and the order in which they decide most."""

from __future__ import annotations

from itertools import groupby

import pytest

from fedstride.errors import ConfigError
from lab.papers import table_names
from lab.reproduction.cells import cells, experiments_of, seeds_in
from server_app.config.compose import compose
from server_app.config.presets.computed_settings import names


def order(target: str, *columns: str, methods: tuple[str, ...] = (), seeds: tuple[int, ...] = (1, 2)) -> list[str]:
    return [str(cell) for cell in cells(target, columns, methods, seeds)[0]]


def test_what_decides_comes_first() -> None:
    assert order("fednnnn/table2", "mnist_noniid_b", "mnist_iid_b", methods=("fedavg", "momentum", "fednnnn")) == [
        "mnist_noniid_b, fedavg, seed 1",
        "mnist_noniid_b, fednnnn, seed 1",
        "mnist_noniid_b, fedavg, seed 2",
        "mnist_noniid_b, fednnnn, seed 2",
        "mnist_noniid_b, momentum, seed 1",
        "mnist_iid_b, fedavg, seed 1",
        "mnist_iid_b, fednnnn, seed 1",
        "mnist_iid_b, fedavg, seed 2",
        "mnist_iid_b, fednnnn, seed 2",
        "mnist_iid_b, momentum, seed 1",
        "mnist_noniid_b, momentum, seed 2",
        "mnist_iid_b, momentum, seed 2",
    ]


def test_a_wrapper_around_plain_averaging_is_the_papers_method() -> None:
    found = order("fedlws/table1", "fashionmnist_a0.1", seeds=(1,))
    assert found[:2] == ["fashionmnist_a0.1, fedavg, seed 1", "fashionmnist_a0.1, fedavg+fedlws, seed 1"]
    for name in ("fedlws", "fedavg+fedlws"):
        assert order("fedlws/table1", "fashionmnist_a0.1", methods=("fedavg", name), seeds=(1,)) == found[:2]


def test_columns_by_pattern_in_the_order_given() -> None:
    found = [
        column for column, _ in groupby(order("fednnnn/table2", "*noniid_ub", "mnist_i*", methods=("fedavg",)))
    ]
    assert [each.partition(",")[0] for each in found[::2]] == [
        "mnist_noniid_ub", "cifar10_noniid_ub", "mnist_iid_b", "mnist_iid_ub",
    ]  # fmt: skip


@pytest.mark.slow
def test_each_cell_can_be_composed_and_has_a_folder_of_its_own() -> None:
    for target in ("fednlr/table4", "two_d_lrd/fig1", "fedalr/table1", "fedlws/table1_fashionmnist_a100"):
        found, _ = cells(target, seeds=(1,))
        assert found
        assert len({cell.name for cell in found}) == len(found)
        for cell in found:
            assert compose(cell.overrides).seed == 1


def test_each_experiment_is_its_own_target_and_each_table_with_presets_is_one() -> None:
    assert all(list(experiments_of(name).values()) == [name] for name in names())
    tables = {table for table in table_names() if any(name.startswith(f"{table}_") for name in names())}
    assert len(tables) >= 8
    assert all(experiments_of(table) for table in tables)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fednnnn/table22",), "unknown table, figure or experiment of a paper 'fednnnn/table22'. Did you mean"),
        (("fednnnn",), "unknown table, figure or experiment of a paper 'fednnnn'"),
        (("fednlr/example1",), "unknown table, figure or experiment of a paper 'fednlr/example1'"),
        (("fednnnn/table2", ["mnist"]), "unknown column 'mnist'"),
        (("fednnnn/table2", [], ["fednn"]), "unknown method of fednnnn/table2 'fednn'. Did you mean 'fednnnn'"),
    ],
)
def test_what_does_not_exist(arguments: tuple[object, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("[", r"\[")):
        cells(*arguments)  # type: ignore[arg-type]


def test_seeds() -> None:
    assert seeds_in("3, 1,20") == [3, 1, 20]
    for text in ("", "1,1", "1,01", "1;2", "9" * 5_000, "-1", "1.0", "١"):
        with pytest.raises(ConfigError, match="--seeds"):
            seeds_in(text)
