"""Tables as sites have them, with a `data.toml` that says how they are written: read as the task writes them."""

from __future__ import annotations

import json
import unicodedata
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_files import of_table, written

from fedstride.errors import ConfigError, DataError
from fedstride.tasks import own_files
from fedstride.tasks.data_toml.file_form import ColumnInFile, FileForm
from fedstride.tasks.data_toml.site import SiteData, read_site
from fedstride.tasks.datasets.nodes import own_table
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.own_files.tables.translated import as_task

TASK = of_table(columns=("age", "sex=female|male", "crp"), inputs=Inputs(Kind.TABLE, (4,)), missing="mean")
PLAIN = "age,sex,crp,label\n63,male,14.5,1\n41.5,female,,0\n1200,female,3,1\n"
SAID = """
targets = ["label"]
[columns]
label = { least = 0, most = 1, whole = true }
"""


@pytest.fixture(autouse=True)
def _fresh(own_cache: Path) -> None:
    """Every test has its own empty cache."""


def read(folder: Path, content: str | bytes, said: str, name: str = "mine.csv") -> Any:
    folder.mkdir(exist_ok=True)
    written(folder / name, content)
    written(folder / "data.toml", f'path = "{name}"\nsplit_seed = 0\n{said}')
    return own_files.load(folder / "data.toml", TASK)


def same(found: Any, tmp_path: Path, x: list[list[float]] | None = None) -> None:
    want = own_files.load(written(tmp_path / "plain.csv", PLAIN), TASK)
    np.testing.assert_array_equal(found.x, want.x if x is None else np.array(x, np.float32))
    np.testing.assert_array_equal(found.y, want.y)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (PLAIN.replace(".", "#").replace(",", ";").replace("#", ","), 'separator = ";"\ndecimal = ","'),
        ("age\tsex\tcrp\tlabel\n63\tmale\t14,5\t1\n41,5\tfemale\t-9\t0\n1.200\tfemale\t3\t1\n",
         'separator = "\\t"\ndecimal = ","\nthousands = "."\nmissing = ["-9"]'),
        (PLAIN.partition("\n")[2].replace(",,", ",?,"),
         'header = ["age", "sex", "crp", "label"]\nmissing = ["?"]'),
        (PLAIN.encode("utf-16"), 'encoding = "utf-16"'),
        (PLAIN.replace(",,", ",0.0,"),
         '[columns]\nage = { empty = true }\ncrp = { missing = ["0"], empty = true }\n'
         'sex = { categories = ["female", "male"], empty = true }\nlabel = { least = 0, most = 1, whole = true }'),
        (PLAIN.replace(",,", ",n/a,").replace("1200", "1|200"), 'thousands = "|"\nmissing = ["n/a"]'),
    ],
)  # fmt: skip
def test_separators_numbers_headers_and_missing_cells(tmp_path: Path, content: str | bytes, said: str) -> None:
    begin = 'targets = ["label"]\n' if "[columns]" in said else "[file]\n"
    same(read(tmp_path / "site", content, f"{begin}{said}"), tmp_path)


def test_names_words_units_and_an_encoding_of_its_own(tmp_path: Path) -> None:
    content = "Alter;Geschlecht;Entzündung;Größe\n63;m;1,45;1\n41,5;w;;0\n1200;W ;0,3;1\n".replace("W ", "w ")
    said = """
targets = ["label"]
[file]
separator = ";"
decimal = ","
encoding = "latin-1"
[columns]
age = { from = "Alter", least = 0, most = 2000, empty = true }
sex = { from = "Geschlecht", categories = ["female", "male"], words = { w = "female", m = "male" }, empty = true }
crp = { from = "Entzündung", factor = 10, least = 0, empty = true }
label = { from = "Größe", least = 0, most = 1, whole = true }
"""
    same(read(tmp_path / "site", content.encode("latin-1"), said), tmp_path)


def test_a_column_that_a_site_does_not_have(tmp_path: Path) -> None:
    content = "age,sex,label\n63,male,1\n41.5,female,0\n1200,female,1\n"
    said = (
        'targets = ["label"]\n[columns]\nage = { empty = true }\ncrp = { absent = true }\n'
        'sex = { categories = ["female", "male"], empty = true }\nlabel = { least = 0, most = 1, whole = true }\n'
    )
    nan = float("nan")
    same(read(tmp_path / "site", content, said), tmp_path, [[63, 0, 1, nan], [41.5, 1, 0, nan], [1200, 1, 0, nan]])


