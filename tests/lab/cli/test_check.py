"""`fedstride check` at the desk: tables with every fault that it is to find, and the published hospitals."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from heart_tables import PUBLISHED, published

from fedstride.errors import ConfigError, RunError
from lab.cli.check import check

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/heart"
TASK = [
    "task=own_table", "task.columns=['age','sex=f|m','crp','stage=I|II|III|IV']", "task.target=ill",
    "task.classes=[no,yes]", "task.missing=mean", "model=mlp", "partition=own",
]  # fmt: skip
NAMES = ("north", "east", "south", "west")

Change = Callable[[pd.DataFrame], pd.DataFrame]


def table(seed: int, n: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.normal(54, 9, n).round(),
            "sex": rng.choice(["f", "m"], n),
            "crp": rng.lognormal(2, 1, n).round(2),
            "stage": rng.choice(["I", "II", "III", "IV"], n, p=[0.4, 0.3, 0.2, 0.1]),
            "ill": rng.choice(["no", "yes"], n, p=[0.7, 0.3]),
        }
    )


def checked(overrides: list[str], folder: Path) -> int:
    """The exit code of the command, whose page is in this folder."""
    try:
        check(overrides, output=folder / "check.html")
    except typer.Exit as ended:
        return ended.exit_code
    return 0


@pytest.fixture
def asked(tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Any:
    def asks(changes: Mapping[str, Change], seed: int = 0, names: tuple[str, ...] = NAMES) -> tuple[str, str]:
        """What is printed, and the page, of sites that have these tables."""
        files = []
        for at, name in enumerate(names):
            found = changes.get(name, lambda each: each)(table(seed + at))
            files.append(tmp_path / f"{name}.csv")
            found.to_csv(files[-1], index=False)
        listed = ",".join(f"'{each}'" for each in files)
        overrides = [*TASK, f"clients={len(files)}", f"partition.files=[{listed}]", f"out='{tmp_path}'"]
        checked(overrides, tmp_path)
        return capsys.readouterr().out, (tmp_path / "check.html").read_text()

    return asks


def lines(printed: str) -> list[str]:
    return [each[2:] for each in printed.splitlines() if each.startswith("- ")]


def test_of_equal_sites_nothing_differs(asked: Any) -> None:
    printed, page = asked({})
    assert lines(printed) == [] and "nothing differs" in printed and "Nothing differs" in page
    assert re.search(r"rows +200 +200 +200 +200", printed)
    assert re.search(r"all can be read +yes +yes +yes +yes", printed)


UNITS = {"mg/dL": 0.1, "nmol/L": 9.52, "another decimal comma": 100.0}


@pytest.mark.parametrize("factor", UNITS.values(), ids=UNITS)
@pytest.mark.parametrize("seed", [0, 50])
def test_another_unit_is_found_and_said(asked: Any, factor: float, seed: int) -> None:
    printed, page = asked({"east": lambda each: each.assign(crp=each.crp * factor)}, seed)
    told = lines(printed)
    assert [each.partition(" (p")[0] for each in told[:1]] == [
        "east: distributed differently than at the other sites: crp"
    ]
    said = re.fullmatch(r"east: crp: its values are about (\S+) times theirs: is its unit the same\?", told[1])
    assert said is not None and float(said[1]) == pytest.approx(factor, rel=0.35)
    assert len(told) == 2 and "is its unit the same?" in page


REFUSED = "a run cannot read this table; why is in its own log"


def few(column: str, cells: list[str]) -> Change:
    """A table with these cells in the first rows of a column."""

    def change(found: pd.DataFrame) -> pd.DataFrame:
        found = found.astype({column: object})
        found.loc[: len(cells) - 1, column] = cells
        return found

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda each: each.drop(columns="crp"), [REFUSED, "it has no column crp"]),
        (lambda each: each.drop(columns=["stage", "age"]), [REFUSED, "it has no column age, stage"]),
        (
            lambda each: each.rename(columns={"sex": "Sex"}),
            [REFUSED, "columns that the run does not name: 1;", "no column sex"],
        ),
        (lambda each: each.assign(ward="a", bed=3), ["columns that the run does not name: 2;"]),
        (
            few("sex", ["divers"] * 30),
            ["not all cells can be read", "sex: categories that the run does not name: 1;"],
        ),
        (
            few("stage", ["V", "IIIb"]),
            ["not all", "stage: categories that the run does not name: some, in fewer than"],
        ),
        (few("crp", ["12,5"]), ["not all cells can be read"]),
        (few("age", ["fifty", "51 y", "<40"]), ["not all cells can be read"]),
        (few("ill", ["maybe"]), ["not all cells", "ill: categories that the run does not name: some"]),
        (
            lambda each: each.assign(ill=["yes"] * 11 + ["no"] * 189),
            ["ill: classes with fewer than 20 rows: 'yes'"],
        ),
        (lambda each: each.assign(crp=[np.nan] * 190 + [1.0] * 10), ["crp: fewer than 20 rows have a value"]),
        (lambda each: each.head(7), ["it has fewer than min_rows = 20 rows, and says nothing else"]),
        (lambda each: each.head(19), ["it has fewer than min_rows = 20 rows, and says nothing else"]),
    ],
)
def test_what_differs_is_said_of_the_site(asked: Any, change: Change, said: list[str]) -> None:
    printed, page = asked({"south": change})
    told = lines(printed)
    assert len(told) == len(said) and all(each.startswith("south: ") for each in told)
    for text in said:
        assert any(text in each for each in told), text
        assert html.escape(text) in page


@pytest.mark.parametrize("cell", ["12,5", "1.234,5", "Jane Doe, born 1950", "1e400"])
def test_no_cell_is_printed_only_logged_at_the_site(
    asked: Any, cell: str, caplog: pytest.LogCaptureFixture
) -> None:
    printed, page = asked({"south": few("crp", [cell])})
    assert cell not in printed and cell not in page


def test_what_a_node_would_log_is_said_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A desk has no log of the sites."""
    files = [tmp_path / "south.csv", tmp_path / "north.csv"]
    few("crp", ["12,5"])(table(0)).assign(bed=1).to_csv(files[0], index=False)
    table(1).assign(stage=["V"] * 30 + ["I"] * 170).to_csv(files[1], index=False)
    listed = ",".join(f"'{each}'" for each in files)
    assert checked([*TASK, "clients=2", f"partition.files=[{listed}]"], tmp_path) == 1
    printed = capsys.readouterr()
    told = printed.err.splitlines()
    assert any(each.startswith("for the people of south only: ") and "'12,5'" in each for each in told)
    assert any(each.startswith("for the people of south only: ") and "'bed'" in each for each in told)
    assert any(each.startswith("for the people of north only: ") and "'V' (30 rows)" in each for each in told)
    assert "south: not all cells can be read; how many and which is in its own log" in printed.out
    assert "12,5" not in printed.out and "'V'" not in printed.out


