"""Codes, units, dates and types of cells that a site writes in its own way."""

from __future__ import annotations

import decimal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from own_files import written
from pyarrow import parquet

from fedstride.errors import ConfigError, DataError
from fedstride.tasks import own_files
from fedstride.tasks.data_toml.file_form import ColumnInFile, FileForm
from fedstride.tasks.data_toml.site import read_site
from fedstride.tasks.datasets.nodes import own_table, own_texts
from fedstride.tasks.own_files import unlabelled
from fedstride.tasks.own_files.tables import counted_faults, csv_file, table_file
from fedstride.tasks.own_files.tables.number_formats import what_to_say
from fedstride.tasks.own_files.tables.translated import as_task

GRADES = own_table(columns=["a"], target="grade", classes=4).spec
MASS = own_table(columns=["mass"], target="d", classes=["no", "yes"], missing="mean").spec
CLASSES = 'd = ["no", "yes"]\n'


@pytest.fixture(autouse=True)
def _fresh(own_cache: Path) -> None:
    """Every test has its own empty cache."""


def site(folder: Path, content: str | pa.Table, columns: str, file: str = "", target: str = "d") -> Path:
    name = "t.csv" if isinstance(content, str) else "t.parquet"
    if isinstance(content, str):
        written(folder / name, content)
    else:
        parquet.write_table(content, folder / name)
    begin = f'path = "{name}"\nsplit_seed = 0\ntargets = ["{target}"]\n'
    return written(folder / "data.toml", f"{begin}[file]\n{file}\n[columns]\n{columns}\n")


def column(folder: Path, content: str | pa.Table, said: str, file: str = "") -> list[float]:
    """The numbers of `mass`, and that the check of the node finds the same."""
    toml = site(folder, content, f"mass = {{ {said} }}\n{CLASSES}", file)
    found = [float(value) for value in own_files.load(toml, MASS).x[:, 0]]
    assert table_file.faults(read_site(toml))[2] == []
    np.testing.assert_array_equal(counted_faults.read(read_site(toml), MASS).examples.x[:, 0], found)
    return found


@pytest.mark.parametrize(
    ("grades", "said", "file"),
    [
        (["1", "2", "4", "3"], "offset = -1", ""),
        (["0", "10", "30", "20"], "factor = 0.1", ""),
        (["0,0", "1,0", "3", "2,00"], "", 'separator = ";"\ndecimal = ","'),
        (["0 pt", "1 pt", "3", "2 pt"], 'unit = "pt"', ""),
        (["one", "1", "3", "2"], 'words = { one = "0" }', ""),
    ],
)
def test_a_number_of_a_class_is_translated_as_any_number(
    tmp_path: Path, grades: list[str], said: str, file: str
) -> None:
    mark = ";" if file else ","
    content = f"a{mark}grade\n" + "".join(f"1{mark}{grade}\n" for grade in grades)
    more = f", {said}" if said else ""
    columns = f'a = "number"\ngrade = {{ least = 0, most = 3, whole = true{more} }}'
    toml = site(tmp_path, content, columns, file, "grade")
    assert own_files.load(toml, GRADES).y.tolist() == [0, 1, 3, 2]
    assert counted_faults.read(read_site(toml), GRADES).examples.y.tolist() == [0, 1, 3, 2]
    assert table_file.faults(read_site(toml))[2] == []


