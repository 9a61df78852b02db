"""Tables as a node has them: CSV and Parquet, columns by name, missing numbers, and where an error is."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_files import LABELS, SPECS, VALUES, of_table, of_texts, refused, written

from fedstride.errors import ConfigError, DataError
from fedstride.tasks import own_files
from fedstride.tasks.forms import csv_rows
from fedstride.tasks.forms.columns import Column, parsed
from fedstride.tasks.forms.tokens import tokens
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.own_files.tables import rows, table_file
from fedstride.tasks.reading import Reading
from fedstride.tasks.spec import Spec, Target

Table = Mapping[str, Sequence[Any]]
ROWS = {
    "label": [0, 1, 1],
    "stage": ["I", "III", "II"],
    "note": ["kept, elsewhere", "two\nlines", 'she said "no"'],
    "mass": [70.5, 81.25, 0.1],
    "age": [50, 61, 7],
}
X = [[50, 70.5, 1, 0, 0], [61, 81.25, 0, 0, 1], [7, 0.1, 0, 1, 0]]


@pytest.fixture(autouse=True)
def _fresh(own_cache: Path) -> None:
    """Every test has its own empty cache."""


def text_of(table: Table) -> str:
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(table)
    writer.writerows([["" if cell is None else cell for cell in row] for row in zip(*table.values(), strict=True)])
    return out.getvalue()


def as_csv(folder: Path, table: Table) -> Path:
    return written(folder / "mine.csv", text_of(table))


def as_csv_with_mark(folder: Path, table: Table) -> Path:
    return written(folder / "mine.csv", "\ufeff" + text_of(table))


def as_unix_csv(folder: Path, table: Table) -> Path:
    return written(folder / "Mine.CSV", text_of(table).replace("\r\n", "\n") + "\n")


def as_packed(folder: Path, table: Table) -> Path:
    return written(folder / "mine.csv.gz", gzip.compress(text_of(table).encode()))


def as_parquet(folder: Path, table: Table) -> Path:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(
        pyarrow.table({name: list(values) for name, values in table.items()}), folder / "mine.parquet"
    )
    return folder / "mine.parquet"


WRITERS = [as_csv, as_csv_with_mark, as_unix_csv, as_packed, as_parquet]
FORMATS = pytest.mark.parametrize("write", [as_csv, as_parquet])
Write = Callable[[Path, Table], Path]


# ---------------------------------------------------------------- what is read


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("chunk", [1, 2, 4096])
def test_columns_are_chosen_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write, chunk: int
) -> None:
    monkeypatch.setattr(rows, "CHUNK", chunk)
    found = own_files.load(write(tmp_path, ROWS), of_table())
    assert (found.x.dtype, found.y.dtype) == (np.float32, np.int64)
    np.testing.assert_array_equal(found.x, np.array(X, np.float32))
    assert found.y.tolist() == [0, 1, 1]
    assert isinstance(found.x, np.memmap)


@FORMATS
def test_many_rows_in_several_chunks(tmp_path: Path, write: Write) -> None:
    rng = np.random.default_rng(0)
    table = {"b": rng.normal(size=10_000), "label": rng.integers(0, 3, 10_000), "a": rng.normal(size=10_000)}
    spec = Spec(Inputs(Kind.TABLE, (2,)), 3, reading=Reading(columns=("a", "b")))
    found = own_files.load(write(tmp_path, {name: each.tolist() for name, each in table.items()}), spec)
    np.testing.assert_array_equal(found.x, np.stack([table["a"], table["b"]], 1).astype(np.float32))
    np.testing.assert_array_equal(found.y, table["label"])


@FORMATS
@pytest.mark.parametrize(
    ("given", "names", "labels"),
    [
        ([0, 1, 1], (), [0, 1, 1]),
        ([0.0, 1.0, 1.0], (), [0, 1, 1]),
        (["ill", "well", "ill"], ("well", "ill"), [1, 0, 1]),
        ([20, 10, 10], ("10", "20"), [1, 0, 0]),
    ],
)
def test_classes(
    tmp_path: Path, write: Write, given: list[Any], names: tuple[str, ...], labels: list[int]
) -> None:
    assert own_files.load(write(tmp_path, {**ROWS, "label": given}), of_table(names=names)).y.tolist() == labels


@pytest.mark.parametrize(("write", "one"), [(as_csv, 1), (as_csv, 1.0), (as_parquet, 1.0), (as_parquet, True)])
def test_labels(tmp_path: Path, write: Write, one: Any) -> None:
    zero = type(one)(0)
    table = {**ROWS, "flu": [one, zero, one], "cold": [zero, zero, one]}
    spec = of_table(target=LABELS.target, targets=("cold", "flu"))
    found = own_files.load(write(tmp_path, table), spec)
    assert found.y.dtype == np.uint8 and found.y.tolist() == [[0, 1], [0, 0], [1, 1]]


@FORMATS
def test_values(tmp_path: Path, write: Write) -> None:
    table = {**ROWS, "sys": [120, 130.5, -1], "dia": [80.0, 1e-3, 5e10]}
    found = own_files.load(write(tmp_path, table), of_table(target=VALUES.target, targets=("dia", "sys")))
    assert found.y.dtype == np.float32
    np.testing.assert_array_equal(found.y, np.array([[80, 120], [1e-3, 130.5], [5e10, -1]], np.float32))


@FORMATS
def test_texts(tmp_path: Path, write: Write) -> None:
    table = {"body": ["the cat", "", "a dog"], "label": [1, 0, 1], "title": ["News!", "Only this", ""]}
    spec = of_texts(6, texts=("title", "body"))
    found = own_files.load(write(tmp_path, table), spec)
    np.testing.assert_array_equal(found.x, tokens(["News! the cat", "Only this", "a dog"], 6, 1000))
    assert found.x.dtype == np.uint16 and found.y.tolist() == [1, 0, 1]


@FORMATS
def test_texts_with_values(tmp_path: Path, write: Write) -> None:
    spec = of_texts(target=Target.VALUES, outputs=1, targets=("stars",))
    found = own_files.load(write(tmp_path, {"text": ["a", "b"], "stars": [4.5, 1]}), spec)
    assert found.y.tolist() == [[4.5], [1.0]]


@FORMATS
def test_missing_numbers_become_nan_if_the_task_says_so(tmp_path: Path, write: Write) -> None:
    table = {**ROWS, "age": [50.0, None, float("nan")], "stage": ["I", None, "II"]}
    found = own_files.load(write(tmp_path, table), of_table(missing="mean"))
    nan = np.nan
    expected = [[50, 70.5, 1, 0, 0], [nan, 81.25, nan, nan, nan], [nan, 0.1, 0, 1, 0]]
    np.testing.assert_array_equal(found.x, np.array(expected, np.float32))


def test_blanks_around_cells_and_names_do_not_count(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.csv", "label, age ,mass,stage\n 1 , 50,\t70.5 , I\n")
    found = own_files.load(path, of_table())
    assert (found.x.tolist(), found.y.tolist()) == ([[50.0, 70.5, 1.0, 0.0, 0.0]], [1])


def test_categories_with_signs(tmp_path: Path) -> None:
    spec = of_table(columns=("pay=<=50K|>50K",), inputs=Inputs(Kind.TABLE, (2,)))
    assert own_files.load(as_csv(tmp_path, {"pay": [">50K", "<=50K"], "label": [0, 1]}), spec).x.tolist() == [
        [0, 1],
        [1, 0],
    ]


# ---------------------------------------------------------------- cells that are refused, with their place


def changed(column: str, value: Any) -> Table:
    """The rows with another value in the third row, as text if needed."""
    cells = [*ROWS[column][:2], value]
    return {**ROWS, column: cells if not isinstance(value, str) else [str(cell) for cell in cells]}


@FORMATS
@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        (
            "age",
            "7,5",
            "'7,5' is not a number; if it is a number, say in [file] of the data file decimal = \",\"",
        ),
        ("age", "7 kg", "'7 kg' is not a number"),
        ("age", "1_000", "'1_000' is not a number"),
        ("age", "NA", "'NA' is not a number"),
        ("age", "inf", "'inf' is not allowed: numbers must be finite in float32"),
        ("age", "1e39", "'1e39' is not allowed: numbers must be finite"),
        ("age", "x\n\x1b[31m" + 200 * "y", r"'x\n\x1b[31myyy"),
        (
            "age",
            None,
            "the cell is empty; fill it or delete the row, or let the task replace such cells, as in "
            "task.missing=mean",
        ),
        ("mass", float("nan"), "the cell is empty"),
        (
            "stage",
            "IV",
            "category 'IV' is not allowed: it must be one of 'I, II, III'; if it is another word for one, say so "
            'of its column in the data file, as in words = { "IV" = "I" } or { "IV" = "II" }; if it is no value, '
            'missing = ["IV"]',
        ),
        ("stage", "", "the cell is empty"),
        ("label", 2, "class '2' is not allowed: it must be a whole number from 0 to 1"),
        ("label", -1, "class '-1' is not allowed"),
        ("label", 0.5, "class '0.5' is not allowed"),
        ("label", "ill", "'ill' is not a number"),
        ("label", "", "the cell is empty"),
    ],
)
def test_cells_that_are_refused(tmp_path: Path, write: Write, column: str, value: Any, said: str) -> None:
    path = write(tmp_path, changed(column, value))
    place = "row 3" if write is as_parquet else "line 5"  # a text before it has two lines
    text = refused(path, of_table())
    assert f"{path}, {place}, column '{column}': {said}" in text


def test_a_place_in_a_later_chunk(tmp_path: Path) -> None:
    table = {"text": ["a"] * 9000, "label": [0] * 8999 + [9]}
    assert "line 9001, column 'label': class '9'" in refused(as_csv(tmp_path, table), of_texts())
    assert "row 9000, column 'label': class '9'" in refused(as_parquet(tmp_path, table), of_texts())


@FORMATS
def test_targets_are_never_missing(tmp_path: Path, write: Write) -> None:
    spec = of_table(missing="mean", target=Target.VALUES, outputs=1, targets=("score",))
    text = refused(write(tmp_path, {**ROWS, "score": [1.5, None, 2.0]}), spec)
    assert "column 'score': the cell is empty" in text


@FORMATS
def test_classes_with_names_are_not_given_by_number(tmp_path: Path, write: Write) -> None:
    text = refused(write(tmp_path, ROWS), of_table(names=("well", "ill")))
    assert "column 'label': class '0' is not allowed: it must be one of 'well, ill'" in text


def test_another_word_of_a_class_has_an_example_with_the_classes(tmp_path: Path) -> None:
    table = {**ROWS, "label": ["well", "krank", "ill"]}
    text = refused(as_csv(tmp_path, table), of_table(names=("well", "ill")))
    assert text.endswith('as in words = { "krank" = "well" } or { "krank" = "ill" }')


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine.xlsx", "; save the sheet as CSV"),
        ("Mine.ODS", "; save the sheet as CSV"),
        ("mine.tsv", r'; if it is a table, say in [file] of a data file format = "csv" and separator = "\t"'),
        ("mine.txt", '; if it is a table, say in [file] of a data file format = "csv" and separator = ","'),
        ("mine.bin", "one table (.csv, .csv.gz, .parquet)"),
    ],
)
def test_a_table_in_another_form_says_what_to_do(tmp_path: Path, name: str, said: str) -> None:
    assert refused(written(tmp_path / name, "age\t1"), of_table()).endswith(said)


@FORMATS
def test_labels_that_are_refused(tmp_path: Path, write: Write) -> None:
    spec = of_table(target=Target.LABELS, outputs=1, targets=("label",))
    assert "label '2' is not allowed: it must be 0 or 1" in refused(write(tmp_path, changed("label", 2)), spec)


@FORMATS
def test_a_row_without_a_text_is_refused(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, {"text": ["a", " "], "label": [0, 1]})
    assert "column 'text': the text is empty; fill it or delete the row" in refused(path, of_texts())


# ---------------------------------------------------------------- tables that are refused


@FORMATS
def test_a_missing_column(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, {"Age": [1], "mass": [1], "stage": ["I"], "label": [0]})
    text = refused(path, of_table())
    assert f"{path} has no column 'age' (did you mean 'Age'?): add it, or say in [columns]" in text
    assert "; its columns are 'Age, mass, stage, label'" in text


@FORMATS
def test_a_table_without_rows(tmp_path: Path, write: Write) -> None:
    assert "contains no examples" in refused(write(tmp_path, {name: [] for name in ROWS}), of_table())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty: its first row must have the names of the columns"),
        (
            "age;mass;stage;label\n50;70;I;0\n",
            "no column 'age': its header has no comma but ';'; separate columns by commas, or",
        ),
        ("age\tmass\tstage\tlabel\n", r"no comma but '\t'"),
        ("50,70,I,0\n", "have no header: 3 of the 4 cells of its first row are numbers or dates"),
        (
            'P0,01.01.1949,divers,"0,78"\n',
            "have no header: 2 of the 4 cells of its first row are numbers or dates",
        ),
        ('P0,x,01.01.1949,divers,a,"0,78",b,c\n', 'as in header = ["age", "sex"], with 8 names'),
        ("-1.5,\N{MINUS SIGN}2,x,y\n", "have no header: 2 of the 4 cells"),
        ("Age,mass,stage,label\n", "has no column 'age' (did you mean 'Age'?)"),
        ("2019,stage,label,mass,age2\n", "has no column 'age'"),
        ("age,mass,stage,label,age\n1,1,I,0,1\n", "has 2 columns 'age'; give each column another name"),
        ("age,mass,stage,label\n1,1,I,0\n1,1,I\n", "line 3 has 3 cells, but the header has 4 columns"),
        ("age,mass,stage,label\n1,1,I,0,5\n", "line 2 has 5 cells"),
        (
            'age,mass,stage,label\n1,1,I,0\n1,1,"I,0\n',
            "after line 2: damaged or truncated (a quotation mark is not closed; within a cell it is written",
        ),
        (b"age,mass,stage,label\n1,1,\xe4,0\n", "the bytes are not UTF-8; write the file again, as UTF-8"),
        (
            b"\xff\xfea\x00",
            "mine.csv: the bytes are not UTF-8; it is UTF-16: say so in the data file, as in encoding = "
            '"utf-16" in [file]',
        ),
    ],
)
def test_a_csv_file_that_is_refused(tmp_path: Path, content: str | bytes, said: str) -> None:
    assert said in refused(written(tmp_path / "mine.csv", content), of_table())


def test_a_damaged_packed_file(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.csv.gz", gzip.compress(text_of(ROWS).encode())[:-9])
    assert f"{path} is damaged or cannot be read" in refused(path, of_table())
    assert "is damaged or cannot be read: Not a gzipped file" in refused(written(path, text_of(ROWS)), of_table())


def test_a_file_that_the_system_does_not_give_is_not_to_be_written_again(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        list(csv_rows.rows(tmp_path / "none.csv", "write the file again, as UTF-8"))
    assert str(caught.value) == f"{tmp_path / 'none.csv'} cannot be read: No such file or directory"


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    path = as_parquet(tmp_path, ROWS)
    whole = path.read_bytes()
    for content in (b"", b"age,mass\n", whole[:-20], whole[:40] + bytes(60) + whole[100:]):
        assert f"{path} is damaged or not a Parquet file" in refused(written(path, content), of_table())


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = as_parquet(tmp_path, ROWS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert f"{path} needs the package pyarrow" in refused(path, of_table())


def test_columns_of_another_type_in_parquet(tmp_path: Path) -> None:
    text = refused(as_parquet(tmp_path, {**ROWS, "age": [[1, 2], [3], [4]]}), of_table())
    assert "column 'age': its type 'list<element: int64>' is no number and no text" in text


# ---------------------------------------------------------------- tasks that do not fit themselves


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            replace(SPECS[Kind.TABLE], reading=Reading()),
            "does not name the columns of a table, so this node needs",
        ),
        (of_table(columns=("age",)), "the task's columns give 1 numbers, but its examples have 5"),
        (of_table(targets=("a", "b")), "the task names 2 columns of targets, but needs 1"),
        (of_table(target=Target.VALUES, targets=("a",)), "the task names 1 columns of targets, but needs 2"),
    ],
)
def test_a_task_that_does_not_say_how_a_table_is_read(tmp_path: Path, spec: Spec, said: str) -> None:
    path = as_csv(tmp_path, ROWS)
    with pytest.raises(ConfigError, match=said):
        own_files.load(path, spec)


def test_how_a_column_is_written() -> None:
    assert Column.parse(" stage = I | II ") == Column("stage", ("I", "II"))
    assert [column.width for column in parsed(["age", "sex=f|m", "one=x"])] == [1, 2, 1]


@pytest.mark.parametrize("text", ["", " ", "=a|b", "sex=", "sex=f|", "sex=f|f", "sex=f| f"])
def test_a_column_that_is_not_possible(text: str) -> None:
    with pytest.raises(ConfigError, match="is not allowed: it must be NAME, or NAME=first"):
        Column.parse(text)


def test_a_column_that_is_there_twice() -> None:
    with pytest.raises(ConfigError, match="column 'age' is given 2 times"):
        parsed(["age", "mass", "age=1|2"])


def test_the_layouts_of_tables_are_the_readers_own() -> None:
    assert table_file.SUFFIXES == (".csv", ".csv.gz", ".parquet")
