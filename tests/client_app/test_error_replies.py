"""Nothing of a node's data is in an error that leaves it: with a canary in each cell, path and name."""

from __future__ import annotations

import logging
import sys
import wave
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from client_talk import initial, message, round_config
from flwr.app import Context, MessageType, RecordDict
from PIL import Image

from client_app.app import app
from fedstride.error_kinds import ErrorKind, parsed
from fedstride.errors import FedstrideError
from fedstride.messages import wire
from fedstride.tasks import data
from fedstride.tasks.registry import PARTITIONS, TASKS

CANARY = "Jane-Doe-19560412"

Write = Callable[[Path], Path]


def csv(text: str, name: str = "table.csv") -> Write:
    def write(folder: Path) -> Path:
        (folder / name).write_text(text.replace("@", CANARY))
        return folder / name

    return write


def parquet(**columns: list[object]) -> Write:
    def write(folder: Path) -> Path:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet as files

        files.write_table(pyarrow.table(columns), folder / "table.parquet")
        return folder / "table.parquet"

    return write


def npz(**arrays: Any) -> Write:
    def write(folder: Path) -> Path:
        np.savez(folder / "arrays.npz", **arrays)
        return folder / "arrays.npz"

    return write


def pictures(make: Callable[[Path], None]) -> Write:
    def write(folder: Path) -> Path:
        for name in ("dog", "cat"):
            (folder / "pictures" / name).mkdir(parents=True)
        make(folder / "pictures")
        return folder / "pictures"

    return write


def sound(folder: Path, rate: int) -> None:
    with wave.open(str(folder / "dog" / f"{CANARY}.wav"), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(bytes(200))


def broken(folder: Path) -> None:
    for number, size in enumerate(((9, 9), (5, 7), (5, 4))):
        Image.new("L", size).save(folder / f"dog/{CANARY}{number}.png")
    (folder / f"cat/{CANARY}.png").write_text(CANARY)


def slices(folder: Path) -> None:
    """Bytes that begin as DICOM does, with a name in them, and a volume that ends too early."""
    (folder / f"dog/{CANARY}.dcm").write_bytes(b"\0" * 128 + b"DICM" + CANARY.encode() * 9)
    (folder / f"cat/{CANARY}.nii").write_bytes(b"\x5c\x01\0\0" + CANARY.encode() * 40)


TABLE = {"columns": ["age", "sex=f|m"], "classes": ["dog", "cat"]}
IMAGES = {"shape": [1, 4, 5], "classes": ["dog", "cat"]}
SOUNDS = {"features": "waveform", "rate": 100, "seconds": 0.1, "classes": ["dog", "cat"]}
TEXTS = {"length": 2, "vocabulary": 50, "classes": ["dog", "cat"]}

FAULTS: dict[str, tuple[str, dict[str, Any], Write]] = {
    "a category": ("own_table", TABLE, csv("age,sex,label\n40,@,dog\n")),
    "a number": ("own_table", TABLE, csv("age,sex,label\n@,f,dog\n")),
    "a class": ("own_table", TABLE, csv("age,sex,label\n40,f,@\n")),
    "a missing column, others are named": ("own_table", TABLE, csv("age,@,label\n40,f,dog\n")),
    "a short row": ("own_table", TABLE, csv("age,sex,label\n40,f,dog\n@\n")),
    "a quote": ("own_table", TABLE, csv('age,sex,label\n40,f,"dog\n@\n')),
    "no header": ("own_table", TABLE, csv("@,f,dog\n")),
    "a category of the message": ("own_table", TABLE | {"columns": ["sex=?|!"]}, csv("sex,label\n@,dog\n")),
    "parquet": ("own_table", TABLE, parquet(age=[CANARY], sex=["f"], label=["dog"])),
    "parquet, columns": ("own_table", TABLE, parquet(age=[4], label=["dog"], **{CANARY: ["f"]})),
    "npz, names": ("own_images", IMAGES, npz(**{CANARY: np.zeros((2, 4, 5), np.uint8)})),
    "npz, values": ("own_images", IMAGES, npz(x=np.array([[CANARY]]), y=[0])),
    "npz, labels": ("own_images", IMAGES, npz(x=np.zeros((2, 4, 5), np.uint8), y=[19560412, 0])),
    "a picture that is none": (
        "own_images", IMAGES, pictures(lambda folder: (folder / "dog" / f"{CANARY}.png").write_text(CANARY)),
    ),
    "a picture of another size": (
        "own_images", IMAGES, pictures(lambda folder: Image.new("L", (9, 9)).save(folder / f"dog/{CANARY}.png")),
    ),
    "pictures of other sizes and one that is none": ("own_images", IMAGES, pictures(broken)),
    "slices of a patient": ("own_images", IMAGES | {"window": [0.0, 1.0]}, pictures(slices)),
    "a number in another form": ("own_table", TABLE, csv('age,sex,label\n"1.234,5 @",f,dog\n')),
    "a column that must not be empty": (
        "own_table", TABLE | {"missing": ["sex=median+indicator"]}, csv("age,sex,name,label\n,f,@,dog\n"),
    ),
    "another file": ("own_images", IMAGES, pictures(lambda folder: (folder / f"cat/{CANARY}.doc").write_text(""))),
    "another class": ("own_images", IMAGES, pictures(lambda folder: (folder / CANARY).mkdir())),
    "a recording": ("own_sounds", SOUNDS, pictures(lambda folder: sound(folder, 99))),
    "a text": ("own_texts", TEXTS, pictures(lambda folder: (folder / "dog" / f"{CANARY}.txt").write_text(""))),
    "an empty text": ("own_texts", TEXTS, csv("label,text,name\ndog,,@\n")),
    "a path": ("own_table", TABLE, lambda folder: folder / "nothing.csv"),
}  # fmt: skip


def asked(task: str, settings: dict[str, Any]) -> dict[str, Any]:
    chosen = TASKS.config(task)(**settings)
    spec = data.load(chosen).spec
    own = PARTITIONS.config("own")()
    return dict(round_config(partition=own, clients=2, **TASKS.flatten(chosen), **spec.flatten()))


def node(path: Path, **config: Any) -> Context:
    where = {"data": str(path), "partition-id": 0, "name": "north", **config}
    return Context(run_id=1, node_id=9, node_config=where, state=RecordDict(), run_config={})


@pytest.mark.slow
@pytest.mark.parametrize("kind", [MessageType.TRAIN, MessageType.EVALUATE, MessageType.QUERY])
@pytest.mark.parametrize("name", FAULTS)
def test_an_error_leaves_as_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, kind: str
) -> None:
    """It is in the log of the node, whole."""
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(tmp_path / "cache"))
    task, settings, write = FAULTS[name]
    folder = tmp_path / CANARY
    folder.mkdir()
    path, config = write(folder), asked(task, settings)
    sent = message(kind, config, initial("mlp"))
    with caplog.at_level(logging.ERROR):
        reply = app(sent, node(path))
    assert reply.has_error() and reply.error.code == wire.FAILED
    fault = parsed(str(reply.error.reason), config)
    assert fault is not None and fault.kind in (ErrorKind.DATA, ErrorKind.SETTING)
    assert CANARY in caplog.text
    with pytest.raises(FedstrideError) as caught:  # at a desk, it is raised whole
        app(message(kind, config, initial("mlp")), node(path, **{wire.DESK: True}))
    assert str(caught.value) in caplog.text


