"""Where several rows belong to one id, ids are counted: what one patient has in many rows is not said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstride.tasks.data_toml.site import SiteData
from fedstride.tasks.evaluation.holdout import digest_of, stacked
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.own_files.description import of_site
from fedstride.tasks.own_files.reader_result import ReaderResult
from fedstride.tasks.own_files.small_groups import said
from fedstride.tasks.reading import Reading
from fedstride.tasks.spec import Spec, Target
from fedstride.tasks.statistics.medians import NOTHING, cells_of
from fedstride.tasks.statistics.moments import Moments
from fedstride.tasks.statistics.over_sites import of_examples

LEAST = 20
NAN = float("nan")


def spec(*columns: str, target: Target = Target.CLASS) -> Spec:
    width = sum(column.count("|") + 1 for column in columns)
    reading = Reading(columns, targets=("ill",), missing="mean")
    return Spec(
        Inputs(Kind.TABLE, (width,)), 1 if target is Target.VALUES else 2, target, names=(), reading=reading
    )


def of_ids(ids: list[str], *columns: object, y: object = None) -> ReaderResult:
    """Examples of these columns, of which those of one id belong together."""
    x = np.stack([np.asarray(column, np.float32) for column in columns], axis=1)
    rows, contents = (
        stacked(digest_of(text.encode()) for text in texts) for texts in (ids, map(str, range(len(ids))))
    )
    return ReaderResult(x, np.zeros(len(ids), np.int64) if y is None else np.asarray(y), rows, contents)


def moments(examples: ReaderResult, form: Spec) -> Moments:
    return said(of_examples(examples.x, examples.y, form), examples, form, LEAST)


MANY_AND_ONE = [*(f"p{n}" for n in range(30)), *["one"] * 25]
"""Thirty patients with a row each, and one with 25."""


def test_a_column_that_one_patient_has_in_many_rows_is_not_said() -> None:
    examples = of_ids(MANY_AND_ONE, np.arange(55.0), [NAN] * 30 + list(np.arange(25.0)))
    found = moments(examples, spec("a", "b"))
    assert found.count.tolist() == [55.0, 0.0] and found.mean[1] == found.squares[1] == 0.0
    alone = moments(of_ids([f"p{n}" for n in range(55)], *examples.x.T), spec("a", "b"))
    assert alone.count.tolist() == [55.0, 25.0]  # of 25 patients it is


def test_a_value_to_predict_that_one_patient_has_is_not_said() -> None:
    y = np.array([NAN] * 30 + list(np.arange(25.0)), np.float32)[:, None]
    found = moments(of_ids(MANY_AND_ONE, np.arange(55.0), y=y), spec("a", target=Target.VALUES))
    assert found.count.tolist() == [55.0, 0.0]


def test_how_many_rows_one_patient_lacks_is_not_said() -> None:
    found = moments(of_ids(MANY_AND_ONE, [1.5 * n for n in range(30)] + [NAN] * 25), spec("a"))
    assert found.count.tolist() == [55.0] and found.mean[0] == pytest.approx(1.5 * 14.5)
    assert found.squares[0] / 55 == pytest.approx(np.var(1.5 * np.arange(30)))


def test_a_category_and_a_value_that_one_patient_has_are_not_said() -> None:
    one, flag = np.array([0.0] * 30 + [1.0] * 25), np.array([2.0] * 30 + [3.0] * 25)
    found = moments(of_ids(MANY_AND_ONE, 1 - one, one, flag), spec("sex=f|m", "flag"))
    assert found.count.tolist() == [0.0, 0.0, 0.0]


def test_hidden_categories_have_enough_patients_together() -> None:
    """Of two categories with the same 15 patients, 15 are hidden, and not 30."""
    few = [f"p{n}" for n in range(15)]
    ids = [*few, *few, *(f"q{n}" for n in range(60))]
    at = np.array([0] * 15 + [1] * 15 + [2] * 25 + [3] * 35)
    blocks = [(at == number).astype(float) for number in range(4)]
    found = moments(of_ids(ids, *blocks), spec("unit=a|b|c|d"))
    assert found.count.tolist() == [0.0, 0.0, 0.0, 90.0]


@pytest.mark.parametrize("kept", [True, False])
def test_a_description_says_no_mean_of_one_patient(tmp_path: Path, kept: bool) -> None:
    lines = [f"p{n},{n % 7}.5,,{'yes' if n % 2 else 'no'}" for n in range(30)]
    lines += [f"one,{n % 7},{7 + n / 100},yes" for n in range(25)]
    (tmp_path / "x.csv").write_text("\n".join(["pid,a,b,ill", *lines]) + "\n")
    site = SiteData(tmp_path / "x.csv", id="pid")
    form = spec("a", "b")
    found = of_site(site, form, LEAST, tmp_path / "kept" if kept else None).description
    assert found.rows == 31
    assert found.columns[0].std > 0 and found.columns[1].std < 0 and found.columns[1].mean == 0.0


# ---------------------------------------------------------------- medians


@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.floats(0.0, 1.0))
def test_each_bin_has_cells_of_enough_patients(seed: int, patients: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, patients, int(rng.integers(1, 900)))
    ids[rng.random(len(ids)) < share / 2] = 0  # one has many
    cells = np.where(rng.random(len(ids)) < 0.1, NAN, np.round(rng.normal(ids / 50, 1), 2))
    found = cells_of(cells, 1, ids)
    there = ~np.isnan(cells)
    if len(set(ids[there])) < LEAST:
        assert found is NOTHING
        return
    place = np.searchsorted(found.edges, cells[there])
    assert all(len(set(ids[there][place == at])) >= LEAST for at in range(len(found.counts)))
    gone = len(set(ids[~there]))
    assert found.counts.sum() == (len(cells) if gone < LEAST else there.sum())


@given(st.integers(0, 2**32 - 1), st.integers(0, 900))
def test_of_one_row_each_the_bins_are_those_of_rows(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    cells = np.where(rng.random(count) < 0.1, NAN, rng.normal(0, 1, count))
    rows, ids = cells_of(cells, 25), cells_of(cells, 25, rng.permutation(count))
    assert rows.edges.tolist() == ids.edges.tolist() and rows.counts.tolist() == ids.counts.tolist()