def test_dates_become_days_and_years(tmp_path: Path) -> None:
    content = (
        "born,sex,seen,label\n31.12.1960,male,03.01.2020,1\n,female,31.12.2019,0\n01.01.2000,male,01.01.2020,1\n"
    )
    said = (
        'targets = ["label"]\n[columns]\n'
        'age = { from = "born", date = "%d.%m.%Y", years_until = "2020-01-01", empty = true }\n'
        'crp = { from = "seen", date = "%d.%m.%Y", days_since = "2020-01-01", empty = true }\n'
        'sex = { categories = ["female", "male"], empty = true }\nlabel = { least = 0, most = 1, whole = true }\n'
    )
    found = read(tmp_path / "site", content, said)
    np.testing.assert_allclose(found.x[:, 0], [59.0018, np.nan, 19.9999], atol=1e-3)
    np.testing.assert_array_equal(found.x[:, 3], [2, -1, 0])


@pytest.mark.parametrize(
    ("content", "said", "words"),
    [
        (PLAIN, '[file]\ndecimal = ","', r"line 3, column 'age': .41\.5 \(in this file, decimal = ','\)"),
        (PLAIN.replace("14.5", "1.4.5"), "", "line 2, column 'crp': '1.4.5' is not a number; .*or say in"),
        ("age;sex;crp;label\n1;male;2;0\n", "", r"its header has no comma but ';'.*separator = \";\" in \[file\]"),
        ("age\tsex\tcrp\tlabel\n", "", r'its header has no comma but .*write separator = "\\t" in \[file\]'),
        (PLAIN, '[file]\nseparator = ";"', "not the separator that the data file says, but ','; remove separator"),
        ("1,male,2,0\n", '[file]\nheader = ["age", "sex", "crp", "label"]\nseparator = ";"',
         'line 1 has 1 cell, but the header has 4 columns; it has no .;. but .,.: write separator = "," in'),
        ("1 male 2 0\n", '[file]\nheader = ["age", "sex", "crp", "label"]',
         "line 1 has 1 cell, .*the separator is ',': if it is another one, say so in"),
        ("Zürich".encode("latin-1"), "", "are not UTF-8; write the file again, as UTF-8, or say its encoding"),
        (PLAIN.encode("utf-16"), "", 'not UTF-8; it is UTF-16: say so in the data file, as in enc'),
        (PLAIN.replace("female", '"female', 1), "", "after line 2: damaged .*a quotation mark is not closed"),
        (PLAIN.replace("63", "old"), "", "'old' is not a number; .*words are named in the run, as in task"),
        (PLAIN, '[file]\nheader = ["age", "sex"]', "no column 'crp'"),
        ("1,male,2,0\n", '[file]\nheader = ["age", "sex", "crp", "label", "more"]',
         "line 1 has 4 cells, but the header has 5 columns"),
        ("1,male,12.34.567,0\n", '[file]\nheader = ["age", "sex", "crp", "label"]\nthousands = "."\ndecimal = ","',
         "12.34.567"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_line_with_what_to_write(
    tmp_path: Path, content: str | bytes, said: str, words: str
) -> None:
    with pytest.raises(DataError, match=words) as raised:
        read(tmp_path / "site", content, said)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("[file]\nseperator = ';'", "'seperator' is not a key; allowed are format, separator"),
        ("[file]\nseparator = ';;'", "separator = ';;' must be one character"),
        ("[file]\nseparator = 'x'", "separator = 'x' must be one character"),
        ("[file]\nseparator = 3", "separator = 3 must be one character"),
        ("[file]\ndecimal = ';'", "decimal = ';' is not allowed"),
        ("[file]\ndecimal = ','\nthousands = ','", "thousands and decimal are both ','"),
        ("[file]\nencoding = 'utf-9'", "encoding = 'utf-9' is not known"),
        ("[file]\nencoding = 'base64'", "encoding = 'base64' is not known"),
        ("[file]\nheader = ['a', 'a']", "header has a text twice"),
        ("[file]\nmissing = 'NA'", "missing = 'NA' must be a list"),
        ("[file]\nformat = 'xlsx'", "format = 'xlsx' is not allowed"),
        ("file = 3", r"\[file\] must be a table"),
        ("targets = []\n[columns]\na = { factor = 0 }", "column 'a': factor = 0 is not allowed"),
        ("targets = []\n[columns]\na = { factor = 'ten' }", "column 'a': factor = 'ten' must be a number"),
        ("targets = []\n[columns]\na = { date = 'day' , days_since = '2020-01-01' }", "date must say how"),
        ("targets = []\n[columns]\na = { date = '%d.%m.%Y' }", "needs one of days_since and years_until"),
        ("targets = []\n[columns]\na = { date = '%Y', days_since = '1.1.2020' }", "'1.1.2020' is not a date"),
        ("targets = []\n[columns]\na = { from = '' }", "from = '' must be the name"),
        ("targets = []\n[columns]\na = { words = ['w'] }", "words must be a table"),
        ("targets = []\n[columns]\na = { absent = true, factor = 2 }", "absent = true excludes"),
        ("targets = []\n[columns]\na = { missing = '0' }", "column 'a': missing = '0' must be a list"),
        ("targets = []\n[columns]\na = { absent = 'no' }", "absent = 'no' must be true or false"),
        ("targets = ['a']\n[columns]\na = { absent = true }", "'a' cannot be predicted"),
    ],
)
def test_what_a_data_file_cannot_say(tmp_path: Path, said: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(tmp_path / "site", PLAIN, said)


@pytest.mark.parametrize("name", ["mine.parquet", "mine.npz", "scans"])
def test_the_form_of_text_is_not_said_of_other_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"\[file\]"):
        read(tmp_path / "site", "", "[file]\nseparator = ';'", name)


def test_a_site_keeps_its_form_on_its_way_to_a_process(tmp_path: Path) -> None:
    said = (
        "targets = []\n[file]\nseparator = ';'\nmissing = ['?']\nheader = ['a', 'b']\n"
        "[columns]\nx = { from = 'a', words = { one = '1' } }\n"
    )
    written(tmp_path / "mine.csv", PLAIN)
    site = read_site(written(tmp_path / "data.toml", f'path = "mine.csv"\nsplit_seed = 1\n{said}'))
    assert site.form != FileForm()
    assert SiteData.of_plain(json.loads(json.dumps(site.plain()))) == site


ACCENTS = "Größe,Geschlecht,Diagnose\n1.5,männlich,bösartig\n2.5,weiblich,gutartig\n3.5,männlich,gutartig\n"


def test_a_key_with_other_letters_needs_quotation_marks(tmp_path: Path) -> None:
    """As TOML has it; its own words for this are hard to understand."""
    for line, hint in (("Größe = {}", True), ('"Größe" = {', False), ("age = ü", False), ("# Größe\nage", False)):
        file = written(tmp_path / "data.toml", f"path = 'x.csv'\n[columns]\n{line}\n")
        with pytest.raises(ConfigError, match="is not TOML") as raised:
            read_site(file)
        assert ('needs quotation marks, as in "Größe" = {' in str(raised.value)) is hint, line


@pytest.mark.parametrize("of_file", ["NFC", "NFD"])
@pytest.mark.parametrize("of_run", ["NFC", "NFD"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("said", ["", "translated"])
def test_letters_with_accents_are_one_text_however_they_are_written(
    tmp_path: Path, of_file: Any, of_run: Any, suffix: str, said: str
) -> None:
    """macOS writes a letter and its accent as two characters (NFD); on a screen both are the same."""
    typed = partial(unicodedata.normalize, of_run)
    spec = own_table(
        columns=[typed("Größe"), typed("Geschlecht=männlich|weiblich")],
        target="Diagnose",
        classes=[typed("gutartig"), typed("bösartig")],
        missing=[typed("Größe=mean")],
    ).spec
    content = ACCENTS.replace("Größe", "Höhe").replace("gutartig", "gütig") if said else ACCENTS
    rows = [line.split(",") for line in unicodedata.normalize(of_file, content).splitlines()]
    path = tmp_path / f"mine{suffix}"
    table = pd.DataFrame(rows[1:], columns=rows[0])
    table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path)
    file = f'path = "mine{suffix}"\nsplit_seed = 0\ntargets = ["Diagnose"]\n[columns]\n'
    file += '"Größe" = { from = "Höhe", empty = true }\n' if said else '"Größe" = { empty = true }\n'
    file += 'Geschlecht = { categories = ["männlich", "weiblich"] }\n'
    words = ', words = { "gütig" = "gutartig" }' if said else ""
    file += f'Diagnose = {{ categories = ["gutartig", "bösartig"]{words} }}\n'
    written(tmp_path / "data.toml", file)
    found = own_files.load(tmp_path / "data.toml", spec)
    assert found.x.tolist() == [[1.5, 1.0, 0.0], [2.5, 0.0, 1.0], [3.5, 1.0, 0.0]] and found.y.tolist() == [
        1,
        0,
        0,
    ]


@pytest.mark.parametrize("is_number", [True, False])
@pytest.mark.parametrize("other", [(), (("m", "male"),)])
def test_a_rule_for_one_word_changes_no_other_cell(other: tuple[tuple[str, str], ...], is_number: bool) -> None:
    cells = ["nan", "", "f"]
    assert list(as_task(cells, FileForm(), ColumnInFile(words=other), is_number=is_number)) == cells
    word = ColumnInFile(words=(*other, ("nan", "sodium")))
    assert as_task(["nan"], FileForm(missing=("nan",)), word, is_number=False) == ["sodium"]


@given(st.floats(-1e12, 1e12).map(lambda value: round(value, 4)))
def test_numbers_in_any_form_are_the_same_number(value: float) -> None:
    texts: list[tuple[FileForm, str]] = [
        (FileForm(), f"{value:.4f}"),
        (FileForm(decimal=","), f"{value:.4f}".replace(".", ",")),
        (FileForm(thousands=","), f"{value:,.4f}"),
        (
            FileForm(decimal=",", thousands="."),
            f"{value:,.4f}".replace(",", "#").replace(".", ",").replace("#", "."),
        ),
        (FileForm(decimal=",", thousands=" "), f"{value:,.4f}".replace(",", " ").replace(".", ",")),
    ]
    for form, text in texts:
        [found] = as_task([text], form, ColumnInFile(), is_number=True)
        assert float(found) == float(f"{value:.4f}")
        [scaled] = as_task([text], form, ColumnInFile(factor=2.0, offset=1.0), is_number=True)
        twice = float(f"{value:.4f}") * 2.0 + 1.0
        assert abs(float(scaled) - twice) <= np.spacing(abs(twice))  # from the digits, so rounded once


@pytest.mark.parametrize(
    ("cell", "date", "words"),
    [
        (
            "12 %",
            "%Y-%m-%d",
            r"'12 %' is no date of the form date = '%Y-%m-%d', .*; write it so, or if it is no value",
        ),
        ("1.2.2003", "%Y-%m-%d", r'\'1.2.2003\' is no date .* say date = "%d.%m.%Y" of its column'),
        ("n/a", "%d.%m.%Y", r'if it is no value, missing = \["n/a"\] of its column'),
    ],
)
def test_a_cell_that_is_no_date_as_said(tmp_path: Path, cell: str, date: str, words: str) -> None:
    columns = f'[columns]\nage = {{ date = "{date}", years_until = "2026-01-01" }}\nsex = ["female", "male"]\n'
    said = f'targets = ["label"]\n{columns}crp = "number"\nlabel = {{ least = 0, most = 1, whole = true }}'
    with pytest.raises(DataError, match=words) as raised:
        read(tmp_path / "site", PLAIN.replace("63,", f"{cell},", 1), said)
    assert "not a number" not in str(raised.value)


def test_an_empty_cell_that_the_site_does_not_allow_says_the_key_of_the_site(tmp_path: Path) -> None:
    said = """targets = ["label"]
[columns]
age = "number"
sex = ["female", "male"]
crp = "number"
label = { least = 0, most = 1, whole = true }
"""
    with pytest.raises(DataError, match="or write empty = true of its column in the data file"):
        read(tmp_path / "site", PLAIN, said)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("{ facter = 10 }", "'facter' is not allowed here .did you mean 'factor'.*: a column of this kind has "
         "least, "
         "most, whole, empty, samples, from, words, unit, factor, offset, date, days_since, years_until, missing, "
         "absent"),
        ('{ categories = ["a"], least = 1 }', "'least' is not allowed here.* has categories, empty, from, words"),
        ("{ text = true, wholes = true }", "'wholes' is not allowed here.* has text, empty, from"),
    ],
)  # fmt: skip
def test_the_keys_of_a_column_are_all_named(tmp_path: Path, column: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(tmp_path / "site", PLAIN, f'targets = ["label"]\n[columns]\nage = {column}\nlabel = ["a", "b"]')


def test_a_run_that_takes_no_missing_cells_is_told_the_key_of_its_task(tmp_path: Path) -> None:
    written(tmp_path / "mine.csv", PLAIN)
    columns = 'age = { empty = true }\nsex = ["female", "male"]\ncrp = "number"\n'
    label = "label = { least = 0, most = 1, whole = true }"
    said = f'split_seed = 0\ntargets = ["label"]\n[columns]\n{columns}{label}'
    written(tmp_path / "data.toml", f'path = "mine.csv"\n{said}')
    task = of_table(columns=("age", "sex=female|male", "crp"), inputs=Inputs(Kind.TABLE, (4,)))
    with pytest.raises(ConfigError, match=r"^task\.missing: 'error' is not what .* mean or median") as raised:
        own_files.load(tmp_path / "data.toml", task)
    assert raised.value.key == "reading.missing"  # of the message, of which a node tells the server
