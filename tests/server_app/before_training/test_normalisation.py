"""Statistics of data that stay on the nodes: equal to those of all rows together; reports that are not used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedstride.errors import RunError
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.reading import Reading
from fedstride.tasks.spec import Spec, Target
from fedstride.tasks.statistics import over_sites
from fedstride.tasks.statistics.over_sites import names, of_examples
from server_app.before_training.normalisation import pool

TABLE = Spec(
    Inputs(Kind.TABLE, (3,)),
    1,
    Target.VALUES,
    names=("score",),
    federated=True,
    reading=Reading(columns=("age", "sex=f|m")),
)


def rows(count: int, seed: int = 0, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.stack([rng.normal(50.0, 12.0, count) * scale, *np.eye(2)[rng.integers(0, 2, count)].T], 1)
    return x.astype(np.float32), rng.normal(1e6, 3.0, (count, 1)).astype(np.float32)


def report(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    return {"client-id": 0, **of_examples(x, y, TABLE).flatten()}


def test_the_statistics_are_those_of_all_rows_together() -> None:
    clients = [rows(n, seed) for seed, n in enumerate((5, 1, 200))]
    found, lines, _ = pool(TABLE, {k: report(*each) for k, each in enumerate(clients)})
    assert not lines
    x, y = (np.concatenate([each[i] for each in clients]).astype(np.float64) for i in (0, 1))
    spec = TABLE.with_statistics(found)
    np.testing.assert_allclose(spec.mean, x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(spec.std, x.std(0), rtol=1e-12)
    np.testing.assert_allclose(spec.target_mean, y.mean(0), rtol=1e-14)
    np.testing.assert_allclose(spec.target_std, y.std(0), rtol=1e-9)
    assert spec.statistics() == found
    assert Spec.unflatten(spec.flatten()) == spec


def test_columns_have_names() -> None:
    assert names(TABLE) == ["age", "f", "m", "score"]
    assert names(Spec(Inputs(Kind.IMAGE, (3, 4, 5)), 2)) == ["0", "1", "2"]


def test_a_client_with_another_unit_is_named_and_does_not_count() -> None:
    honest = {k: report(*rows(100, k)) for k in range(4)}
    found, lines, _ = pool(TABLE, {**honest, 7: report(*rows(100, 9, scale=1e6))})
    (line,) = lines
    assert line.startswith("client 7: its statistics are not used: column 'age' has the mean 5.")
    assert "is its unit the same?" in line
    assert found == pool(TABLE, honest)[0]


def test_a_client_whose_values_vary_far_too_much_does_not_count() -> None:
    honest = {k: report(*rows(100, k)) for k in range(4)}
    liar = report(*rows(100))
    liar["moments.squares"][0] = 1e30
    found, lines, _ = pool(TABLE, {**honest, 2**40: liar})
    assert len(lines) == 1 and found == pool(TABLE, honest)[0]


def test_clients_that_differ_as_hospitals_do_all_count() -> None:
    """Ages of children and of old people; one hospital has only women."""
    each = [rows(100, k, scale) for k, scale in enumerate((0.1, 1.0, 1.6))]
    each[0][0][:, 1:] = (1, 0)
    assert pool(TABLE, {k: report(*data) for k, data in enumerate(each)})[1] == []


def test_of_two_clients_both_count() -> None:
    assert not pool(TABLE, {0: report(*rows(10)), 1: report(*rows(10, 1, 1e6))})[1]


@pytest.mark.parametrize(
    "change",
    [
        {"moments.mean": [1.0]},
        {"moments.mean": [float("nan")] * 4},
        {"moments.count": [-1.0] * 4},
        {"moments.squares": ["a"] * 4},
        {"moments.squares": None},
    ],
)
def test_an_invalid_report_is_named_and_does_not_count(change: dict[str, Any]) -> None:
    good = report(*rows(10))
    bad = {key: value for key, value in {**good, **change}.items() if value is not None}
    found, lines, _ = pool(TABLE, {0: good, 1: bad})
    assert len(lines) == 1 and lines[0].startswith("client 1: its statistics are not used: moments.")
    assert found == pool(TABLE, {0: good}).statistics


def test_without_any_report_the_run_ends_with_what_to_do() -> None:
    with pytest.raises(RunError, match=r"no client reported .*client 3: .*give task.mean and task.std"):
        pool(TABLE, {3: {"client-id": 3}})


@pytest.mark.parametrize(
    ("mean", "spread", "coarse"),
    [
        (1.7e9, 100.0, True),
        (1.7e9, 1.0, True),
        (-1e5, 0.05, True),
        (1.7e9, 1e5, False),
        (7.0, 0.0, False),
        (0.0, 1e-9, False),
    ],
)
def test_a_column_whose_differences_float32_loses_is_named(mean: float, spread: float, coarse: bool) -> None:
    x, y = rows(200)
    x[:, 0] = np.random.default_rng(1).normal(mean, spread, 200)
    found = pool(TABLE, {k: report(x, y) for k in range(3)})
    assert [line.startswith("column 'age' has the mean ") for line in found.warnings] == [True] * coarse
    assert all("offset of the column in the data file, or days_since" in line for line in found.warnings)


# ---------------------------------------------------------------- medians


MEDIANS = replace(TABLE, reading=replace(TABLE.reading, missing="median"))


def told(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    return {"client-id": 0, **over_sites.report(x, y, MEDIANS).flatten()}


def test_the_median_is_that_of_all_rows_together_and_its_error_is_said() -> None:
    clients = [rows(n, seed, scale) for seed, (n, scale) in enumerate(((300, 1.0), (90, 0.7), (7, 1.0)))]
    clients[0][0][::3, 0] = np.nan
    found = pool(MEDIANS, {k: told(*each) for k, each in enumerate(clients)})
    spec = MEDIANS.with_statistics(found.statistics)
    exact = np.nanmedian(np.concatenate([x[:, 0] for x, _ in clients[:2]]))  # of 7 rows nothing is said
    (line,) = found.medians
    error = float(line.rsplit(": at most ", 1)[1].rstrip(")"))
    assert line.startswith(f"the median of column 'age' is {spec.fill[0]:.6g} ") and error < 8
    assert abs(spec.fill[0] - exact) <= error
    assert spec.fill[1:] == spec.mean[1:]  # a category has none
    assert not found.warnings and found == pool(
        MEDIANS, {k: told(*each) for k, each in reversed([*enumerate(clients)])}
    )


def test_a_client_with_another_unit_does_not_move_the_median() -> None:
    honest = {k: told(*rows(100, k)) for k in range(4)}
    found = pool(MEDIANS, {**honest, 7: told(*rows(100, 9, scale=1e6))})
    assert len(found.warnings) == 1 and found.statistics == pool(MEDIANS, honest).statistics


@pytest.mark.parametrize("bins", [None, [1.0], [2.0, 5.0, 1.0, 0.0], "many"])
def test_an_invalid_report_of_bins_does_not_count(bins: object) -> None:
    good, bad = told(*rows(100)), {**told(*rows(100)), "moments.bins": bins}
    bad = {key: value for key, value in bad.items() if value is not None}
    found = pool(MEDIANS, {0: good, 1: bad})
    assert len(found.warnings) == 1 and found.statistics == pool(MEDIANS, {0: good}).statistics


def test_without_a_median_the_mean_is_taken_and_that_is_said() -> None:
    found = pool(MEDIANS, {k: told(*rows(30, k)) for k in range(3)})
    spec = MEDIANS.with_statistics(found.statistics)
    assert spec.fill == spec.mean
    assert "no median of column 'age' is known" in found.medians[0] and "become the mean" in found.medians[0]