@pytest.mark.parametrize("name", ["none.csv", "none.csv.gz", "none.parquet", "none.npz"])
def test_a_file_that_does_not_exist_is_said_as_by_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    table(1).to_csv(tmp_path / "b.csv", index=False)
    files = f"['{tmp_path}/{name}','{tmp_path}/b.csv']"
    assert checked([*TASK, "clients=2", f"partition.files={files}"], tmp_path) == 1
    (reason,) = [each for each in lines(capsys.readouterr().out) if "cannot take part" in each]
    assert f"data = '{tmp_path}/{name}' does not exist on this node: it must be " in reason
    assert "damaged" not in reason and "UTF-8" not in reason


@pytest.mark.parametrize(("separator", "shown"), [(";", ";"), ("\t", r"\t"), ("|", "|")])
def test_a_table_with_another_separator_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], separator: str, shown: str
) -> None:
    table(0).to_csv(tmp_path / "a.csv", index=False)
    table(1).to_csv(tmp_path / "b.csv", index=False, sep=separator)
    files = f"['{tmp_path}/a.csv','{tmp_path}/b.csv']"
    assert checked([*TASK, "clients=2", f"partition.files={files}"], tmp_path) == 1
    printed = capsys.readouterr()
    assert re.search(r"all can be read +yes +no", printed.out)
    assert "- b: a run cannot read this table; why is in its own log" in printed.out
    said = "for the people of b only: a run cannot read this table: "
    (line,) = [each for each in printed.err.splitlines() if each.startswith(said)]
    assert f"its header has no comma but '{shown}'" in line and f'write separator = "{shown}" in [file]' in line


