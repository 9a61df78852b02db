"""What a site says of its files: kept until enough rows differ, one row of an id, and nothing that harms a run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstride.errors import ConfigError, DataError
from fedstride.tasks.data_toml.dictionary_file import read_columns
from fedstride.tasks.data_toml.file_form import ColumnInFile, FileForm
from fedstride.tasks.data_toml.site import SiteData, read_site
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.own_files import column_statistics
from fedstride.tasks.own_files.description import Said, description, of_arrays, of_site
from fedstride.tasks.own_files.loading import examples_in, files, form
from fedstride.tasks.own_files.questions import Asker
from fedstride.tasks.reading import Reading
from fedstride.tasks.spec import Spec, Target
from fedstride.tasks.statistics.description import BELOW, LACKS, NOT_SAID, OTHER, PRESENT, Description

LEAST = 20
SPEC = Spec(
    Inputs(Kind.TABLE, (4,)),
    2,
    names=("no", "yes"),
    reading=Reading(("age", "sex=f|m", "crp"), targets=("ill",), missing="mean"),
)
COLUMNS = ("age", "sex", "crp", "ill")


def rows(n: int = 120, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "patient": np.arange(n) // 2,
            "age": rng.normal(54, 9, n).round(1),
            "sex": rng.choice(["f", "m"], n),
            "crp": rng.lognormal(2, 1, n).round(2),
            "ill": rng.choice(["no", "yes"], n),
        }
    )


def said(
    path: Path, table: pd.DataFrame, spec: Spec = SPEC, keep: bool = True, least: int = LEAST, **site: object
) -> Said:
    table.to_csv(path, index=False)
    statistics = path.parent / "kept" if keep else None
    return of_site(SiteData(path, **site), spec, least, statistics)  # type: ignore[arg-type]


@pytest.mark.parametrize("keep", [True, False])
def test_what_is_said_is_that_of_the_rows(tmp_path: Path, keep: bool) -> None:
    table = rows()
    found = said(tmp_path / "x.csv", table, keep=keep).description
    age, sex, _, ill = found.columns
    assert (found.rows, found.readable, found.unnamed) == (120, True, 1)
    assert age.mean == pytest.approx(table.age.mean(), rel=1e-6)
    assert age.std == pytest.approx(table.age.std(ddof=0), rel=1e-6)
    values = table.age.to_numpy(np.float32)
    ends = [-np.inf, *age.edges, np.inf]
    assert list(age.counts) == [
        np.count_nonzero((low <= values) & (values < high)) for low, high in pairwise(ends)
    ]
    assert list(sex.counts) == [(table.sex == "f").sum(), (table.sex == "m").sum()]
    assert list(ill.counts) == [(table.ill == "no").sum(), (table.ill == "yes").sum()]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, LEAST - 1), st.booleans())
def test_a_few_rows_more_or_less_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, adds: bool
) -> None:
    folder = tmp_path_factory.mktemp("site")
    table, other = rows(), rows(count, seed).assign(age=999.0, crp=1e6, sex="m", ill="yes")
    before = said(folder / "x.csv", table)
    changed = pd.concat([table, other]) if adds else table.drop(index=table.sample(count, random_state=seed).index)
    assert said(folder / "x.csv", changed).description == before.description


def test_enough_other_rows_are_described_anew(tmp_path: Path) -> None:
    before = said(tmp_path / "x.csv", rows())
    after = said(tmp_path / "x.csv", rows(150))
    assert after.description.rows == 150 and after.description.columns != before.description.columns


def test_a_column_with_a_few_values_more_is_described_as_before(tmp_path: Path) -> None:
    table = rows(200).assign(patient=range(200))
    table.loc[:99, "crp"] = np.nan
    before = said(tmp_path / "x.csv", table)
    filled = table.copy()
    filled.loc[0, "crp"] = 77.0
    filled["age"] = filled.age + 1.0  # every row is another one
    after = said(tmp_path / "x.csv", filled)
    assert after.description.columns[2] == before.description.columns[2]
    assert after.description.columns[0] != before.description.columns[0]


def test_of_an_id_one_row_counts(tmp_path: Path) -> None:
    assert said(tmp_path / "x.csv", rows(120), id="patient").description.rows == 60
    assert said(tmp_path / "y.csv", rows(38), id="patient").description == Description(LEAST, few=True)
    assert not said(tmp_path / "z.csv", rows(38)).description.few


def test_equal_rows_count_once_for_the_smallest_number(tmp_path: Path) -> None:
    one = rows(5).assign(patient=1)
    assert said(tmp_path / "x.csv", pd.concat([one] * 10)).description == Description(LEAST, few=True)


DICTIONARY = read_columns(
    {"age": {"least": 0, "most": 110}, "sex": ["f", "m"], "crp": {"empty": True}, "ill": ["no", "yes"]}, ["ill"]
)


@pytest.mark.parametrize(
    ("columns", "target", "states"),
    [
        (("age", "sex=f|m", "crp"), "ill", [PRESENT, PRESENT, PRESENT, PRESENT]),
        (("age", "sex=f|m", "weight"), "ill", [PRESENT, PRESENT, LACKS, PRESENT]),
        (("age", "sex=f|m|d", "crp"), "ill", [PRESENT, OTHER, PRESENT, PRESENT]),
        (("age=1|2", "sex", "crp"), "ill", [OTHER, OTHER, PRESENT, PRESENT]),
        (("age", "crp", "patient"), "sex", [PRESENT, PRESENT, LACKS, OTHER]),  # the data file does not allow them
        (("Age", "Sex", "CRP"), "Ill", [LACKS] * 4),
    ],
)
def test_each_column_is_there_or_not_or_another_one(
    tmp_path: Path, columns: tuple[str, ...], target: str, states: list[int]
) -> None:
    width = sum(each.count("|") + 1 for each in columns)
    reading = replace(SPEC.reading, columns=columns, targets=(target,))
    found = said(
        tmp_path / "x.csv",
        rows(),
        replace(SPEC, inputs=Inputs(Kind.TABLE, (width,)), reading=reading),
        dictionary=DICTIONARY,
    ).description
    assert [each.state for each in found.columns] == states
    assert all(bool(each.counts) == (each.state == PRESENT) for each in found.columns)
    assert all(each.std == NOT_SAID for each in found.columns if each.state != PRESENT)


def test_a_wrong_question_does_not_spoil_what_a_run_is_told(tmp_path: Path) -> None:
    """What a site says of its columns is kept by their names: of a column that was asked wrongly, nothing is."""
    path = tmp_path / "x.csv"
    wrong = replace(
        SPEC, inputs=Inputs(Kind.TABLE, (5,)), reading=replace(SPEC.reading, columns=("age", "sex=f|m|d", "crp"))
    )
    said(path, rows(), wrong, dictionary=DICTIONARY)
    site = SiteData(path, dictionary=DICTIONARY)
    found = examples_in(site, files(site, SPEC), SPEC)
    after = column_statistics.report(tmp_path / "kept", found, SPEC, form(site, SPEC), Asker(site, LEAST))
    alone = column_statistics.report(tmp_path / "fresh", found, SPEC, form(site, SPEC), Asker(site, LEAST))
    assert after is not None and alone is not None
    assert np.array_equal(after.moments.mean, alone.moments.mean)
    assert np.array_equal(after.moments.count, alone.moments.count)


@pytest.mark.parametrize(
    ("column", "cells", "line"),
    [
        ("age", ["130"], r"column 'age': 1 cell cannot be read; the first: .*line 2, column 'age': '130'"),
        ("crp", ["3,5", "4 mg"], r"column 'crp': 2 cells cannot be read; the first: .*'3,5' is not a number"),
        ("sex", ["x"] * 3, r"column 'sex': categories that the run does not name: 'x' \(3 rows\)"),
        ("ill", ["?"], r"column 'ill': categories that the run does not name: '\?' \(1 row\)"),
    ],
)
def test_cells_that_cannot_be_read_are_lines_of_the_sites_own_log(
    tmp_path: Path, column: str, cells: list[str], line: str
) -> None:
    table = rows().astype(object)
    table.loc[: len(cells) - 1, column] = cells
    found = said(tmp_path / "x.csv", table, dictionary=DICTIONARY)
    assert not found.description.readable
    (told,) = [each for each in found.lines if f"'{column}'" in each and "does not name: 'patient'" not in each]
    assert re.search(line, told)
    flat = json.dumps(found.description.flatten())
    assert not any(cell in flat for cell in cells if len(cell) > 2)
    told_of = found.description.columns[COLUMNS.index(column)]
    assert told_of.missing == BELOW and sum(told_of.counts) == 120


@pytest.mark.parametrize("rule", ["error", "mean", "median+indicator"])
@pytest.mark.parametrize("column", ["age", "sex", "ill"])
def test_empty_cells_that_a_run_refuses_are_cells_that_cannot_be_read(
    tmp_path: Path, column: str, rule: str
) -> None:
    table = rows().astype(object)
    table.loc[[3, 5], column] = ""
    indicators = 3 * rule.endswith("indicator")
    spec = replace(SPEC, inputs=Inputs(Kind.TABLE, (4 + indicators,)), reading=replace(SPEC.reading, missing=rule))
    found = said(tmp_path / "x.csv", table, spec)
    refused = rule == "error" or column == "ill"
    assert found.description.readable is not refused
    lines = [line for line in found.lines if f"column '{column}': 2 cells without a value" in line]
    assert bool(lines) is refused
    if refused:
        assert f"line 5, column '{column}'" in lines[0]
        assert ("task.missing" in lines[0]) is (column != "ill")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("age,sex,crp,ill\n", "no rows"),
        ("", "empty"),
        ("age,sex,crp,ill\n1,f,2\n", "3 cells"),
        (
            "age;sex;crp;ill\n1,5;f;2,5;no\n",
            "has 3 cells, but the header has 1 column; its header has no ',' but ';': "
            'write separator = ";", and decimal = "," if its numbers are as 1,5 in ',
        ),
        ("age,age,sex,crp,ill\n1,1,f,2,no\n", "2 columns"),
    ],
)
def test_a_table_that_cannot_be_read_at_all_is_refused(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(DataError, match=match):
        of_site(SiteData(tmp_path / "x.csv"), SPEC, LEAST)


def test_a_scale_or_a_task_without_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"spec\.scale"):
        said(tmp_path / "x.csv", rows(), replace(SPEC, scale=0.01))
    with pytest.raises(ConfigError, match="does not name the columns"):
        said(tmp_path / "x.csv", rows(), replace(SPEC, reading=Reading(targets=("ill",))))


@pytest.mark.parametrize("names", [("no", "yes"), ("yes", "no")])
def test_which_counts_are_said_does_not_depend_on_the_order_in_a_message(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    kinds = ["a"] * 5 + ["b"] * 100 + ["c"] * 100
    table = rows(205).assign(sex=kinds)
    first = said(tmp_path / "x.csv", table, _of_kinds("sex=a|b|c"), keep=False).description.columns[1]
    second = said(tmp_path / "x.csv", table, _of_kinds("sex=c|b|a"), keep=False).description.columns[1]
    assert first.counts == second.counts[::-1] and sorted(first.counts)[:2] == [-2, -1]


def _of_kinds(column: str) -> Spec:
    return replace(
        SPEC, inputs=Inputs(Kind.TABLE, (5,)), reading=replace(SPEC.reading, columns=("age", column, "crp"))
    )


@pytest.mark.parametrize(("target", "outputs"), [(Target.VALUES, 1), (Target.LABELS, 1)])
def test_values_and_labels_are_described_too(tmp_path: Path, target: Target, outputs: int) -> None:
    spec = replace(SPEC, target=target, outputs=outputs, names=())
    table = rows().assign(ill=np.arange(120) % 2)
    told = said(tmp_path / "x.csv", table, spec).description.columns[3]
    assert sum(told.counts) == 120
    assert (told.std == NOT_SAID) == (target is Target.LABELS)
    parquet = tmp_path / "x.parquet"
    table.to_parquet(parquet)
    assert of_site(SiteData(parquet), spec, LEAST).description.columns[3].counts == told.counts


def test_a_folder_of_arrays_is_described_by_its_classes_and_channels(tmp_path: Path) -> None:
    spec = Spec.images((3, 4, 4), 3, (0.5,) * 3, (0.5,) * 3)
    x, y = np.random.default_rng(0).integers(0, 256, (60, 3, 4, 4), dtype=np.uint8), np.arange(60) % 3
    np.savez(tmp_path / "x.npz", x=x, y=y)
    found = of_site(SiteData(tmp_path / "x.npz"), spec, LEAST).description
    assert [each.counts for each in found.columns] == [(), (), (), (20, 20, 20)]
    assert found.columns[0].mean == pytest.approx(x[:, 0].mean() / 255)
    assert of_arrays(x, y, spec, LEAST) == found
    assert of_arrays(x[:19], y[:19], spec, LEAST).few


def test_to_describe_data_no_secret_is_made(tmp_path: Path) -> None:
    rows().to_csv(tmp_path / "x.csv", index=False)
    (tmp_path / "data.toml").write_text('path = "x.csv"\n')
    assert description(tmp_path / "data.toml", SPEC)["description.rows"] == 120
    assert not list(tmp_path.glob("*.secret"))
    assert read_site(tmp_path / "data.toml").secret is not None


@pytest.mark.parametrize("text", ['P{0},01.01.1949,divers,"0,78"\n', "{0};a;b;c\n"])
def test_of_a_table_without_a_header_no_cell_leaves_the_site(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.csv").write_text("".join(text.format(at) for at in range(50)))
    found = of_site(SiteData(tmp_path / "x.csv"), SPEC, LEAST, tmp_path / "kept")
    assert not found.description.readable and found.lines[0].startswith("a run cannot read this table: ")
    left = json.dumps(found.description.flatten())
    assert not any(cell in left for cell in ("P0", "1949", "divers", "0,78", ";"))


@pytest.mark.parametrize("rule", ["error", "mean"])
@pytest.mark.parametrize("column", ["age", "sex", "crp"])
def test_a_table_without_a_column_is_read_if_the_site_says_so_and_the_run_fills_it(
    tmp_path: Path, column: str, rule: str
) -> None:
    table = rows().drop(columns=column)
    spec = replace(SPEC, reading=replace(SPEC.reading, missing=rule))
    unsaid = said(tmp_path / "x.csv", table, spec)
    assert not unsaid.description.readable
    assert [each.state for each in unsaid.description.columns].count(LACKS) == 1
    assert any(each.startswith("a run cannot read") and f"'{column}'" in each for each in unsaid.lines)
    absent = FileForm(columns={column: ColumnInFile(absent=True)})
    found = said(tmp_path / "x.csv", table, spec, form=absent)
    assert found.description.readable is (rule == "mean")
    told = [line for line in found.lines if line.startswith("a run cannot read this table: the data file says")]
    assert len(told) == (rule == "error") and all(f"'{column}' is absent" in line for line in told)


def test_a_run_refuses_what_it_is_said_to_refuse(tmp_path: Path) -> None:
    """Each table without a column, by the description and by the reader of a run."""
    for column in ("age", "sex", "crp", "ill"):
        path = tmp_path / f"{column}.csv"
        assert not said(path, rows().drop(columns=column)).description.readable
        with pytest.raises(DataError, match=f"has no column '{column}'"):
            examples_in(SiteData(path), files(SiteData(path), SPEC), SPEC)


def test_columns_that_the_data_file_does_not_name_are_not_counted(tmp_path: Path) -> None:
    """They do not exist for runs; the site's own log names them."""
    allowed = {name: column for name, column in DICTIONARY.columns.items() if name != "crp"}
    spec = replace(
        SPEC, inputs=Inputs(Kind.TABLE, (3,)), reading=replace(SPEC.reading, columns=("age", "sex=f|m"))
    )
    table = rows().assign(ward="a", bed=3)
    for columns, count in ((DICTIONARY.columns, 1), (allowed, 0)):
        found = said(tmp_path / "x.csv", table, spec, keep=False, dictionary=replace(DICTIONARY, columns=columns))
        assert found.description.unnamed == count
        assert any("columns that the run does not name: " in line and "'ward'" in line for line in found.lines)
