"""What replaces a missing cell: rules for all columns or for one, indicators, and how far a median can be off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from own_files import npz, of_table, refused, written

from fedstride.errors import ConfigError, ReplyError
from fedstride.tasks import own_files
from fedstride.tasks.data_toml.dictionary_file import read_columns, read_examples
from fedstride.tasks.datasets.nodes import own_table
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.spec import Spec
from fedstride.tasks.statistics.medians import LEAST, MOST_BINS, NOTHING, cells_of, median, packed, unpacked
from fedstride.tasks.statistics.over_sites import fill, medians_of, names, report

COLUMNS = ["age", "stage=I|II|III", "mass"]
TABLE = "age,mass,stage,label\n63,80.5,II,1\n,70,,0\n41,,I,1\n"
NAN = float("nan")


@pytest.fixture(autouse=True)
def _fresh(own_cache: Path) -> None:
    """Every test has its own empty cache."""


def task(missing: Any, **more: Any) -> Spec:
    return own_table(columns=COLUMNS, classes=2, missing=missing, **more).spec


# ---------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("missing", "rules", "width"),
    [
        ("median", {"age": "median", "stage": "median", "mass": "median"}, 5),
        ("mean+indicator", {"age": "mean+indicator", "stage": "mean+indicator", "mass": "mean+indicator"}, 8),
        (["mean", "mass=median+indicator"], {"age": "mean", "stage": "mean", "mass": "median+indicator"}, 6),
        (
            ["age = mean+indicator", "mass=median"],
            {"age": "mean+indicator", "stage": "error", "mass": "median"},
            6,
        ),
        ([], {"age": "error", "stage": "error", "mass": "error"}, 5),
    ],
)
def test_a_rule_for_all_columns_or_for_one(missing: Any, rules: dict[str, str], width: int) -> None:
    spec = task(missing)
    assert {name: str(rule) for name, rule in spec.reading.rules.items()} == rules
    assert spec.inputs.shape == (width,)
    assert Spec.unflatten(spec.flatten()) == replace(spec, federated=False)
    assert names(spec) == ["age", "I", "II", "III", "mass"]  # of indicators nothing is computed


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"missing": "modus"}, "missing = 'modus' is not allowed"),
        ({"missing": ["mean", "median"]}, "2 rules for all columns; write those of single columns as COLUMN=RULE"),
        ({"missing": ["mass=zero"]}, "missing = 'zero' is not allowed: it must be one of error, mean, median"),
        ({"missing": ["height=mean"]}, "the column 'height' is none of age, stage, mass"),
        ({"missing": ["age=mean", "age=median"]}, "the column 'age' has two rules"),
        ({"missing": "mean", "fill": [0.0] * 5}, "task.fill .* must be null without a rule of a median"),
        ({"missing": "median", "fill": [1.0]}, "a list of 5 numbers, one for each number"),
    ],
)
def test_rules_that_are_refused(settings: dict[str, Any], said: str) -> None:
    from fedstride.tasks.data import load
    from fedstride.tasks.registry import TASKS

    with pytest.raises(ConfigError, match=said) as caught:
        load(TASKS.config("own_table")(**{"columns": COLUMNS, "classes": 2, **settings}))
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- reading


def test_indicators_are_the_last_numbers(tmp_path: Path) -> None:
    found = own_files.load(
        written(tmp_path / "a.csv", TABLE), task(["mean", "stage=mean+indicator", "mass=median+indicator"])
    )
    want = [[63, 0, 1, 0, 80.5, 0, 0], [NAN, NAN, NAN, NAN, 70, 1, 0], [41, 1, 0, 0, NAN, 0, 1]]
    np.testing.assert_array_equal(found.x, np.array(want, np.float32))


def test_arrays_have_no_indicators_of_their_own(tmp_path: Path) -> None:
    spec = task("median+indicator")
    x = np.array([[63, 0, 1, 0, 80.5], [NAN, NAN, NAN, NAN, 70], [41, 1, 0, 0, NAN]])
    found = own_files.load(npz(tmp_path / "a.npz", x=x, y=[1, 0, 1]), spec)
    np.testing.assert_array_equal(found.x, own_files.load(written(tmp_path / "a.csv", TABLE), spec).x)
    assert "needs (n, 5)" in refused(npz(tmp_path / "b.npz", x=found.x, y=[1, 0, 1]), spec)


def test_a_column_whose_cells_must_not_be_missing(tmp_path: Path) -> None:
    spec = task(["age=mean", "stage=mean"])
    said = refused(written(tmp_path / "a.csv", TABLE), spec)
    assert "line 4, column 'mass': the cell is empty" in said
    x = [[63, 0, 1, 0, 80.5], [NAN, 1, 0, 0, NAN]]
    assert "x, column 'mass' contains nan" in refused(npz(tmp_path / "a.npz", x=x, y=[1, 0]), spec)


@pytest.mark.parametrize("rule", ["mean", "median", "median+indicator"])
def test_a_data_file_allows_any_rule_for_columns_that_may_be_empty(rule: str) -> None:
    said = {"age": {"empty": True}, "mass": "number", "label": ["0", "1"]}
    columns = {"columns": ("age", "mass"), "inputs": Inputs(Kind.TABLE, (2 + 2 * ("indicator" in rule),))}
    of = read_columns(said, ["label"])
    of.check(of_table(missing=rule, names=("0", "1"), **columns))
    with pytest.raises(ConfigError, match="mean or median with the column 'age'"):
        of.check(of_table(names=("0", "1"), **{**columns, "inputs": Inputs(Kind.TABLE, (2,))}))
    examples = read_examples({"kind": "table", "shape": [2], "classes": 2, "empty": True})
    if "indicator" not in rule:
        examples.check(
            Spec(Inputs(Kind.TABLE, (2,)), 2, reading=replace(of_table().reading, columns=(), missing=rule))
        )


# ---------------------------------------------------------------- medians


def values(kind: int, rng: np.random.Generator) -> np.ndarray:
    found = rng.normal(rng.normal(0, 1), 1, int(rng.integers(5, 700)))
    return [found, np.round(3 * found), np.exp(2 * found), (found > 0).astype(float), found * 1e30][kind].astype(
        np.float32
    )


@given(st.integers(0, 2**32 - 1), st.integers(0, 4), st.integers(1, 5))
def test_the_median_is_not_farther_than_its_error(seed: int, kind: int, sites: int) -> None:
    rng = np.random.default_rng(seed)
    cells = [values(kind, rng) for _ in range(sites)]
    bins = [cells_of(each, 1) for each in cells]
    told = [each for each, of in zip(cells, bins, strict=True) if of is not NOTHING]
    if (found := median(bins)) is not None:
        exact = np.median(np.concatenate(told).astype(float))
        assert abs(found.value - exact) <= found.error + 1e-6 * abs(exact)
    assert all((of.counts >= LEAST).all() and len(of.counts) <= MOST_BINS for of in bins)
    again = unpacked(packed(bins), sites)
    assert all(
        np.array_equal(a, b)
        for one, other in zip(bins, again, strict=True)
        for a, b in zip(one, other, strict=True)
    )


def test_the_error_is_small_where_there_are_many_rows() -> None:
    rng = np.random.default_rng(1)
    found = median([cells_of(rng.normal(170, 10, 2000), 1) for _ in range(4)])
    assert found is not None and abs(found.value - 170) < 0.5 and found.error < 0.5


def test_no_edge_is_a_cell_and_the_ends_are_open() -> None:
    rng = np.random.default_rng(2)
    for cells in (rng.integers(20, 90, 500), rng.normal(0, 1e-30, 400), rng.integers(1990, 1999, 300) * 1.0):
        edges = cells_of(cells.astype(np.float32), 1).edges
        assert len(edges) > 3 and not set(edges) & set(cells.astype(np.float32).tolist())
    cells = rng.integers(20, 90, 500).astype(np.float32)
    alone = cells_of(np.concatenate([cells, [1e9]]), 1)  # the largest one is somebody's
    assert alone.edges.max() < 90


def test_a_few_missing_cells_are_not_counted_apart() -> None:
    cells = np.random.default_rng(3).normal(size=300)
    for few in (1, 7, 19):
        gone = cells.copy()
        gone[:few] = NAN
        assert cells_of(gone, 1).counts.sum() == 300
    gone[:LEAST] = NAN
    assert cells_of(gone, 1).counts.sum() == 300 - LEAST
    assert cells_of(gone, 30).counts.sum() == 300 and cells_of(gone, 30).counts.min() >= 30
    assert cells_of(cells[:19], 1) is NOTHING and median([NOTHING, cells_of(cells[:30], 1)]) is None


@pytest.mark.parametrize(
    "numbers",
    [None, [2.0], [2.0, 0.5, 10.0, -1.0], [2.0, 0.5, 10.0, 3.5], [3.0, 1.0, 1.0, 9.0, 9.0, 9.0], [65.0],
     [0.0, 0.0], [2.0, float("nan"), 9.0, 9.0], [2.0, float("inf"), 9.0, 9.0], [2, 1, 9, 9], [1.5, 20.0]],
)  # fmt: skip
def test_bins_that_no_site_can_have_made(numbers: object) -> None:
    with pytest.raises(ReplyError):
        unpacked(numbers, 1)


# ---------------------------------------------------------------- preparation


def prepared(spec: Spec, x: np.ndarray) -> np.ndarray:
    examples = Examples(x, np.zeros(len(x), np.int64), spec, device=torch.device("cpu"))
    return examples.inputs(np.arange(len(x))).numpy()


def test_what_a_network_gets() -> None:
    spec = task(["median", "mass=mean+indicator"], mean=[50, 0.2, 0.5, 0.3, 70], std=[10, 1, 1, 1, 5])
    assert spec.federated and medians_of(spec) == {"age": 0}
    x = np.array([[NAN, NAN, NAN, NAN, NAN, 1], [40, 0, 1, 0, 80, 0]], np.float32)
    done = spec.with_statistics(fill({"age": 60.0}, spec.mean, spec))
    assert done.fill == (60.0, 0.2, 0.5, 0.3, 70.0, 0.0) and not done.federated
    want = [[1, 0, 0, 0, 0, 1], [-1, -0.2, 0.5, -0.3, 2, 0]]  # an indicator stays 0 or 1
    np.testing.assert_allclose(prepared(done, x), want, atol=1e-7)


def test_given_numbers_are_not_computed() -> None:
    given = task("median+indicator", mean=[0.0] * 5, std=[1.0] * 5, fill=[7.0, 0.5, 0.25, 0.25, 3.0])
    assert not given.federated and given.fill == (7.0, 0.5, 0.25, 0.25, 3.0, 0.0, 0.0, 0.0)
    x = np.full((1, 8), NAN, np.float32)
    x[0, 5:] = 1
    np.testing.assert_array_equal(prepared(given, x), [[7.0, 0.5, 0.25, 0.25, 3.0, 1, 1, 1]])


def test_a_report_without_medians_is_as_before() -> None:
    x, y = np.random.default_rng(0).normal(size=(50, 5)).astype(np.float32), np.zeros(50)
    assert set(report(x, y, task("mean")).flatten()) == {"moments.count", "moments.mean", "moments.squares"}
    assert set(report(x, y, task("median")).flatten()) - set(report(x, y, task("mean")).flatten()) == {
        "moments.bins"
    }