@pytest.mark.parametrize(
    ("cells", "said", "form"),
    [
        (["0,0", "0", "-0,00", "0,"], ("0",), FileForm(decimal=",")),
        (["9.999", "9999", "9.999,0"], ("9999",), FileForm(decimal=",", thousands=".")),
        (["9999"], ("9.999",), FileForm(decimal=",", thousands=".")),
        (["0 mg", "0mg", "0.0 mg"], ("0",), FileForm()),
        (["-9", "-09", "-9.", "\u22129", "-9.0", "-0.9e1", '"-9"'], ("-9",), FileForm()),
    ],
)
def test_a_code_for_no_value_is_one_however_it_is_written(
    cells: list[str], said: tuple[str, ...], form: FileForm
) -> None:
    origin = ColumnInFile(unit="mg", factor=10.0, offset=3.0)
    for of_file, of_column in (((), said), (said, ())):
        found = as_task(cells, replace(form, missing=of_file), replace(origin, missing=of_column), is_number=True)
        assert list(found) == [""] * len(cells)
    words = as_task(cells, form, replace(origin, words=((said[0], "7"),)), is_number=True)
    assert list(words) == ["7"] * len(cells)
    texts = as_task(["-09"], form, replace(origin, missing=("-9",)), is_number=False)
    assert list(texts) == ["-09"]  # a code in a text is another one
    large = as_task(["1e9999999999999999999"], FileForm(), ColumnInFile(missing=said), is_number=True)
    assert list(large) == ["1e9999999999999999999"]  # no code, and refused as a number
    other = as_task(["5"], form, replace(origin, missing=said), is_number=True)
    assert list(other) == ["53.0"]


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (pa.array([1.5, -99.9, 2.5], pa.float32()), "-99.9"),
        (pa.array([1.5, -99.9, 2.5], pa.float64()), "-99.90"),
        (pa.array([1.5, -99.9, 2.5], pa.float32()), "-99,9"),
        (pa.array([1.5, -99.9, 2.5], pa.float16()), "-99.9"),
        (pa.array([decimal.Decimal(text) for text in ("1.5", "0", "2.5")], pa.decimal128(20, 8)), "0"),
    ],
)
def test_a_code_in_a_column_of_numbers_of_parquet(tmp_path: Path, values: pa.Array, code: str) -> None:
    table = pa.table({"mass": values, "d": ["no", "yes", "no"]})
    found = column(tmp_path, table, f'missing = ["{code}"], empty = true', 'decimal = ","')
    assert found[0] == 1.5 and np.isnan(found[1]) and found[2] == 2.5


def test_numbers_of_parquet_have_no_form_and_its_texts_have(tmp_path: Path) -> None:
    form = 'decimal = ","\nthousands = "."'
    numbers = pa.table({"mass": [1.234, 12.5, 3.0], "d": ["no", "yes", "no"]})
    assert column(tmp_path, numbers, "empty = true", form) == [np.float32(value) for value in (1.234, 12.5, 3.0)]
    texts = pa.table({"mass": ["1.234", "12,5", "3"], "d": ["no", "yes", "no"]})
    assert column(tmp_path, texts, "empty = true", form) == [1234.0, 12.5, 3.0]


def test_bytes_of_parquet_are_text_or_refused(tmp_path: Path) -> None:
    texts = pa.table({"mass": [1.0, 2.0], "d": [b"no", b"yes"]})
    toml = site(tmp_path, texts, f'mass = "number"\n{CLASSES}')
    spec = own_table(columns=["mass"], target="d", classes=["no", "yes"]).spec
    assert own_files.load(toml, spec).y.tolist() == [0, 1]
    notes = own_texts(classes=["no", "yes"], columns=["n"], target="d", length=4, vocabulary=100).spec
    found = []
    for n, values in enumerate(([b"hello world", b"bye"], ["hello world", "bye"])):
        (tmp_path / str(n)).mkdir()
        table = pa.table({"n": values, "d": ["no", "yes"]})
        found.append(own_files.load(site(tmp_path / str(n), table, f'n = "text"\n{CLASSES}'), notes).x.tolist())
    assert found[0] == found[1]
    for values, words in (
        ([b"no", b"\xff"], "row 2, column 'd': its type is binary, .* not text in UTF-8"),
        ([["no"], ["yes"]], "column 'd': its type 'list<"),
    ):
        toml = site(tmp_path, pa.table({"mass": [1.0, 2.0], "d": values}), f'mass = "number"\n{CLASSES}')
        with pytest.raises(DataError, match=words):
            own_files.load(toml, spec)