@pytest.mark.parametrize("named", [{"ill": "Ill"}, {"age": "Age", "sex": "Sex", "crp": "CRP", "stage": "T"}])
def test_a_table_without_the_columns_of_the_run_cannot_be_read(asked: Any, named: dict[str, str]) -> None:
    printed, _ = asked({"south": lambda each: each.rename(columns=named)})
    assert re.search(r"all can be read +yes +yes +no +yes", printed)
    assert "south: a run cannot read this table; why is in its own log" in printed


def test_sites_that_answered_are_compared_although_one_did_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("x", "y", "z"):
        (tmp_path / folder).mkdir()
        table(ord(folder)).to_csv(tmp_path / folder / "data.csv", index=False)
    (tmp_path / "y/data.csv").write_text("")
    files = ",".join(f"'{tmp_path}/{folder}/data.csv'" for folder in ("x", "y", "z"))
    assert checked([*TASK, "clients=3", f"partition.files=[{files}]"], tmp_path) == 1
    printed = capsys.readouterr().out
    assert re.search(r"0 \(data\) +1 \(data\) +2 \(data\)", printed)
    assert re.search(r"all can be read +yes +no +yes", printed)
    assert "- 1 (data) cannot take part: " in printed
    assert "nothing differs between the sites that answered" in printed


def test_edges_have_their_shares_and_a_mean_that_is_not_said_has_a_reason(asked: Any) -> None:
    def two_values(found: pd.DataFrame) -> pd.DataFrame:
        return found.assign(crp=[1.0] * 80 + [2.0] * 110 + [3.0] * 10)

    printed, page = asked(dict.fromkeys(NAMES, two_values))
    (crp,) = [each for each in printed.splitlines() if each.strip().startswith("crp")]
    why = "no mean: fewer rows than the site&#x27;s min_rows have one of the column&#x27;s few values"
    assert crp.count("no mean, ") == 4 and page.count(why) == 4
    assert (
        printed.count("; no mean: fewer rows than the site's min_rows have one of the column's few values\n") == 1
    )
    (age,) = [each for each in printed.splitlines() if each.strip().startswith("age")]
    assert re.search(r"age +\d+(\.\d+)? ± [\d.]+, \d+ \(\d+ %\) to \d+ \(\d+ %\)", age), age


def test_a_site_of_seven_rows_says_nothing_else(asked: Any) -> None:
    printed, page = asked({"south": lambda each: each.head(7)})
    table_of = printed.partition("- ")[0]
    (rows,) = [each for each in table_of.splitlines() if each.strip().startswith("rows")]
    assert rows.split() == ["rows", "200", "200", "below", "20", "200"]
    values = [each for each in table_of.splitlines() if each.strip().startswith(("age", "crp"))]
    assert all(len(re.split(r"  +", each.strip())) == 4 for each in values)  # the name, and three sites
    assert "7" not in [cell.strip() for cell in re.findall(r"<td>(.*?)</td>", page)]


def test_missing_cells_are_none_few_or_a_share(asked: Any) -> None:
    printed, _ = asked(
        {
            "north": lambda each: each.assign(crp=each.crp.where(each.index >= 10)),
            "west": lambda each: each.assign(crp=each.crp.where(each.index >= 50)),
        }
    )
    (crp,) = [each for each in printed.splitlines() if each.strip().startswith("crp")]
    cells = re.split(r"  +", crp.strip())[1:]
    assert [cell.partition("missing")[0].split(", ")[-1].strip() for cell in cells if "missing" in cell] == [
        "below 20",
        "25 %",
    ]


