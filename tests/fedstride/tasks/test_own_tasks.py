"""Tasks whose examples are the nodes' own: what their settings say, and files for tasks that have data, too."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_files import class_folder, wav, written
from real_data import REAL, real

from fedstride.errors import ConfigError, DataError
from fedstride.settings import MOST_CLASSES
from fedstride.tasks import data, own_files
from fedstride.tasks.forms.tokens import tokens
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.partitions import schemes
from fedstride.tasks.reading import Reading
from fedstride.tasks.registry import MODELS, PARTITIONS, TASKS
from fedstride.tasks.spec import Spec, Target

pytestmark = pytest.mark.usefixtures("forgotten_data")


def load(name: str, **settings: Any) -> data.Data:
    """The task, as a client gets it: through a message."""
    return data.load(TASKS.unflatten(TASKS.flatten(TASKS.config(name)(**settings))))


def spec_of(name: str, **settings: Any) -> Spec:
    return load(name, **settings).spec


# ---------------------------------------------------------------- settings


def test_own_images() -> None:
    spec = spec_of("own_images", classes=["cat", "dog"], shape=[1, 4, 5])
    assert (spec.inputs, spec.outputs, spec.names) == (Inputs(Kind.IMAGE, (1, 4, 5)), 2, ("cat", "dog"))
    assert (spec.mean, spec.std, spec.scale) == ((0.5,), (0.5,), 255.0)
    spec = spec_of("own_images", classes=7, mean=[0.1, 0.2, 0.3], std=[1.0, 2.0, 3.0])
    assert (spec.inputs.shape, spec.outputs, spec.names) == ((3, 64, 64), 7, ())
    assert (spec.mean, spec.std) == ((0.1, 0.2, 0.3), (1.0, 2.0, 3.0))


def test_own_table() -> None:
    spec = spec_of("own_table", columns=["age", "sex=f|m"], classes=["well", "ill"], missing="mean")
    assert (spec.inputs, spec.target, spec.outputs) == (Inputs(Kind.TABLE, (3,)), Target.CLASS, 2)
    assert spec.names == ("well", "ill")
    assert spec.reading == Reading(columns=("age", "sex=f|m"), targets=("label",), missing="mean")
    assert (spec.mean, spec.std) == ((), ())
    spec = spec_of("own_table", columns=["age"], kind="values", target=["a", "b"], mean=[1.0], std=[2.0])
    assert (spec.target, spec.outputs, spec.names) == (Target.VALUES, 2, ("a", "b"))
    assert (spec.mean, spec.std, spec.reading.targets) == ((1.0,), (2.0,), ("a", "b"))
    assert spec_of("own_table", columns=["age"], kind="labels", target="sick").outputs == 1


def test_own_texts() -> None:
    spec = spec_of("own_texts", classes=3, columns=["title", "body"], target="topic", length=9, vocabulary=100)
    assert (spec.inputs, spec.outputs) == (Inputs(Kind.TOKENS, (9,), 100), 3)
    assert spec.reading == Reading(texts=("title", "body"), targets=("topic",))


def test_own_sounds() -> None:
    spec = spec_of("own_sounds", classes=2, seconds=0.5, rate=8000, bands=20, window=30.0)
    assert spec.inputs == Inputs(Kind.FRAMES, (48, 20))
    assert (spec.mean, spec.std, spec.reading) == ((), (), Reading(rate=8000, window=30.0))
    spec = spec_of("own_sounds", classes=2, seconds=0.5, rate=8000, features="waveform")
    assert (spec.inputs, spec.mean, spec.std, spec.scale) == (
        Inputs(Kind.SIGNAL, (1, 4000)),
        (0.0,),
        (1.0,),
        32_768,
    )


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        (
            "own_images",
            {},
            f"task.classes = .* is not allowed: .* a whole number in .2, {MOST_CLASSES}., or a list",
        ),
        ("own_images", {"classes": 1}, "task.classes = 1 is not allowed"),
        ("own_images", {"classes": [3]}, r"task.classes = \[3\] is not allowed"),
        ("own_images", {"classes": ["a"]}, r"task.classes = \['a'\] .* at least two different names"),
        ("own_images", {"classes": ["a", "a"]}, "at least two different names"),
        ("own_images", {"classes": ["a", " b"]}, "without blanks at their ends"),
        ("own_images", {"classes": 2, "shape": [3, 64]}, "task.shape = .* must be three numbers"),
        ("own_images", {"classes": 2, "shape": [3, 0, 64]}, "task.shape"),
        ("own_images", {"classes": 2, "mean": [0.5]}, "task.mean = .* a list of 3 numbers, one for each channel"),
        ("own_images", {"classes": 2, "std": [0.5, 0.0, 0.5]}, "task.std = .* greater than 0"),
        ("own_table", {"columns": [], "classes": 2}, "task.columns = .* at least one column"),
        ("own_table", {"columns": ["a="], "classes": 2}, "column 'a=' is not allowed: it must be NAME"),
        ("own_table", {"columns": ["a", "a"], "classes": 2}, "column 'a' is given 2 times"),
        ("own_table", {"columns": ["a", "label"], "classes": 2}, "another column: label is in task.columns"),
        ("own_table", {"columns": ["a"]}, "task.classes is missing: with task.kind=class"),
        ("own_table", {"columns": ["a"], "classes": 2, "target": ["b", "c"]}, "must be one column with task.kind"),
        ("own_table", {"columns": ["a"], "classes": 2, "kind": "values"}, "must be null with task.kind=values"),
        ("own_table", {"columns": ["a"], "kind": "labels", "target": []}, "at least one column"),
        ("own_table", {"columns": ["a"], "kind": "labels", "target": ["b", "b"]}, "different names of columns"),
        (
            "own_table",
            {"columns": ["a"], "kind": "number"},
            "task.kind = 'number' is not allowed: .* 'class', 'labels'",
        ),
        (
            "own_table",
            {"columns": ["a"], "classes": 2, "missing": "zero"},
            "must be 'error', 'mean', 'median', 'mean.indicator' or",
        ),
        ("own_table", {"columns": ["a"], "classes": 2, "mean": [1.0]}, "task.std = None .* mean and std belong"),
        ("own_table", {"columns": ["a=x|y"], "classes": 2, "mean": [1.0], "std": [1.0]}, "a list of 2 numbers"),
        ("own_texts", {"classes": 2, "columns": []}, "task.columns = .* at least one column"),
        ("own_sounds", {"classes": 2, "seconds": 1e-9}, "task.seconds = 1e-09 .* at least 6.25e-05, one sample"),
        ("own_sounds", {"classes": 2, "seconds": 0.01}, "task.window = 25.0 .* at most 10.0 ms"),
        ("own_sounds", {"classes": 2, "mean": [0.0], "std": [1.0]}, "a list of 40 numbers, one for each band"),
    ],
)
def test_settings_that_are_refused(name: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        load(name, **settings)
    assert str(caught.value).isprintable()


def test_lists_in_the_settings_distinguish_tasks() -> None:
    one = load("own_images", classes=["a", "b"])
    assert load("own_images", classes=["a", "b"]) is one
    assert load("own_images", classes=["b", "a"]).spec.names == ("b", "a")


def test_such_a_task_has_nothing_to_divide() -> None:
    source = load("own_images", classes=2)
    assert len(source.train_x) == len(source.test_y) == 0
    for name in ("iid", "own"):
        with pytest.raises(
            DataError, match=r"no examples to divide, .* use partition=own, and start each node with"
        ):
            schemes.partition(PARTITIONS.config(name)(), source.divisible, 2, 1)


# ---------------------------------------------------------------- files for each task


def test_images_for_the_task(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "data", {"cat": 1, "dog": 2})
    found = own_files.load(folder, spec_of("own_images", classes=["dog", "cat"], shape=[1, 4, 5]))
    assert found.y.tolist() == [0, 0, 1]


def test_a_table_for_the_task(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.csv", "sex,age,label\nf,40,ill\nm,,well\n")
    spec = spec_of("own_table", columns=["age", "sex=f|m"], classes=["well", "ill"], missing="mean")
    found = own_files.load(path, spec)
    np.testing.assert_array_equal(found.x, np.array([[40, 1, 0], [np.nan, 0, 1]], np.float32))
    assert found.y.tolist() == [1, 0]


def test_texts_for_the_task(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.csv", "title,body,topic\nNews,of today,2\n")
    spec = spec_of("own_texts", classes=3, columns=["title", "body"], target="topic", length=4, vocabulary=100)
    found = own_files.load(path, spec)
    np.testing.assert_array_equal(found.x, tokens(["News of today"], 4, 100))
    assert found.y.tolist() == [2]


@pytest.mark.parametrize("features", ["log_mel", "waveform"])
def test_recordings_for_the_task(tmp_path: Path, features: str) -> None:
    wav(tmp_path / "data/yes/a.wav", np.arange(5000))
    wav(tmp_path / "data/no/b.wav", np.arange(50))
    spec = spec_of("own_sounds", classes=["yes", "no"], rate=8000, seconds=0.5, features=features)
    found = own_files.load(tmp_path / "data", spec)
    assert found.x.shape == (2, *spec.inputs.shape) and found.y.tolist() == [0, 1]
    MODELS.make(MODELS.config("mlp")(width=4), spec.inputs, spec.outputs)


# ---------------------------------------------------------------- files for tasks that have data, too


@pytest.mark.parametrize("name", ["breast_cancer", "diabetes"])
def test_a_csv_file_for_a_table_of_scikit_learn(tmp_path: Path, name: str) -> None:
    """Columns are those of scikit-learn. Classes have names; values of diabetes are those that the task stores."""
    source = load(name)
    columns = source.spec.reading.columns
    assert len(columns) == len(set(columns)) == source.spec.inputs.shape[0]
    with (tmp_path / "mine.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["target", *reversed(columns)])
        for x, y in zip(source.train_x.tolist(), source.train_y, strict=True):
            target = source.spec.names[y] if source.spec.classes else float(y[0])
            writer.writerow([target, *reversed(x)])
    found = own_files.load(tmp_path / "mine.csv", source.spec)
    np.testing.assert_array_equal(found.x, source.train_x)
    np.testing.assert_array_equal(found.y, source.train_y)


@pytest.mark.slow
@real
@pytest.mark.parametrize("features", ["log_mel", "waveform"])
def test_recordings_for_the_spoken_digits(tmp_path: Path, features: str) -> None:
    """The same files in class folders give the task's own examples."""
    source = load("spoken_digits", root=str(REAL), features=features)
    recordings = sorted((REAL / "free-spoken-digit-dataset/recordings").glob("*_george_1[0-4].wav"))
    for path in recordings:
        folder = tmp_path / "data" / path.name[0]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / path.name).symlink_to(path)
    found = own_files.load(tmp_path / "data", source.spec)
    first = np.array([np.flatnonzero(source.train_y == digit)[0] for digit in range(10)])
    assert len(found.y) == len(recordings) > 10 and source.spec.reading.rate == 8000
    np.testing.assert_array_equal(
        found.x[[found.y.tolist().index(digit) for digit in range(10)]], source.train_x[first]
    )