def test_predictions_are_of_cells_that_the_data_file_allows(tmp_path: Path) -> None:
    said = "mass = { least = 0, most = 9, whole = true, factor = 0.1, empty = true }\n"
    toml = site(tmp_path, "mass\n10\n\n90\n", said + CLASSES)
    assert unlabelled.read(toml, MASS).x[:, 0].tolist() == [1.0, 9.0]
    for cell, shown in (("-10", "-1.0"), ("100", "10.0"), ("7", "0.7")):
        site(tmp_path, f"mass\n10\n{cell}\n", said + CLASSES)
        with pytest.raises(
            DataError, match=f"line 3, .*'{shown}' is not allowed: .*; the file has '{cell}' there"
        ):
            unlabelled.read(toml, MASS)
    site(tmp_path, 'mass\n""\n', said.replace(", empty = true", "") + CLASSES)
    assert np.isnan(unlabelled.read(toml, MASS).x).all()  # the task alone says whether a cell may be empty


@pytest.mark.parametrize(
    "form", ["%H:%M", "%d.%m.", "%Y-%m", "%Y", "%c", "%x", "%s", "%F", "%d.%m.%Y %d", "%d %Y"]
)
def test_a_form_without_a_day_is_refused(tmp_path: Path, form: str) -> None:
    toml = site(tmp_path, "mass,d\n", f'mass = {{ date = "{form}", days_since = "2020-01-01" }}\n{CLASSES}')
    with pytest.raises(ConfigError, match=r"column 'mass': date = .* does not say a day: it needs year, month"):
        read_site(toml)


@pytest.mark.parametrize(
    ("form", "cell"),
    [("%Y%j", "2020003"), ("%d %b %Y", "03 Jan 2020"), ("%B %d, %y", "January 3, 20"), ("%G-W%V-%u", "2020-W01-5"),
     ("%Y-%m-%d %H:%M:%S.%f", "2020-01-03 10:00:00.25"), ("%Y-%m-%d %H:%M:%S.%f", "2020-01-03 10:00:00"),
     ("%Y-%m-%dT%H:%M:%S%z", "2020-01-03T23:00:00Z")],
)  # fmt: skip
def test_forms_of_days(tmp_path: Path, form: str, cell: str) -> None:
    content = f'mass,d\n"{cell}",no\n'
    assert column(tmp_path, content, f'date = "{form}", days_since = "2020-01-01"') == [2.0]


def test_years_of_two_digits_are_before_the_day_until_which_they_count() -> None:
    until = ColumnInFile(date="%d.%m.%y", until="2026-01-01")
    ages = as_task(["03.05.45", "01.02.69", "01.01.26", "02.01.26"], FileForm(), until, is_number=True)
    assert [round(float(age)) for age in ages] == [81, 57, 0, 100]
    since = ColumnInFile(date="%d.%m.%y", since="2020-01-01")
    assert as_task(["03.01.20"], FileForm(), since, is_number=True) == ["2"]
    leap = ColumnInFile(date="%d.%m.%y", until="1999-01-01")
    assert "in this file" in as_task(["29.02.00"], FileForm(), leap, is_number=True)[0]  # 1900 was no leap year


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("2020-01-02 00:00:00+00:00", 'date = "%Y-%m-%d %H:%M:%S%z"'),
        ("2020-01-02T10:00:00Z", 'date = "%Y-%m-%dT%H:%M:%S%z"'),
        ("2020-01-02 00:00:00.123", 'date = "%Y-%m-%d %H:%M:%S.%f"'),
        ("03-04-2020", 'date = "%d-%m-%Y" or "%m-%d-%Y"'),
        ("03.05.45", "; %y is a year from 1969 to 2068"),
        ("2020-02-30", "how it is written, with %Y, %m and %d"),
        ("2020-01-02 00:00:00.123456789", "how it is written, with %Y, %m and %d"),
        ("< 5", "the number in words is in the task's unit, with a decimal point"),
    ],
)
def test_what_is_proposed_reads_the_cell(cell: str, said: str) -> None:
    assert said in what_to_say(cell)


@pytest.mark.parametrize(
    ("word", "fits"), [("2,5", False), ("low", False), ("2.5", True), ("-1e3", True), ("", True)]
)
def test_words_of_numbers_are_numbers_of_the_task(tmp_path: Path, word: str, fits: bool) -> None:
    toml = site(tmp_path, "mass;d\n", f'mass = {{ words = {{ "<5" = "{word}" }} }}\n{CLASSES}', 'decimal = ","')
    if fits:
        read_site(toml)
        return
    with pytest.raises(
        ConfigError, match=r"column 'mass': words: '<5' = .* number in the task's unit, with a decimal"
    ):
        read_site(toml)


