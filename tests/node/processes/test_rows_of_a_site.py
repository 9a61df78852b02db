"""The site's rows, read by a real confined process of the node, and given to apps in the form of their message."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from acting import SERIES, Placed, content, rest, running, unpack

from confinement import support
from fedstride.error_kinds import ErrorKind as FaultKind
from fedstride.error_kinds import Fault
from fedstride.messages.wire import FOLD, HOLDOUT
from fedstride.tasks.data_toml.dictionary_file import read_columns, read_examples
from fedstride.tasks.data_toml.site import SiteData
from fedstride.tasks.datasets.nodes import own_images
from fedstride.tasks.evaluation.holdout import draws_of, held_key, hold_out
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.own_files import load
from fedstride.tasks.own_files.description import ANSWER
from fedstride.tasks.reading import PREPARED_VARIABLE, Reading
from fedstride.tasks.spec import Spec, Target
from fedstride.tasks.statistics.description import Description, asked_of
from fedstride.tasks.statistics.over_sites import report
from node.apps.installed_apps import InstalledApp
from node.messages.replies import NORMALISATION
from node.policy.permission import PolicyTerms, RefusedError
from node.policy.policy_file import Policy
from node.processes.site_rows import COUNT, FORMS, ReadError, RowsReader, state_of

pytestmark = pytest.mark.slow

SPEC = Spec(
    Inputs(Kind.TABLE, (2,)),
    2,
    Target.CLASS,
    names=("no", "yes"),
    reading=Reading(columns=("age", "weight"), targets=("ill",)),
)
TABLE = "name,age,weight,ill\n" + "".join(
    f"Patient {n},{40 + n},{60.5 + n},{'yes' if n % 3 else 'no'}\n" for n in range(30)
)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("unpacked") / "app")


@pytest.fixture(scope="module")
def processes() -> Iterator[Placed]:
    found = Placed(float("inf"), pytest.fail, print)
    found.start()
    yield found
    found.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "site/patients.csv"
    path.parent.mkdir()
    path.write_text(TABLE)
    return path


@pytest.fixture
def reader(processes: Placed, data: Path, tmp_path: Path) -> RowsReader:
    processes.put(tmp_path / "home", data=data)
    return reader_of(SiteData(data, b"k" * 32), processes, tmp_path)


def reader_of(
    site: SiteData, processes: Placed, tmp_path: Path, min_rows: int = 5, *, folds: bool = False
) -> RowsReader:
    rows, statistics = tmp_path / "home/node-rows", tmp_path / "home/node-statistics"
    return RowsReader(site, rows, statistics, (0.0, 0.2), folds, min_rows, processes.access, processes)


def form(spec: Spec = SPEC) -> dict[str, object]:
    return {key: value for key, value in spec.flatten().items() if key not in NORMALISATION}


def test_an_app_gets_the_columns_of_its_message_and_no_file_of_the_site(
    processes: Placed, reader: RowsReader, app: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, count, held = reader.of(form(), 60.0)
    expected = load(data, SPEC)
    marks = draws_of(expected.marks, b"k" * 32)
    assert (count, held) == (30, {"0.0": 0, "0.2": len(hold_out(marks, 0.2, 0)[1])})
    monkeypatch.setenv(PREPARED_VARIABLE, str(folder))
    found = load(
        "/nowhere", replace(SPEC, mean=(1.0, 2.0), std=(3.0, 4.0))
    )  # the same rows, whatever they are scaled by
    assert np.array_equal(found.x, expected.x) and np.array_equal(found.y, expected.y)
    assert found.x.dtype == expected.x.dtype and found.y.dtype == expected.y.dtype
    assert np.array_equal(found.draws(77), marks) and found.min_rows == 5
    assert found.said is not None and found.said.moments.mean[0] == expected.x[:, 0].mean(dtype=np.float64)
    assert not any(b"Patient" in path.read_bytes() for path in folder.iterdir())
    if not support().possible:
        pytest.skip("the kernel of this machine cannot confine a process: the file itself can be read")
    code = f"""
prepared = os.environ["{PREPARED_VARIABLE}"]
reply["read"] = sorted(os.listdir(prepared))
for name, path, mode in (("the table", {str(data)!r}, "r"), ("examples, changed", prepared + "/x.npy", "r+")):
    try:
        open(path, mode)
        reply[name] = "done"
    except OSError as error:
        reply[name] = error.strerror
