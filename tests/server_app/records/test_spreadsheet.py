"""Names in CSV files are text for a spreadsheet, also those that clients chose."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.results.formats import Sheet, sheet_csv
from server_app.records.spreadsheet import inert
from server_app.records.spreadsheet import line as csv_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("test/accuracy", "test/accuracy"),
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "\\t=1"),
        ("\r=1", "\\r=1"),
        ("a\n=1", "a\\n=1"),
        ("x;=1", "x;'=1"),
        ("x,=1", "x,'=1"),
        ("＝1", "'＝1"),
        ("\x00\x1b[31m", "\\x00\\x1b[31m"),
        ("\ud800", "\\ud800"),
        ("\u202egpj", "\\u202egpj"),
        ("", ""),
        ("a-b", "a-b"),
    ],
)
def test_a_formula_becomes_text(text: str, shown: str) -> None:
    assert inert(text) == shown


@given(st.text())
def test_no_cell_begins_a_formula(text: str) -> None:
    line = csv_line([inert(text), 1])
    for separator in ",;\t":
        for cell, *_ in csv.reader(io.StringIO(line), delimiter=separator):
            assert cell[:1] not in tuple("=+-@\t\r＝＋－＠")
    assert inert(text).isprintable()
    assert inert(inert(text)) == inert(text)


def test_numbers_in_a_table_stay_numbers() -> None:
    assert sheet_csv(Sheet(["=a", "b"], [["+x", -0.5], [None, 1e-9]])) == "'=a,b\n'+x,-0.5\n,1e-09"