@pytest.mark.parametrize(
    ("cell", "factor", "value"),
    [
        ("1.001", 1000.0, 1001),
        ("30", 0.1, 3),
        ("12", 1 / 12, 1),
        ("3", 1 / 3, 1),
        ("7", 1 / 3, None),
        ("7", 0.1, None),
    ],
)
def test_whole_numbers_are_those_of_the_written_digits(
    tmp_path: Path, cell: str, factor: float, value: float | None
) -> None:
    said = f"whole = true, factor = {factor!r}"
    if value is not None:
        assert column(tmp_path, f"mass,d\n{cell},no\n", said) == [value]
        return
    toml = site(tmp_path, f"mass,d\n{cell},no\n", f"mass = {{ {said} }}\n{CLASSES}")
    with pytest.raises(DataError, match=f"a whole number; the file has '{cell}' there"):
        own_files.load(toml, own_table(columns=["mass"], target="d", classes=["no", "yes"]).spec)


@pytest.mark.parametrize("cell", ["1e30", "-1e300", "1e999", "1e999999999999"])
def test_a_converted_number_beyond_all_floats_is_refused(cell: str) -> None:
    found = as_task([cell], FileForm(), ColumnInFile(factor=1e300), is_number=True)
    assert not np.isfinite(float(found[0]))


@pytest.mark.parametrize(("first", "mark"), [("sep=;", ";"), ("SEP=;", ";"), ("sep=,", ","), ("sep=\t", "\t")])
def test_the_first_line_of_excel_is_skipped_or_named(tmp_path: Path, first: str, mark: str) -> None:
    path = written(tmp_path / "t.csv", f"{first}\na{mark}b\n1{mark}2\n")
    form = FileForm(separator=mark)
    assert csv_file.columns_in(path, form) == ["a", "b"]
    [rows] = csv_file.read(path, ["b"], form)
    assert rows.cells == {"b": ["2"]} and rows.numbers == [3]
    [rows] = csv_file.read(
        written(tmp_path / "t.csv", f"{first}\n1{mark}2\n"), ["b"], replace(form, header=("a", "b"))
    )
    assert rows.cells == {"b": ["2"]}
    with pytest.raises(DataError, match=r"its first line says that the separator is .* or remove the line"):
        csv_file.columns_in(path, FileForm(separator="|"))


@pytest.mark.parametrize(("value", "name"), [(True, "true"), (False, "False")])
def test_truth_in_parquet_is_a_number_and_the_message_says_which(tmp_path: Path, value: Any, name: str) -> None:
    names = ["False", "true"]
    table = pa.table({"mass": [1.0], "d": [value]})
    toml = site(tmp_path, table, f'mass = "number"\nd = {names}'.replace("'", '"'))
    said = f'words = {{ "{int(value)}" = "{name}" }}'
    with pytest.raises(DataError, match=f"{said}; true is 1 and false is 0"):
        own_files.load(toml, own_table(columns=["mass"], target="d", classes=names).spec)


@pytest.mark.parametrize(
    ("thousands", "said", "cell", "expected"),
    [
        (".", "9", "9.000", "9000"),
        (".", "9", "9", ""),
        (".", "9", "9,0", ""),
        (".", "9.000", "9000", ""),
        ("", "9", "9.000", "9.000 (in this file, decimal = ',')"),
        ("", "9", "9,000", ""),
        ("", "0", "0.0", "0.0 (in this file, decimal = ',')"),
    ],
)
def test_a_code_is_a_number_as_the_file_writes_it(thousands: str, said: str, cell: str, expected: str) -> None:
    """Where a point is no decimal point, nine thousand is not the code 9."""
    form = FileForm(decimal=",", thousands=thousands)
    assert as_task([cell], replace(form, missing=(said,)), ColumnInFile(), is_number=True) == [expected]
    word = expected or "77"
    found = as_task([cell], form, ColumnInFile(words=((said, "77"),)), is_number=True)
    assert found == [word]