"""
    place = processes.access.of(InstalledApp("test/acts", "1", "", "0" * 64, b""), app, "", SERIES, folder)
    did = dict(content(processes.answer(running(app, code), 60.0, place)).config_records["did"])
    assert did["read"] == [COUNT, "form.json", "marks.npy", "x.npy", "y.npy"]
    assert did["the table"] == did["examples, changed"] == "Permission denied"


def test_rows_are_read_once_and_again_when_the_data_change(reader: RowsReader, data: Path) -> None:
    first = reader.of(form(), 60.0)
    inode = first.folder.stat().st_ino
    assert reader.of(form(), 60.0) == first and first.folder.stat().st_ino == inode
    data.write_text(TABLE + "Patient 30,70,90,no\n")
    second = reader.of(form(), 60.0)
    assert second.folder != first.folder and second.examples == 31
    said = [json.loads((each.folder / "form.json").read_text())["moments"] for each in (first, second)]
    contents = [json.loads((each.folder / "form.json").read_text())["content"] for each in (first, second)]
    assert contents[0] != contents[1] and {len(each) for each in contents} == {64}
    assert said[0] == said[1]  # the mean of one row more would say what this row contains


@pytest.mark.parametrize("kind", ["file", "file in a folder", "folder in a folder"])
def test_what_is_behind_a_link_is_seen_to_change(tmp_path: Path, kind: str) -> None:
    """A year's table behind one name, or a scan in another folder: approvals and rows are of the old ones."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/2024.csv").write_text("age\n1\n")
    data = tmp_path / "data"
    if kind == "file":
        data.symlink_to(tmp_path / "elsewhere/2024.csv")
    else:
        data.mkdir()
        (data / "yes").symlink_to(tmp_path / ("elsewhere" if kind.startswith("folder") else "elsewhere/2024.csv"))
        (data / "around").symlink_to(data)  # which would never end
    before = state_of(data)
    assert state_of(data) == before
    (tmp_path / "elsewhere/2024.csv").write_text("age\n1\n2\n")
    changed = state_of(data)
    assert changed != before
    (tmp_path / "elsewhere/2024.csv").unlink()
    if kind == "folder in a folder":
        assert state_of(data) != changed
    else:
        with pytest.raises(FileNotFoundError):
            state_of(data)


def test_two_forms_are_two_folders_and_old_ones_are_removed(processes: Placed, reader: RowsReader) -> None:
    folders = []
    for number in range(FORMS + 2):
        folders.append(reader.of(form(replace(SPEC, scale=1.0 + number)), 60.0).folder)
        os.utime(folders[-1], (number, number))
    rest(processes)
    assert len(set(folders)) == FORMS + 2
    assert [each.exists() for each in folders] == [False] * 2 + [True] * FORMS
    assert not list(folders[-1].parent.glob("new-*"))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (replace(SPEC, reading=replace(SPEC.reading, targets=("absent",))), "DataError"),
        (replace(SPEC, reading=replace(SPEC.reading, columns=("name", "age"))), "DataError"),
        (replace(SPEC, reading=replace(SPEC.reading, columns=("age",))), "ConfigError"),
    ],
)
def test_data_that_do_not_fit_the_form(processes: Placed, reader: RowsReader, spec: Spec, said: str) -> None:
    with pytest.raises(ReadError, match=said):
        reader.of(form(spec), 60.0)
    reader.of(form(), 60.0)
    rest(processes)
    folder = Path(reader._folder)
    assert len(list(folder.iterdir())) == 1  # the examples: nothing is left of what failed


def test_data_that_are_gone(reader: RowsReader, data: Path) -> None:
    data.unlink()
    with pytest.raises(ReadError, match="No such file or directory"):
        reader.of(form(), 60.0)


