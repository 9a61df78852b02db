"""The site's rows, read by a real confined process of the node, and given to apps in the form of their message."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from acting import SERIES, Placed, content, rest, running, unpack

from confinement import support
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.own import load
from fedstride.tasks.reading import PREPARED_VARIABLE, Reading
from fedstride.tasks.spec import Spec, Target
from node.apps import App
from node.replies import NORMALISATION
from node.rows import COUNT, FORMS, Reader, ReadError

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
def reader(processes: Placed, data: Path, tmp_path: Path) -> Reader:
    processes.put(tmp_path / "home", data=data)
    return Reader(data, tmp_path / "home/node-rows", processes.access, processes)


def form(spec: Spec = SPEC) -> dict[str, object]:
    return {key: value for key, value in spec.flatten().items() if key not in NORMALISATION}


def test_an_app_gets_the_columns_of_its_message_and_no_file_of_the_site(
    processes: Placed, reader: Reader, app: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = reader.of(form(), 60.0)
    assert (folder / COUNT).read_text() == "30"
    expected = load(data, SPEC)
    monkeypatch.setenv(PREPARED_VARIABLE, str(folder))
    found = load(
        "/nowhere", replace(SPEC, mean=(1.0, 2.0), std=(3.0, 4.0))
    )  # the same rows, whatever they are scaled by
    assert np.array_equal(found.x, expected.x) and np.array_equal(found.y, expected.y)
    assert found.x.dtype == expected.x.dtype and found.y.dtype == expected.y.dtype
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
    place = processes.access.of(App("test/acts", "1", "", "0" * 64, b""), app, "", SERIES, folder)
    did = dict(content(processes.answer(running(app, code), 60.0, place)).config_records["did"])
    assert did["read"] == [COUNT, "form.json", "x.npy", "y.npy"]
    assert did["the table"] == did["examples, changed"] == "Permission denied"


def test_rows_are_read_once_and_again_when_the_data_change(reader: Reader, data: Path) -> None:
    first = reader.of(form(), 60.0)
    inode = first.stat().st_ino
    assert reader.of(form(), 60.0) == first and first.stat().st_ino == inode
    data.write_text(TABLE + "Patient 30,70,90,no\n")
    second = reader.of(form(), 60.0)
    assert second != first and (second / COUNT).read_text() == "31"


def test_two_forms_are_two_folders_and_old_ones_are_removed(processes: Placed, reader: Reader) -> None:
    folders = []
    for number in range(FORMS + 2):
        folders.append(reader.of(form(replace(SPEC, scale=1.0 + number)), 60.0))
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
def test_data_that_do_not_fit_the_form(processes: Placed, reader: Reader, spec: Spec, said: str) -> None:
    with pytest.raises(ReadError, match=said) as caught:
        reader.of(form(spec), 60.0)
    assert caught.value.code == 2
    reader.of(form(), 60.0)
    rest(processes)
    folder = Path(reader._folder)
    assert len(list(folder.iterdir())) == 1  # nothing is left of what failed


def test_data_that_are_gone(reader: Reader, data: Path) -> None:
    data.unlink()
    with pytest.raises(ReadError, match=r"^the data of this node cannot be read: No such file or directory$"):
        reader.of(form(), 60.0)


def test_examples_of_another_form_than_the_app_asks_for(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedstride.errors import DataError

    monkeypatch.setenv(PREPARED_VARIABLE, str(reader.of(form(), 60.0)))
    with pytest.raises(DataError, match="another form than this app asks for; use one version"):
        load("/nowhere", replace(SPEC, names=("yes", "no")))
