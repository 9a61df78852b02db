"""What a site says of its columns: of each alone, of enough rows, and the same until enough rows have changed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstride.errors import DataError
from fedstride.tasks.data_toml.file_form import ColumnInFile, FileForm
from fedstride.tasks.data_toml.site import SiteData
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.own_files import column_statistics, kept_rows
from fedstride.tasks.own_files.loading import examples_in, form
from fedstride.tasks.own_files.questions import Asker
from fedstride.tasks.reading import Reading
from fedstride.tasks.spec import Spec, Target
from fedstride.tasks.statistics.moments import Moments

ROWS = [(30 + n % 40, 60 + n / 7, "female" if n % 4 else "male", "yes" if n % 3 else "no") for n in range(100)]
SPEC = Spec(
    Inputs(Kind.TABLE, (4,)),
    2,
    names=("no", "yes"),
    reading=Reading(columns=("age", "weight", "sex=female|male"), targets=("ill",), missing="mean"),
)


def said(
    folder: Path,
    rows: Sequence[tuple[object, ...]],
    spec: Spec = SPEC,
    min_rows: int = 10,
    name: str = "",
    **read: ColumnInFile,
) -> Moments:
    """`read`: how columns of the task are written in the file."""
    folder.mkdir(exist_ok=True)
    path = folder / "table.csv"
    path.write_text("age,weight,sex,ill\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows))
    site = SiteData(path, id=name, form=FileForm(columns=read))
    found = column_statistics.report(
        folder / "kept", examples_in(site, [(path, 0)], spec), spec, form(site, spec), Asker(site, min_rows)
    )
    assert found is not None
    return found.moments


def of(column: str, *more: str) -> Spec:
    columns = (column, *more)
    width = sum(each.count("|") + 1 for each in columns)
    return replace(SPEC, inputs=Inputs(Kind.TABLE, (width,)), reading=replace(SPEC.reading, columns=columns))


def test_the_numbers_are_those_of_all_rows(tmp_path: Path) -> None:
    found = said(tmp_path / "a", ROWS)
    table = np.array(
        [[age, np.float32(weight), sex == "female", sex == "male"] for age, weight, sex, _ in ROWS], float
    )
    assert found.count.tolist() == [100.0] * 4
    np.testing.assert_allclose(found.mean, table.mean(0), rtol=1e-14)
    np.testing.assert_allclose(found.squares, table.var(0) * 100, rtol=1e-12)


def test_a_column_is_said_the_same_whatever_is_asked_beside_it(tmp_path: Path) -> None:
    whole = said(tmp_path / "a", ROWS)
    for number, spec in enumerate((of("weight"), of("weight", "age"), of("sex=male|female", "weight"))):
        at = [column.partition("=")[0] for column in spec.reading.columns].index("weight")
        place = at if spec.reading.columns[0] != "sex=male|female" else 2
        alone = said(tmp_path / str(number), ROWS, spec)
        assert alone.mean[place] == whole.mean[1] and alone.squares[place] == whole.squares[1]  # the same bits


def test_other_targets_say_the_same(tmp_path: Path) -> None:
    to_weight = replace(
        of("age"),
        outputs=1,
        target=Target.VALUES,
        names=("weight",),
        reading=Reading(("age",), targets=("weight",)),
    )
    whole, other = said(tmp_path / "a", ROWS), said(tmp_path / "b", ROWS, to_weight)
    assert (other.mean == whole.mean[:2]).all() and (other.squares == whole.squares[:2]).all()


@pytest.mark.parametrize("rows", [ROWS + ROWS[:9], ROWS[9:], ROWS[:91] + [(1, 1, "male", "no")] * 9, ROWS[::-1]])
def test_a_few_changed_rows_change_nothing(tmp_path: Path, rows: list[tuple[object, ...]]) -> None:
    before = said(tmp_path, ROWS)
    after = said(tmp_path, rows)
    assert all(np.array_equal(getattr(before, name), getattr(after, name)) for name in vars(before))


def test_small_changes_add_up(tmp_path: Path) -> None:
    before, more = said(tmp_path, ROWS), [(100 + n, 1, "male", "no") for n in range(10)]
    for count in range(1, 10):
        assert said(tmp_path, ROWS + more[:count]).mean[0] == before.mean[0]
    assert said(tmp_path, ROWS + more).mean[0] > before.mean[0]
    assert said(tmp_path, ROWS).mean[0] == before.mean[0]  # and what was said before is said again


def test_a_new_question_after_a_small_change_is_answered_with_the_rows_before(tmp_path: Path) -> None:
    said(tmp_path, ROWS, of("age"))
    added = said(tmp_path, [*ROWS, (30, 1e6, "male", "no")], of("weight"))
    assert added.mean[0] == said(tmp_path / "fresh", ROWS, of("weight")).mean[0]
    said(tmp_path / "b", ROWS, of("age"))
    gone = said(
        tmp_path / "b", ROWS[1:], of("sex=female|male", "age")
    )  # the rows before are not all there any more
    assert gone.count.tolist() == [
        99.0,
        99.0,
        100.0,
    ]  # age has its answer; sex gets one of the rows that there are
    again = said(tmp_path / "b", ROWS, of("sex=female|male"))
    assert again.count.tolist() == [99.0, 99.0]


def test_nothing_is_said_of_a_few_rows(tmp_path: Path) -> None:
    rows = [(age, weight, "male" if n < 9 else "female", ill) for n, (age, weight, _, ill) in enumerate(ROWS)]
    found = said(tmp_path / "a", rows)
    assert found.count.tolist() == [100.0, 100.0, 0.0, 0.0] and found.mean[2:].tolist() == [0.0, 0.0]
    assert said(tmp_path / "b", ROWS[:9]).count.tolist() == [0.0] * 4
    assert said(tmp_path / "c", rows, min_rows=1).count.tolist() == [100.0] * 4


def test_a_count_that_is_hidden_does_not_follow_from_the_others(tmp_path: Path) -> None:
    rows = [(30, 60, ("a" * 90 + "b" * 9 + "c")[n], "no") for n in range(100)]
    three = said(tmp_path / "a", rows, of("sex=a|b|c"))
    assert three.count.tolist() == [100.0, 0.0, 0.0]  # b and c have 10 together
    more = [(30, 60, ("a" * 80 + "b" * 19 + "c")[n], "no") for n in range(100)]
    assert said(tmp_path / "b", more, of("sex=a|b|c")).count.tolist() == [100.0, 0.0, 0.0]
    flags = [(int(n < 9), 60 + n, "female", "no") for n in range(100)]
    assert said(tmp_path / "c", flags, of("age", "weight")).count.tolist() == [0.0, 100.0]
    sparse = [(n if n < 50 else "", 60, "female", "no") for n in range(100)]
    before = said(tmp_path / "d", sparse, of("age"))
    more_sparse = [*sparse, *[("", 61, "female", "no")] * 19, (7, 62, "female", "no")]
    assert said(tmp_path / "d", more_sparse, of("age")).mean[0] == before.mean[0]  # one more filled cell


def test_the_number_of_a_few_missing_cells_is_not_said(tmp_path: Path) -> None:
    few = [("" if n < 9 else age, weight, sex, ill) for n, (age, weight, sex, ill) in enumerate(ROWS)]
    many = [("" if n < 10 else age, weight, sex, ill) for n, (age, weight, sex, ill) in enumerate(ROWS)]
    found = said(tmp_path / "a", few)
    ages = np.array([row[0] for row in ROWS[9:]], float)
    assert found.count[0] == 100.0 and found.mean[0] == pytest.approx(ages.mean())
    assert found.squares[0] / 100 == pytest.approx(ages.var())
    assert said(tmp_path / "b", many).count[0] == 90.0
    sparse = [("" if n < 91 else age, weight, sex, ill) for n, (age, weight, sex, ill) in enumerate(ROWS)]
    assert said(tmp_path / "c", sparse).count[0] == 0.0


@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 5), max_size=12))
def test_how_many_rows_differ(now: list[int], before: list[int]) -> None:
    each = [np.array([[n] * 16 for n in rows], np.uint8).reshape(-1, 16) for rows in (now, before)]
    added = sum(max(0, now.count(n) - before.count(n)) for n in range(6))
    gone = sum(max(0, before.count(n) - now.count(n)) for n in range(6))
    assert kept_rows.differing(*each) == max(added, gone)


def test_of_rows_with_ids_the_ids_are_counted(tmp_path: Path) -> None:
    """One patient with many rows is one."""
    rows: list[tuple[object, ...]] = [(n // 5, 60 + n, "female", "no") for n in range(200)]
    before = said(tmp_path, rows, of("weight"), name="age")
    more = [*rows, *[(40, 1000, "male", "no")] * 30]
    assert said(tmp_path, more, of("weight"), name="age").mean[0] == before.mean[0]
    nine = [*rows, *[(40 + n, 1000, "male", "no") for n in range(9)]]
    assert said(tmp_path, nine, of("weight"), name="age").mean[0] == before.mean[0]
    ten = [*rows, *[(40 + n, 1000, "male", "no") for n in range(10)]]
    assert said(tmp_path, ten, of("weight"), name="age").mean[0] > before.mean[0]


def test_every_new_question_after_a_small_change_is_answered_with_the_rows_before(tmp_path: Path) -> None:
    """Also the second one: rows are kept only where none are near."""
    said(tmp_path, ROWS, of("age"))
    more = [*ROWS, (30, 1e6, "male", "no")]
    said(tmp_path, more, of("sex=female|male"))
    assert len(list((tmp_path / "kept").iterdir())) == 1
    assert said(tmp_path, more, of("weight")).mean[0] == said(tmp_path / "fresh", ROWS, of("weight")).mean[0]


def test_an_answer_near_the_present_rows_is_never_removed(tmp_path: Path) -> None:
    """Of more sets of rows than are kept, others go: else one changed row would follow from the next answer."""
    before = said(tmp_path, ROWS, of("age"))
    for number in range(1, kept_rows.MOST + 3):
        said(tmp_path, [(age + 100 * number, weight, sex, ill) for age, weight, sex, ill in ROWS], of("age"))
        for at, place in enumerate(sorted((tmp_path / "kept").iterdir(), key=lambda path: path.stat().st_mtime)):
            os.utime(place, (at, at))  # one after the other, as they came
        if number == kept_rows.MOST - 1:
            changed = [(1e6, *ROWS[0][1:]), *ROWS[1:]]
            assert said(tmp_path, changed, of("age", "weight")).mean[0] == before.mean[0]
    assert len(list((tmp_path / "kept").iterdir())) == kept_rows.MOST
    assert said(tmp_path, changed, of("age")).mean[0] == before.mean[0]


@pytest.mark.parametrize("name", [kept_rows.ROWS, kept_rows.MOMENTS, column_statistics.VALUES])
@pytest.mark.parametrize("content", [b"", b"\xff", b"[1]", b"[" * 50])
def test_a_damaged_file_of_answers_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    said(tmp_path, ROWS, of("age"))
    place = next((tmp_path / "kept").iterdir())
    (place / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name} is damaged .* restore it from a backup"):
        said(tmp_path, ROWS, of("weight"))


# ---------------------------------------------------------------- another data file, another policy

ONE_MORE, ONE_LESS = [*ROWS, (30, 987.654, "male", "no")], ROWS[1:]
TIMES_1000 = ColumnInFile("weight", factor=1000.0)


def test_a_unit_that_the_data_file_says_later_counts_at_once(tmp_path: Path) -> None:
    """The rows are the same, so no difference says anything of one."""
    before = said(tmp_path, ROWS, of("weight"))
    after = said(tmp_path, ROWS, of("weight"), weight=TIMES_1000)
    assert after.mean[0] == pytest.approx(1000 * before.mean[0])
    assert after.squares[0] == pytest.approx(1e6 * before.squares[0])
    assert said(tmp_path, ROWS, of("weight")).mean[0] == before.mean[0]


OTHER_WAYS: list[dict[str, object]] = [
    {"min_rows": 11},
    {"min_rows": 9},
    {"name": "age"},
    {"weight": TIMES_1000},
    {"spec": of("kilograms"), "kilograms": ColumnInFile("weight")},
    {"spec": of("grams"), "grams": TIMES_1000},
]


@pytest.mark.parametrize("way", OTHER_WAYS)
def test_a_column_that_is_read_in_another_way_is_said_of_the_rows_before(
    tmp_path: Path, way: dict[str, object]
) -> None:
    """One more row does not follow from two answers."""
    said(tmp_path, ROWS, of("weight"))
    way = {"spec": of("weight"), **way}
    after = said(tmp_path, ONE_MORE, **way)  # type: ignore[arg-type]
    fresh = said(tmp_path / "fresh", ROWS, **way)  # type: ignore[arg-type]
    assert (after.count.tolist(), after.mean.tolist()) == (fresh.count.tolist(), fresh.mean.tolist())


@pytest.mark.parametrize("way", OTHER_WAYS)
def test_where_a_row_is_gone_nothing_is_said_of_a_column_that_is_read_in_another_way(
    tmp_path: Path, way: dict[str, object]
) -> None:
    said(tmp_path, ROWS, of("weight"))
    way = {"spec": of("weight"), **way}
    for _ in range(2):  # nothing is kept of what waits
        assert said(tmp_path, ONE_LESS, **way).count.tolist() == [0.0]  # type: ignore[arg-type]
    others = [(1000 + n, 2 * n, "male", "no") for n in range(40)]
    assert said(tmp_path, [*ONE_LESS, *others], **way).count.tolist() == [139.0]  # type: ignore[arg-type]


def test_a_median_of_a_column_that_is_read_in_another_way_waits_too(tmp_path: Path) -> None:
    spec = of("weight")
    spec = replace(spec, reading=replace(spec.reading, missing="median"))

    def bins(rows: Sequence[tuple[object, ...]], least: int) -> float:
        path = tmp_path / "table.csv"
        path.write_text("age,weight,sex,ill\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows))
        site = SiteData(path)
        found = column_statistics.report(
            tmp_path / "kept", examples_in(site, [(path, 0)], spec), spec, form(site, spec), Asker(site, least)
        )
        assert found is not None
        return float(found.bins[0].counts.sum())

    assert bins(ROWS, 20) == 100
    assert bins(ONE_LESS, 20) == 100
    assert bins(ONE_LESS, 21) == 0
    assert bins(ROWS, 21) == 100


def test_an_id_in_the_data_file_makes_no_row_another_one(tmp_path: Path) -> None:
    """Nor does its end; but where it is there, all rows of one id are one."""
    rows = [(n // 5, 60 + n, "female", "no") for n in range(200)]
    before = said(tmp_path, rows, of("weight"))
    assert said(tmp_path, rows, of("weight"), name="age").mean[0] == before.mean[0]
    more = [*rows, *[(40, 1000, "male", "no")] * 30]
    assert said(tmp_path, more, of("weight"), name="age").mean[0] == before.mean[0]
    assert said(tmp_path, [*rows, more[-1]], of("weight")).mean[0] == before.mean[0]


def test_answers_that_are_gone_are_not_made_again(tmp_path: Path) -> None:
    said(tmp_path, ROWS, of("age"))
    (place,) = (tmp_path / "kept").iterdir()
    (place / kept_rows.MOMENTS).unlink()
    with pytest.raises(DataError, match=f"{kept_rows.MOMENTS} is damaged"):
        said(tmp_path, ROWS, of("age"))