def test_examples_of_another_form_than_the_app_asks_for(
    reader: RowsReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedstride.errors import DataError

    monkeypatch.setenv(PREPARED_VARIABLE, str(reader.of(form(), 60.0).folder))
    with pytest.raises(DataError, match="another form than this app asks for; use one version"):
        load("/nowhere", replace(SPEC, names=("yes", "no")))


DICTIONARY = read_columns({"age": {"least": 0, "most": 120}, "weight": "number", "ill": ["no", "yes"]}, ["ill"])


def test_what_is_not_as_the_data_file_says_is_found_before_a_message(
    processes: Placed, data: Path, tmp_path: Path
) -> None:
    """With cells and lines: it is for the site's own people."""
    processes.put(tmp_path / "home", data=data)
    reader = reader_of(SiteData(data, dictionary=DICTIONARY), processes, tmp_path)
    reader.check(60.0)
    data.write_text(TABLE + "Patient 30,170,x,perhaps\nPatient 31,171,80,no\n")
    with pytest.raises(ReadError) as caught:
        reader.of(form(), 60.0)
    said = str(caught.value)
    assert "column 'age': 2 cells; the first: " in said and "line 32, column 'age': '170' is not allowed" in said
    assert "column 'weight': 1 cell;" in said and "column 'ill': 1 cell;" in said
    data.write_text(TABLE)
    assert reader.of(form(), 60.0).examples == 30


def test_the_rows_of_one_id_stay_together(processes: Placed, data: Path, tmp_path: Path) -> None:
    data.write_text("name,age,weight,ill\n" + "".join(f"{n // 3},{n},{n},no\n" for n in range(90)))
    processes.put(tmp_path / "home", data=data)
    folder = reader_of(SiteData(data, b"k" * 32, id="name"), processes, tmp_path).of(form(), 60.0).folder
    marks = np.load(folder / "marks.npy").reshape(30, 3)
    assert (marks == marks[:, :1]).all() and len(np.unique(marks)) == 30


def test_another_secret_holds_out_other_rows(processes: Placed, data: Path, tmp_path: Path) -> None:
    processes.put(tmp_path / "home", data=data)
    one, other = (
        np.load(reader_of(SiteData(data, key * 32), processes, tmp_path).of(form(), 60.0).folder / "marks.npy")
        for key in (b"k", b"l")
    )
    assert not (one == other).any()


def test_medians_and_indicators_of_a_confined_process(
    processes: Placed, reader: RowsReader, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows and bins that an app gets are those of a desk, also with cells in another form."""
    data.write_text(
        "name,age,weight,ill\n" + "".join(f"P{n},{n % 60},{'' if n % 3 else n / 7},yes\n" for n in range(150))
    )
    spec = replace(
        SPEC,
        inputs=Inputs(Kind.TABLE, (3,)),
        reading=replace(SPEC.reading, missing_of=("age=median", "weight=median+indicator")),
    )
    expected = load(data, spec)
    monkeypatch.setenv(PREPARED_VARIABLE, str(reader.of(form(spec), 60.0).folder))
    found = load("/nowhere", spec)
    np.testing.assert_array_equal(found.x, expected.x)
    assert found.said is not None
    said = found.said.flatten()
    assert said["moments.bins"] == report(expected.x, expected.y, spec).flatten()["moments.bins"]
    assert said["moments.bins"][0] > 3 and len(said["moments.count"]) == 2


def test_medical_files_of_any_form(processes: Placed, tmp_path: Path) -> None:
    """They are read by the libraries of the extra, confined, and in the form of the message."""
    nibabel = pytest.importorskip("nibabel")
    for number, name in enumerate(("no/a", "no/b", "yes/c", "yes/d", "yes/e", "no/f")):
        path = tmp_path / f"scans/{name}.nii.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        nibabel.save(nibabel.Nifti1Image(np.full((20 + number, 9, 5), number, np.int16), np.eye(4)), path)
    said = {"kind": "image", "shape": [1, 6, 8], "classes": ["no", "yes"], "any_form": True}
    site = SiteData(tmp_path / "scans", b"k" * 32, dictionary=read_examples(said))
    processes.put(tmp_path / "home", data=site.path)
    reader = reader_of(site, processes, tmp_path, min_rows=1)
    assert reader.check(60.0) == (6, 6)
    spec = own_images(classes=["no", "yes"], shape=[1, 6, 8], resize="pad", convert=True, window=[0, 5]).spec
    folder = reader.of(form(spec), 60.0).folder
    x = np.load(folder / "x.npy")
    assert x.shape == (6, 1, 6, 8) and sorted(x[:, 0, 3, 4].tolist()) == [0, 51, 102, 153, 204, 255]
    assert json.loads((folder / "form.json").read_text())["moments"] is None  # a run could ask for many forms
    (tmp_path / "scans/no/z.nii.gz").write_bytes(b"?")
    with pytest.raises(ReadError, match=r"no/z\.nii\.gz is not a readable NIfTI file"):
        reader.of(form(spec), 60.0)


@pytest.mark.parametrize(
    ("rows", "min_rows", "allowed"),
    [(7, 20, []), (7, 5, ["train"]), (13, 9, ["train"]), (60, 5, ["train", "evaluate"])],
)
def test_a_site_with_seven_rows(
    processes: Placed, data: Path, tmp_path: Path, rows: int, min_rows: int, allowed: list[str]
) -> None:
    """It needs `min_rows` of them to train and, where a share is held out, as many to measure."""
    data.write_text("name,age,weight,ill\n" + "".join(f"P{n},{n},{n},no\n" for n in range(rows)))
    processes.put(tmp_path / "home", data=data)
    found = reader_of(SiteData(data, b"k" * 32), processes, tmp_path, min_rows).of(form(), 60.0)
    terms, held = PolicyTerms(Policy(min_rows=min_rows), None), {"0.2": found.held["0.2"]}
    for kind in ("train", "evaluate"):
        if kind in allowed:
            terms.check_rows(kind, {HOLDOUT: 0.2}, found.examples, held)
            continue
        with pytest.raises(RefusedError, match=f"its policy demands at least min_rows = {min_rows}") as caught:
            terms.check_rows(kind, {HOLDOUT: 0.2}, found.examples, held)
        assert str(caught.value.told).count(str(rows)) == 0  # the number stays in the node's own log


def test_each_fold_holds_out_other_rows_and_together_all(processes: Placed, data: Path, tmp_path: Path) -> None:
    data.write_text("name,age,weight,ill\n" + "".join(f"P{n},{n},{n},no\n" for n in range(80)))
    processes.put(tmp_path / "home", data=data)
    found = reader_of(SiteData(data, b"k" * 32), processes, tmp_path, folds=True).of(form(), 60.0)
    sizes = [found.held[held_key(0.2, fold)] for fold in range(5)]
    assert sum(sizes) == found.examples == 80 and found.held["0.0"] == 0 and len(found.held) == 6
    terms = PolicyTerms(Policy(min_rows=min(sizes), holdout=(0.0, 0.2), folds=True), None)
    for fold in range(5):
        for kind in ("train", "evaluate"):
            terms.check_rows(kind, {HOLDOUT: 0.2, FOLD: fold}, found.examples, found.held)
    strict = PolicyTerms(Policy(min_rows=min(sizes) + 1, holdout=(0.2,), folds=True), None)
    with pytest.raises(RefusedError, match=r"a fold of holdout = 0\.2 would hold out fewer rows") as caught:
        strict.check_rows("train", {HOLDOUT: 0.2, FOLD: 1}, found.examples, found.held)
    assert caught.value.told == Fault(FaultKind.FEW_ROWS, FOLD)


def test_a_description_is_made_by_the_node_and_its_app_gets_no_rows(
    processes: Placed, reader: RowsReader, app: Path, data: Path
) -> None:
    data.write_text(TABLE.replace("60.5", "sixty") + "Patient 30,70,90,perhaps\n")
    with pytest.raises(ReadError, match="sixty"):
        reader.of(form(), 60.0)  # rows are not given to apps before all can be read
    found = reader.described(form(), 60.0)
    assert sorted(each.name for each in found.folder.iterdir()) == [COUNT, ANSWER]
    said = Description.unflatten(json.loads((found.folder / ANSWER).read_text()), asked_of(SPEC))
    assert (said.rows, said.readable, said.unnamed, said.min_rows) == (31, False, 1, 5)
    assert any("'sixty'" in line for line in found.lines) and any("'perhaps'" in line for line in found.lines)
    assert any("'name'" in line for line in found.lines)
    flat = (found.folder / ANSWER).read_text()
    assert not any(word in flat for word in ("sixty", "perhaps", "Patient"))
    inode = found.folder.stat().st_ino
    assert reader.described(form(), 60.0) == found and found.folder.stat().st_ino == inode
    if not support().possible:
        pytest.skip("the kernel of this machine cannot confine a process: the file itself can be read")
    code = f"""
reply["read"] = sorted(os.listdir(os.environ["{PREPARED_VARIABLE}"]))
try:
    open({str(data)!r})
    reply["the table"] = "done"
except OSError as error:
    reply["the table"] = error.strerror
"""
    place = processes.access.of(InstalledApp("test/acts", "1", "", "0" * 64, b""), app, "", SERIES, found.folder)
    did = dict(content(processes.answer(running(app, code), 60.0, place)).config_records["did"])
    assert did["read"] == [COUNT, ANSWER] and did["the table"] == "Permission denied"


def test_a_description_changes_only_with_enough_rows(reader: RowsReader, data: Path) -> None:
    def said() -> str:
        return (reader.described(form(), 60.0).folder / ANSWER).read_text()

    first = said()
    data.write_text(TABLE + "Patient 30,700,900,no\n" * 4)
    assert said() == first
    data.write_text(TABLE + "".join(f"Patient {n},{70 + n},90,no\n" for n in range(30, 36)))
    assert said() != first


def test_a_site_with_fewer_rows_than_its_policy_demands_says_only_that(
    processes: Placed, data: Path, tmp_path: Path
) -> None:
    processes.put(tmp_path / "home", data=data)
    data.write_text("".join(TABLE.splitlines(keepends=True)[:8]))
    site = SiteData(data, b"k" * 32)
    for least, few in ((20, True), (8, True), (5, False)):
        found = reader_of(site, processes, tmp_path, least).described(form(), 60.0)
        record = json.loads((found.folder / ANSWER).read_text())
        assert record["description.few"] is few
        assert (set(record) == {"description.few", "description.min_rows"}) is few