@pytest.mark.parametrize(
    ("task", "partition", "differ"),
    [("breast_cancer", "iid", False), ("breast_cancer", "shards", True), ("mnist5k", "iid", False),
     ("diabetes", "iid", False)],
)  # fmt: skip
def test_a_task_of_this_machine_is_described_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cache: Path, task: str, partition: str, differ: bool
) -> None:
    overrides = [f"task={task}", "clients=3", f"partition={partition}", "model=mlp", f"out='{tmp_path}'"]
    check(overrides, output=tmp_path / "c.html")
    printed = capsys.readouterr().out
    assert re.search(r"rows +\d+ +\d+ +\d+", printed)
    assert any("distributed differently" in each for each in lines(printed)) is differ


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"key": Path("x")}, "--connection or --address"),
        ({"nodes": Path("x")}, "--connection or --address"),
        ({"expires": 3}, "--connection or --address"),
        ({"address": "localhost:1"}, "--root-certificates"),
        ({"address": "localhost:1", "insecure": True, "root_certificates": Path("x")}, "exactly one of them"),
    ],
)
def test_options_that_do_not_go_together(tmp_path: Path, more: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check([*TASK], output=tmp_path / "check.html", **more)


def test_a_file_that_is_no_page_of_ours_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "check.html").write_text("my thesis")
    with pytest.raises(ConfigError, match=r"check\.html"):
        check([*TASK], output=tmp_path / "check.html")


@pytest.mark.parametrize("text", ["age,sex,crp,stage,ill\n1,2\n", "", "age,sex,crp,stage,ill\n"])
def test_a_site_that_cannot_be_read_at_all_is_named_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "a.csv").write_text(text)
    table(1).to_csv(tmp_path / "b.csv", index=False)
    files = f"['{tmp_path}/a.csv','{tmp_path}/b.csv']"
    assert checked([*TASK, "clients=2", f"partition.files={files}"], tmp_path) == 1
    printed = capsys.readouterr().out
    (reason,) = [each for each in lines(printed) if "cannot take part" in each]
    assert reason.startswith("a cannot take part: DataError: ") and "a.csv" in reason and "(code" not in reason
    assert re.search(r"rows +no answer +200", printed) and re.search(r"all can be read +no +yes", printed)
    assert "only one site answered, so nothing is compared" in printed and "nothing differs" not in printed
    page = (tmp_path / "check.html").read_text()
    assert "Only one site answered" in page and "<td>no answer</td>" in page and "Nothing differs" not in page
    with pytest.raises(RunError, match="only 0 of at least 1"):
        check([*TASK, "clients=1", f"partition.files=['{tmp_path}/a.csv']"], output=tmp_path / "check.html")


@published
def test_the_four_hospitals_as_they_were_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sites = []
    for name in ("cleveland", "hungarian", "switzerland", "va"):
        shutil.copy(EXAMPLE / f"sites/{name}.toml", tmp_path)
        shutil.copy(PUBLISHED / f"processed.{name}.data", tmp_path)
        sites.append(f"'{tmp_path / name}.toml'")
    given = ["task=heart", "model=mlp", "clients=4", "partition=own", f"out='{tmp_path}'"]
    of_files = f"partition.files=[{','.join(sites)}]"
    assert checked([f"parts={EXAMPLE / 'heart.py'}", *given, of_files], tmp_path) == 0
    printed = capsys.readouterr().out
    assert re.search(r"rows +303 +294 +123 +200", printed)
    assert "switzerland: cholesterol: fewer than 20 rows have a value" in printed
    assert "switzerland: disease: classes with fewer than 20 rows: 'no'\n" in printed
    assert re.search(r"hungarian: distributed differently than at the other sites: .*age", printed)
    assert not list(tmp_path.glob("*.secret"))  # to describe data, none is needed
