"""Categories and classes that are numbers, however a program has written them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from heart_tables import PUBLISHED, published
from hypothesis import given
from hypothesis import strategies as st
from own_files import of_images, of_table
from PIL import Image

from fedstride.errors import ConfigError, DataError
from fedstride.tasks import own_files
from fedstride.tasks.data_toml.dictionary_file import read_columns
from fedstride.tasks.datasets.nodes import own_table
from fedstride.tasks.forms.columns import Column, alike
from fedstride.tasks.inputs import Inputs, Kind


@pytest.mark.parametrize(
    ("written", "one"),
    [
        ("1.0", "1"),
        ("1.00", "1"),
        ("1.", "1"),
        (" 2.0 ", "2"),
        ("-9.0", "-9"),
        ("-0.0", "0"),
        ("10.0", "10"),
        ("1.50", "1.5"),
        ("0.250", "0.25"),
        ("250.00", "250"),
    ],
)
def test_texts_of_one_number(written: str, one: str) -> None:
    assert alike(written) == alike(one) == one


@pytest.mark.parametrize(
    "text", ["01", "01.0", "1e3", "+1.0", "1,0", ".5", "1.0.0", "v1.0", "1.0 mg", "", "-", "٣.0"]
)
def test_other_texts_are_themselves(text: str) -> None:
    assert alike(text) == text


@given(st.integers(-(10**15), 10**15))
def test_what_pandas_makes_of_a_whole_number_is_that_number(number: int) -> None:
    assert alike(str(float(number))) == str(number) == alike(str(number))


@given(st.decimals(-1000, 1000, places=3), st.decimals(-1000, 1000, places=3))
def test_plain_decimals_are_alike_if_they_are_equal(one: Any, other: Any) -> None:
    assert (alike(str(one)) == alike(str(other))) == (one == other)


CODED = {"columns": ("age", "pain=1|2|3"), "targets": ("ill",), "names": ("0", "1")}


def spec(**more: Any) -> Any:
    return of_table(**{"inputs": Inputs(Kind.TABLE, (4,)), **CODED, **more})


def test_a_column_with_gaps_that_pandas_wrote(tmp_path: Path) -> None:
    """As CSV and as Parquet, and beside a site without gaps."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [50, 60, 70], "pain": [1, 3, None], "ill": [0.0, 1.0, 1.0]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    (tmp_path / "whole.csv").write_text("age,pain,ill\n50,1,0\n60,3,1\n70,,1\n")
    read = [own_files.load(tmp_path / name, spec(missing="mean")) for name in ("a.csv", "a.parquet", "whole.csv")]
    for each in read:
        np.testing.assert_array_equal(each.x, read[2].x)
        assert each.y.tolist() == [0, 1, 1]
    assert read[0].x[:2, 1:].tolist() == [[1, 0, 0], [0, 0, 1]]


def test_a_file_that_is_written_again_holds_out_the_same_rows(tmp_path: Path) -> None:
    """One more row has a gap, so pandas writes all other numbers of its column in another way."""
    whole = [(20 + n, 1 + n % 3, n % 2) for n in range(50)]
    (tmp_path / "a.csv").write_text("age,pain,ill\n" + "".join(f"{a},{p},{i}\n" for a, p, i in whole))
    (tmp_path / "b.csv").write_text(
        "age,pain,ill\n" + "".join(f"{a},{p}.0,{i}\n" for a, p, i in whole) + "99,,1\n"
    )
    one, other = (own_files.load(tmp_path / name, spec(missing="mean")).draws(0) for name in ("a.csv", "b.csv"))
    assert one.tolist() == other[:50].tolist()


@pytest.mark.parametrize("names", [("1.0", "2.0", "3.0"), ("1", "2.00", "3.")])
def test_a_task_may_write_them_in_any_way(tmp_path: Path, names: tuple[str, ...]) -> None:
    (tmp_path / "a.csv").write_text("age,pain,ill\n50,1,0\n60,3.0,1.0\n")
    found = own_files.load(tmp_path / "a.csv", spec(columns=("age", f"pain={'|'.join(names)}")))
    assert found.x[:, 1:].tolist() == [[1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("cell", ["01", "1e0", "+1", "1.01", "one"])
def test_another_text_is_refused(tmp_path: Path, cell: str) -> None:
    (tmp_path / "a.csv").write_text(f"age,pain,ill\n50,{cell},0\n")
    with pytest.raises(DataError, match="line 2, column 'pain': category"):
        own_files.load(tmp_path / "a.csv", spec())


def test_codes_with_a_zero_are_others(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age,pain,ill\n50,01,0\n60,1.0,1\n")
    found = own_files.load(tmp_path / "a.csv", spec(columns=("age", "pain=1|01|2")))
    assert found.x[:, 1:].tolist() == [[0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("pair", ["1|1.0", "2.50|2.5", "0|-0.0"])
def test_one_number_twice_is_no_list_of_categories(pair: str) -> None:
    with pytest.raises(ConfigError, match=r"1 and 1\.0 are one"):
        Column.parse(f"pain={pair}")
    with pytest.raises(ValueError, match=r"1 and 1\.0 are one"):
        read_columns({"pain": pair.split("|")}, [])
    with pytest.raises(ConfigError, match=r"1 and 1\.0 are one"):
        own_table(columns=["age"], classes=pair.split("|"))


def test_the_data_file_of_a_site_and_a_task_agree_however_they_are_written() -> None:
    said = read_columns({"age": "number", "pain": ["1.0", "2.0", "3.0"], "ill": ["0", "1.0"]}, ["ill"])
    said.check(spec())
    with pytest.raises(ConfigError, match="pain"):
        said.check(spec(columns=("age", "pain=01|2|3")))


def test_folders_that_are_named_by_numbers(tmp_path: Path) -> None:
    for name in ("7.0", "3"):
        (tmp_path / name).mkdir()
        Image.new("L", (5, 4), int(float(name))).save(tmp_path / name / "a.png")
    from dataclasses import replace

    found = own_files.load(tmp_path, replace(of_images(classes=2), names=("3", "7")))
    assert (found.y.tolist(), found.x[:, 0, 0, 0].tolist()) == ([0, 1], [3, 7])


@published
def test_hospitals_that_write_them_differently() -> None:
    """Cleveland has `1.0` where the other hospitals of the heart-disease data have `1`."""
    pain = {}
    for site in ("cleveland", "hungarian", "switzerland", "va"):
        rows = (PUBLISHED / f"processed.{site}.data").read_text().split()
        pain[site] = {row.split(",")[2] for row in rows}
    assert len(set().union(*pain.values())) > 4
    assert set().union(*({alike(cell) for cell in found} for found in pain.values())) == {"1", "2", "3", "4"}
