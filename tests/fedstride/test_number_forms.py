"""Numbers as they are written in the world: understood, or refused with what a site's data file must say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_files import of_table, written

from fedstride.errors import ConfigError, DataError
from fedstride.tasks import own_files
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.own_files.tables.number_formats import with_point

TASK = of_table(columns=("mass",), inputs=Inputs(Kind.TABLE, (1,)))


@pytest.fixture(autouse=True)
def _fresh(own_cache: Path) -> None:
    """Every test has its own empty cache."""


def read(folder: Path, cell: str, file: str = "", column: str = "") -> float:
    quoted = '"' + cell.replace('"', '""') + '"'
    separated = f"mass,label\n{quoted},1\n0,0\n"
    written(folder / "mine.csv", separated)
    columns = f"[columns]\nmass = {{ {column} }}\nlabel = {{ least = 0, most = 1, whole = true }}\n"
    begin = 'targets = ["label"]\n' if column else ""
    said = f"{begin}[file]\n{file}\n{columns if column else ''}"
    found = own_files.load(written(folder / "data.toml", f'path = "mine.csv"\nsplit_seed = 0\n{said}'), TASK)
    return float(found.x[0, 0])


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("+3", 3), ("5e-3", 0.005), ("-2.5E+2", -250), (".5", 0.5), ("7.", 7), ("\u22123.25", -3.25),
        ("\u00a041.5\u202f", 41.5), ('"12.5"', 12.5), ("'12.5'", 12.5), ("\u201c 8 \u201d", 8),
        ("\u00ab6\u00bb", 6),
        ("+\u00a0", None), ("\u2212", None),
    ],
)  # fmt: skip
def test_what_is_understood_without_a_word(tmp_path: Path, cell: str, value: float | None) -> None:
    if value is None:
        with pytest.raises(DataError, match="is not a number"):
            read(tmp_path, cell)
        return
    assert read(tmp_path, cell) == np.float32(value)


@pytest.mark.parametrize(
    ("cell", "file", "value"),
    [
        ("1 234,5", 'decimal = ","\nthousands = " "', 1234.5),
        ("1\u00a0234\u202f567,25", 'decimal = ","\nthousands = " "', 1234567.25),
        ("1'234.5", 'thousands = "\'"', 1234.5),
        ("\u22121\u2019234.5", 'thousands = "\'"', -1234.5),
        ("1.234,5", 'decimal = ","\nthousands = "."', 1234.5),
        ("2,5e-3", 'decimal = ","', 0.0025),
        (",5", 'decimal = ","', 0.5),
        ("12.345.678", 'decimal = ","\nthousands = "."', 12345678),
    ],
)
def test_what_is_understood_as_the_file_says(tmp_path: Path, cell: str, file: str, value: float) -> None:
    assert read(tmp_path, cell, file) == np.float32(value)


@pytest.mark.parametrize(
    ("cell", "column", "value"),
    [
        ("12 %", 'unit = "%"', 12),
        ("12%", 'unit = "%", factor = 0.01', 0.12),
        ("81.5\u00a0kg", 'unit = "kg"', 81.5),
        ("7", 'unit = "mm Hg"', 7),
        ("120 mm Hg", 'unit = "mm Hg"', 120),
        ("24.5 kg/m2", 'unit = "kg/m2"', 24.5),
        ("<5", 'words = { "<5" = "2.5" }', 2.5),
    ],
)
def test_what_is_understood_as_its_column_says(tmp_path: Path, cell: str, column: str, value: float) -> None:
    assert read(tmp_path, cell, column=column) == np.float32(value)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("3 500,25", r'say in \[file\] of the data file decimal = "," and thousands = " "'),
        ("3.500.000", r'decimal = "," and thousands = "\."'),
        ("3.500,25", r'decimal = "," and thousands = "\."'),
        ("3,500.25", r'thousands = ","'),
        ("3'500'000.5", 'thousands = "\'"'),
        ("3,500", r'decimal = "," or thousands = ","'),  # which of the two it is, only the site knows
        ("\u22120,25", r'decimal = ","'),
        ("44 %", r'say unit = "%" of its column'),
        ("61.5 \u00b5mol/l", 'say unit = "\u00b5mol/l" of its column'),
        ("61,5 mg", r'say unit = "mg" of its column in the data file, and in \[file\] decimal = ","'),
        ("< 0.3", r'words = { "<5" = "2.5" } or missing = \["<5"\]'),
        ("\u2265 90", "say what such a cell stands for"),
        ("31.12.1999", r"if it is a date, say so of its column, as in { date = "),
        ("1999-12-31 10:15", 'date = "%Y-%m-%d %H:%M", days_since'),
        ("1990-02-03", 'date = "%Y-%m-%d", days_since'),
        ("03.02.1990", r'date = "%d.%m.%Y", days_since'),
        ("03/02/1990", 'date = "%d/%m/%Y" or "%m/%d/%Y", days_since'),
        ("31/12/1990", 'date = "%d/%m/%Y", days_since'),
        ("?", r'a text that is no value belongs to missing, as in missing = \["\?"\] there'),
        ("n/a", r'missing = \["n/a"\] there'),
        ('say "no" to it', r'missing = \["WORD"\] there'),
        ("1_000", "a text that is no value belongs to missing"),
        ("12,34,567", "write it with a decimal point and without separators"),
        ("0x1F", "write it with a decimal point"),
        ("\u201312", "write it with a decimal point"),  # a dash
        ("twelve", "a text that is no value belongs to missing"),
        ("1.5.7", "write it with a decimal point"),
    ],
)
def test_what_is_refused_names_what_to_say(tmp_path: Path, cell: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as raised:
        read(tmp_path, cell)
    assert "line 2, column 'mass'" in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("cell", "file"),
    [("3.500", 'decimal = ","'), ("3 50", 'thousands = " "'), ("1.2345,6", 'decimal = ","\nthousands = "."'),
     ("1,2,3", 'decimal = ","')],
)  # fmt: skip
def test_what_is_not_as_the_file_says_is_no_number(tmp_path: Path, cell: str, file: str) -> None:
    with pytest.raises(DataError, match=r"\(in this file, decimal = "):
        read(tmp_path, cell, file)


@pytest.mark.parametrize(
    ("cell", "column", "said"),
    [
        ("85,8 kg", "", 'say unit = "kg" of its column in the data file'),
        ("85,8 kg", 'unit = "lb"', 'say unit = "kg" of its column in the data file'),
        ("12 %", "", 'say unit = "%" of its column in the data file'),
        (
            "1.234,5 mg",
            "",
            r'say unit = "mg" .* and in \[file\] decimal = "," and thousands',
        ),
        ("85.8", "", "write it with a decimal point and without separators|say in"),
        ("< 0,3", "", "say what such a cell stands for"),
        ("31.12.1999", "", "if it is a date"),
        ("eins, zwei", "", "a text that is no value belongs to missing"),
    ],
)
def test_what_to_say_where_the_file_says_a_part_already(tmp_path: Path, cell: str, column: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as raised:
        read(tmp_path, cell, 'decimal = ","', column)
    assert "in this file, decimal = ','" in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("unit", ['unit = ""', "unit = 5", 'unit = "1/min"'])
def test_what_no_unit_can_be(tmp_path: Path, unit: str) -> None:
    with pytest.raises(ConfigError, match=r"column 'mass': unit = .* must be what stands behind its numbers"):
        read(tmp_path, "5", column=unit)


@given(
    st.floats(-1e9, 1e9).map(lambda value: round(value, 3)), st.sampled_from(["\u00a0", "\u202f", " ", "\u2009"])
)
def test_what_a_message_suggests_reads_the_number(value: float, blank: str) -> None:
    """The form that is named for a text gives the number that the text was made of."""
    from fedstride.tasks.own_files.tables.number_formats import what_to_say

    for thousands, decimal in ((blank, ","), (".", ","), ("'", "."), ("\u2019", ",")):
        text = f"{value:,.3f}".replace(",", "#").replace(".", decimal).replace("#", thousands)
        ways = what_to_say(text).partition("of the data file ")[2].split(" or ")
        read_as = []
        for way in ways:
            said = dict(re.findall(r'(decimal|thousands) = "(.)"', way))
            found = with_point(text, said.get("decimal", "."), said.get("thousands", ""))
            read_as.append(None if found is None else float(found))
        if with_point(text) is None:
            assert float(f"{value:.3f}") in read_as