def test_the_key_of_a_setting_leaves_with_it(tmp_path: Path) -> None:
    config = asked("own_table", TABLE) | {"client.batch_size": 0}
    reply = app(message(MessageType.TRAIN, config, initial("mlp")), node(tmp_path))
    assert reply.error.reason == (
        "a setting of the message cannot be used at this node: client.batch_size; details in the log of the node"
    )


@pytest.mark.parametrize("runs", [False, True])
def test_a_node_that_has_loaded_ray_is_no_desk_unless_ray_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    """A package that a user's part imports may load Ray."""
    monkeypatch.setitem(sys.modules, "ray", cast("ModuleType", SimpleNamespace(is_initialized=lambda: runs)))
    config = asked("own_table", TABLE)
    path = csv("age,sex,label\n@,f,dog\n")(tmp_path)
    with pytest.raises(FedstrideError, match=CANARY) if runs else nullcontext():
        reply = app(message(MessageType.TRAIN, config, initial("mlp")), node(path))
        assert reply.has_error() and CANARY not in reply.error.reason


@pytest.mark.parametrize(
    "error", [RuntimeError(CANARY), MemoryError(CANARY), KeyError(CANARY), OSError(5, CANARY)]
)
def test_texts_of_other_errors_do_not_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("client_app.from_message.client_data", fails)
    reply = app(message(MessageType.TRAIN, asked("own_table", TABLE), initial("mlp")), node(tmp_path))
    assert reply.error.reason == "the app failed at this node; details in the log of the node"
