"""What a site says of its data after they have changed: fresh, consistent in itself, and nothing of a few rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedstride.errors import DataError
from fedstride.tasks.data_toml.file_form import ColumnInFile, FileForm
from fedstride.tasks.data_toml.site import SiteData
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.own_files import kept_rows, kept_values
from fedstride.tasks.own_files.description import of_site
from fedstride.tasks.own_files.kept_rows import DESCRIBED
from fedstride.tasks.reading import Reading
from fedstride.tasks.spec import Spec
from fedstride.tasks.statistics.description import BELOW, NOT_SAID, Description, Told, asked_of, of_other_rows

LEAST = 20
SPEC = Spec(
    Inputs(Kind.TABLE, (4,)),
    2,
    names=("no", "yes"),
    reading=Reading(("age", "sex=f|m", "crp"), targets=("ill",), missing="mean"),
)


def rows(n: int = 150, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.normal(54, 9, n).round(2),
            "sex": rng.choice(["f", "m"], n),
            "crp": rng.lognormal(2, 1, n).round(3),
            "ill": rng.choice(["no", "yes"], n),
        }
    )


def said(folder: Path, table: pd.DataFrame, spec: Spec = SPEC, least: int = LEAST) -> Description:
    """What the site says, as one who asks reads it: the message is checked."""
    table.to_csv(folder / "x.csv", index=False)
    found = of_site(SiteData(folder / "x.csv"), spec, least, folder / "kept").description
    return Description.unflatten(found.flatten(), asked_of(spec))


def in_months(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(age=table.age * 12)


def more(table: pd.DataFrame, count: int) -> pd.DataFrame:
    return pd.concat([table, rows(count, seed=99).assign(age=990.0, crp=1e5, sex="m", ill="yes")])


@pytest.mark.parametrize(
    "change",
    [
        in_months,
        lambda table: more(in_months(table), 3),
        lambda table: in_months(table).iloc[3:],
        lambda table: in_months(table).iloc[19:],
        lambda table: more(in_months(table), 19),
    ],
    ids=["as many rows", "3 more", "3 less", "19 less", "19 more"],
)
def test_a_column_of_which_most_values_differ_is_described_anew(
    tmp_path: Path, change: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    before, table = said(tmp_path, rows()), change(rows())
    after = said(tmp_path, table)
    (tmp_path / "fresh").mkdir()
    alone = said(tmp_path / "fresh", table)
    assert after.rows == alone.rows and after.columns[0] == alone.columns[0]
    for column, earlier in zip(after.columns[1:], before.columns[1:], strict=True):  # they have few other values
        assert (column.mean, column.std, column.edges) == (earlier.mean, earlier.std, earlier.edges)
        assert sum(column.counts) == after.rows and column.missing == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda table: more(table, 1),
        lambda table: more(table, 19),
        lambda table: table.iloc[1:],
        lambda table: more(table.iloc[19:], 19),
        lambda table: table.sample(frac=1, random_state=1),
    ],
    ids=["1 more", "19 more", "1 less", "19 others", "another order"],
)
def test_a_description_is_repeated_whole_where_few_rows_differ(
    tmp_path: Path, change: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    before = said(tmp_path, rows())
    assert said(tmp_path, change(rows())) == before
    assert said(tmp_path, more(rows(), 20)) != before


@pytest.mark.slow
def test_rows_that_come_one_by_one_are_described_when_they_are_enough(tmp_path: Path) -> None:
    """Each answer is compared with the rows that were answered, so steps add up, and never show one row."""
    answers = [said(tmp_path, more(rows(), count)) for count in range(45)]
    first, second, third = answers[0], answers[20], answers[40]
    assert answers == [first] * 20 + [second] * 20 + [third] * 5
    assert (first.rows, second.rows, third.rows) == (150, 170, 190)


@pytest.mark.slow
def test_cells_of_one_column_that_come_one_by_one_are_described_when_they_are_enough(tmp_path: Path) -> None:
    """All rows differ each time, since the unit of another column does."""
    table = rows()
    means = []
    for step in range(45):
        table.loc[: step - 1, "crp"] = 1e5
        means.append(said(tmp_path, table.assign(age=table.age * (step + 1))).columns[2].mean)
    assert len(set(means)) == 3 and means == sorted(means)
    assert means.count(means[0]) in range(20, 23)  # the counts may hide a change, and never add one


def test_a_value_that_takes_the_place_of_another_is_not_shown(tmp_path: Path) -> None:
    """The number of values is the same."""
    before = said(tmp_path, rows())
    table = in_months(rows())
    table.loc[7, "crp"], table.loc[7, "sex"] = 1e6, "m" if table.sex[7] == "f" else "f"
    assert said(tmp_path, table).columns[1:] == before.columns[1:]


def test_all_rows_of_one_id_are_one_change(tmp_path: Path) -> None:
    """Also of a column, where the rows of all ids differ."""
    table = rows().assign(patient=np.arange(150) // 5)  # 30 patients
    means = []
    for patients in (0, 1, 19, 25):
        changed = table.assign(age=table.age + patients)
        changed.loc[changed.patient < patients, "crp"] = 1e5
        changed.to_csv(tmp_path / "x.csv", index=False)
        site = SiteData(tmp_path / "x.csv", id="patient")
        means.append(of_site(site, SPEC, LEAST, tmp_path / "kept").description.columns[2].mean)
    assert means[0] == means[1] == means[2] < means[3]


def test_another_question_after_a_few_changed_rows_says_no_other_number_of_rows(tmp_path: Path) -> None:
    of_one = replace(SPEC, inputs=Inputs(Kind.TABLE, (1,)), reading=replace(SPEC.reading, columns=("crp",)))
    said(tmp_path, rows(), of_one)
    after = said(tmp_path, rows().iloc[5:])
    assert after.rows == 150 and all(sum(column.counts) == 150 for column in after.columns)


def test_what_is_kept_is_private_and_small(tmp_path: Path) -> None:
    said(tmp_path, rows())
    files = [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert {path.name for path in files} == {
        *("rows.npy", "columns.json", "values.json", "described.json", "described-values.json")
    }
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)
    kept, cells = "".join(path.read_text(errors="replace") for path in files), rows().crp.map(str)
    assert not any(cell in kept for cell in cells if len(cell) > 5)


@pytest.mark.parametrize(
    ("told", "before", "rows_now", "expected"),
    [
        (Told(counts=(50, 50), edges=(1.0,)), 100, 103, Told(counts=(52, 51), edges=(1.0,))),
        (Told(counts=(50, 50), edges=(1.0,)), 100, 97, Told(counts=(48, 49), edges=(1.0,))),
        (Told(counts=(50, 50), edges=(1.0,)), 100, 130, Told(missing=30, counts=(50, 50), edges=(1.0,))),
        (Told(counts=(50, 50), missing=BELOW), 100, 101, Told(counts=(51, 50), missing=BELOW)),
        (Told(counts=(50, 50), missing=40), 140, 170, Told(counts=(50, 50), missing=70)),
        (Told(counts=(50, 50), missing=40), 140, 110, Told(counts=(55, 55), missing=BELOW)),
        (Told(counts=(70, -1, -2)), 120, 117, Told(counts=(67, -1, -2))),
        (Told(counts=(70, -1, -2)), 120, 123, Told(counts=(70, -1, -2))),
        (Told(counts=(20, 20), edges=(1.0,)), 40, 39, Told(missing=39)),
        (Told(missing=100), 100, 97, Told(missing=97)),
        (Told(state=1), 100, 97, Told(state=1)),
    ],
)
def test_what_was_said_is_said_of_another_number_of_rows(
    told: Told, before: int, rows_now: int, expected: Told
) -> None:
    assert of_other_rows(told, before, rows_now, LEAST) == expected
    assert of_other_rows(told, before, before, LEAST) == told


def test_as_many_values_differ_as_the_counts_say_or_more() -> None:
    rng = np.random.default_rng(0)
    for kinds in (2, 5, 10**6):
        values = rng.integers(0, kinds, 400).astype(float)
        other = values.copy()
        other[:50], other[50] = values[:50] + kinds, np.nan
        counts, changed = (kept_values.counts_of(each, 7) for each in (values, other))
        assert 44 <= kept_values.differing(changed, counts) <= 51
        assert kept_values.differing(kept_values.counts_of(values[::-1], 7), counts) == 0


def test_all_values_of_an_id_are_one() -> None:
    values, ids = np.arange(60.0), np.arange(60) // 30
    counts = kept_values.counts_of(values, 7, ids)
    assert counts.sum(axis=1).tolist() == [2] * kept_values.TIMES
    assert kept_values.differing(kept_values.counts_of(values + 100 * ids, 7, ids), counts) == 1


def test_of_images_and_signals_the_examples_that_differ_are_counted() -> None:
    images = np.random.default_rng(0).integers(0, 256, (60, 5, 4), dtype=np.uint8)
    other = images.copy()
    other[3:6, 0, 0] ^= 1
    counts = kept_values.counts_of(images, 7)
    assert kept_values.differing(kept_values.counts_of(other, 7), counts) == 3
    signals = images.astype(np.float32)
    signals[:2] = np.nan
    assert kept_values.counts_of(signals, 7).sum(axis=1).tolist() == [58] * kept_values.TIMES


@pytest.mark.slow
def test_a_description_near_the_present_rows_is_never_removed(tmp_path: Path) -> None:
    before = said(tmp_path, rows())
    for seed in range(1, kept_rows.MOST):
        said(tmp_path, rows(seed=seed))
    for path in (tmp_path / "kept").iterdir():
        os.utime(path, (2e9, 2e9) if path != place_of(tmp_path, before) else (1, 1))
    changed = rows()
    changed.loc[0, ["age", "crp"]] = [990.0, 1e5]
    three = replace(SPEC, reading=replace(SPEC.reading, columns=("age", "crp")), inputs=Inputs(Kind.TABLE, (2,)))
    assert said(tmp_path, changed, three).columns[0] == before.columns[0]
    assert said(tmp_path, changed) == before


@pytest.mark.parametrize("count", [1, kept_rows.MOST - 1, kept_rows.MOST, kept_rows.MOST + 3])
def test_what_was_said_now_is_never_forgotten(tmp_path: Path, count: int) -> None:
    def made(number: int) -> kept_rows.SetOfRows:
        return kept_rows.SetOfRows(np.full((3, 16), number, np.uint8))

    (tmp_path / "a file").touch()
    near = [made(number) for number in range(count)]
    others = [made(100 + number) for number in range(kept_rows.MOST)]
    places = [kept_rows.place_of(tmp_path, each) for each in (*near, *others, made(99))]
    kept_rows.used(tmp_path, [*near, made(99), made(98)])  # of the last one nothing could be said
    left = {path for path in tmp_path.iterdir() if path.is_dir()}
    assert {*places[:count], places[-1]} <= left and len(left) == max(kept_rows.MOST, count + 1)


def place_of(folder: Path, description: Description) -> Path:
    """The set of rows of which this was said."""
    edges = list(description.columns[0].edges)
    return next(path for path in (folder / "kept").iterdir() if str(edges)[1:-1] in (path / DESCRIBED).read_text())


def test_a_damaged_description_is_named(tmp_path: Path) -> None:
    said(tmp_path, rows())
    place = next((tmp_path / "kept").iterdir())
    (place / DESCRIBED).write_bytes(b"{")
    with pytest.raises(DataError, match=f"{DESCRIBED} is damaged"):
        said(tmp_path, rows())


def told_by(
    folder: Path, table: pd.DataFrame, least: int = LEAST, **read: ColumnInFile
) -> tuple[Description, Sequence[str]]:
    """What the site says whose data file says this of its columns, and the lines of its log."""
    table.to_csv(folder / "x.csv", index=False)
    site = SiteData(folder / "x.csv", form=FileForm(columns=read))
    found = of_site(site, SPEC, least, folder / "kept")
    return Description.unflatten(found.description.flatten(), asked_of(SPEC)), found.lines


def test_a_unit_that_the_data_file_says_later_is_described_at_once(tmp_path: Path) -> None:
    months = ColumnInFile(factor=12.0)
    before, _ = told_by(tmp_path, rows())
    after, lines = told_by(tmp_path, rows(), age=months)
    assert after.columns[0].mean == pytest.approx(12 * before.columns[0].mean)
    assert after.columns[0].edges[0] > 6 * before.columns[0].edges[0]
    assert after.columns[1:] == before.columns[1:]
    assert not lines
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    assert told_by(tmp_path, more(rows(), 1), age=months)[0] == told_by(fresh, rows(), age=months)[0]


@pytest.mark.parametrize("way", [{"age": ColumnInFile(factor=12.0)}, {"least": LEAST + 1}])
def test_where_a_row_is_gone_a_column_that_is_read_in_another_way_is_not_described(
    tmp_path: Path, way: dict[str, Any]
) -> None:
    told_by(tmp_path, rows())
    for _ in range(2):
        found, lines = told_by(tmp_path, rows()[1:], **way)
        assert found.columns[0].counts == () and found.columns[0].std == NOT_SAID
        assert any("column 'age': nothing is said of its values until" in line for line in lines)
    assert told_by(tmp_path, rows(seed=5), **way)[0].columns[0].counts
