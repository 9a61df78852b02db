"""A run is not resumed with other data than those with which it began: at the nodes, and at the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from desk import StopAfter, play, resume, weights
from flwr.app import Context, Message, RecordDict
from PIL import Image

from client_app.app import app
from fedstride.error_kinds import ErrorKind, Fault
from fedstride.errors import ChangedDataError, RunError
from fedstride.messages import wire
from fedstride.messages.records import config_records
from fedstride.tasks import data

SAID = "data of client 0 are not those with which it began this run"
TABLE = ("task=own_table", "task.columns=['a','b']", "task.target=t", "task.classes=['n','y']", "model=mlp")
IMAGES = ("task=own_images", "task.classes=['cat','dog']", "task.shape=[1,8,8]", "model=mlp")
TEXTS = ("task=own_texts", "task.classes=['bad','good']", "task.length=8", "task.vocabulary=50", "model=textcnn")


def write_table(path: Path, rng: np.random.Generator) -> None:
    rows = [f"{rng.normal() + n % 2:.3f},{rng.normal():.3f},{'ny'[n % 2]},note {n}\n" for n in range(60)]
    path.write_text("a,b,t,note\n" + "".join(rows))


def write_images(path: Path, rng: np.random.Generator) -> None:
    for n in range(30):
        folder = path / ("cat", "dog")[n % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(folder / f"{n}.png")


def write_arrays(path: Path, rng: np.random.Generator) -> None:
    np.savez(path, x=rng.integers(0, 256, (30, 1, 8, 8), dtype=np.uint8), y=np.arange(30) % 2)


def write_texts(path: Path, rng: np.random.Generator) -> None:
    for n in range(30):
        folder = path / ("bad", "good")[n % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{n}.txt").write_text(f"{('bad', 'good')[n % 2]} words {rng.integers(0, 1000)}")


def lines(change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        head, *rows = path.read_text().splitlines()
        path.write_text("\n".join([head, *change(rows)]) + "\n")

    return apply


def one_pixel(path: Path) -> None:
    found = dict(np.load(path))
    found["x"][7, 0, 3, 3] ^= 1
    np.savez(path, **found)


def one_label(path: Path) -> None:
    found = dict(np.load(path))
    found["y"][7] ^= 1
    np.savez(path, **found)


CASES = {
    "a row more": ("0.csv", write_table, TABLE, lines(lambda rows: [*rows, "0.5,0.5,y,new"])),
    "a row less": ("0.csv", write_table, TABLE, lines(lambda rows: rows[:-1])),
    "a row twice": ("0.csv", write_table, TABLE, lines(lambda rows: [*rows, rows[4]])),
    "a cell": ("0.csv", write_table, TABLE, lines(lambda rows: ["9" + rows[0], *rows[1:]])),
    "a label": ("0.csv", write_table, TABLE, lines(lambda rows: [rows[0].replace(",n,", ",y,"), *rows[1:]])),
    "a file of another class": (
        "0", write_images, IMAGES, lambda path: (path / "cat/0.png").rename(path / "dog/0.png"),
    ),
    "an image less": ("0", write_images, IMAGES, lambda path: (path / "cat/4.png").unlink()),
    "a pixel": ("0.npz", write_arrays, IMAGES, one_pixel),
    "a number of a class": ("0.npz", write_arrays, IMAGES, one_label),
    "a word": ("0", write_texts, TEXTS, lambda path: (path / "bad/2.txt").write_text("another word")),
}  # fmt: skip


def begun(tmp_path: Path, name: str, write: Callable[[Path, np.random.Generator], None], task: tuple[str, ...]):
    """The folder of a run that was stopped after round 1, and the data of its first client."""
    rng = np.random.default_rng(1)
    files = [tmp_path / name, tmp_path / f"other-{name}"]
    for file in files:
        write(file, rng)
    own = ["partition=own", f"partition.files=['{files[0]}','{files[1]}']", "clients=2", "client.batch_size=5"]
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, *task, *own, "rounds=2", "name=run", observers=[StopAfter(1)], small=False)
    return tmp_path / "run", files[0]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_run_is_not_resumed_with_other_data(case: str, tmp_path: Path) -> None:
    name, write, task, change = CASES[case]
    folder, file = begun(tmp_path, name, write, task)
    change(file)
    with pytest.raises(RunError, match=SAID):
        resume(folder)
    assert len(resume(folder, "allow=[changed_data]").rows) == 3
    assert len(resume(folder, "rounds=3").rows) == 4  # with the data that were permitted


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lines(lambda rows: rows[::-1]),
        lines(lambda rows: [f"  {rows[0]}  ", *rows[1:]]),
        lambda path: path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n")),
        lambda path: path.touch(),
    ],
)
def test_the_same_rows_are_the_same_data(change: Callable[[Path], None], tmp_path: Path) -> None:
    folder, file = begun(tmp_path, "0.csv", write_table, TABLE)
    change(file)
    assert len(resume(folder).rows) == 3


@pytest.mark.slow
def test_columns_that_a_run_does_not_name_count_only_if_they_decide_what_is_held_out(tmp_path: Path) -> None:
    change = lines(lambda rows: [f"{rows[0]} more", *rows[1:]])
    folder, file = begun(tmp_path, "0.csv", write_table, TABLE)
    change(file)
    with pytest.raises(RunError, match=SAID):
        resume(folder)
    (tmp_path / "ids").mkdir()

    def with_ids(path: Path, rng: np.random.Generator) -> None:
        write_table(table := path.with_suffix(".csv"), rng)
        head, *rows = table.read_text().splitlines()
        table.write_text(f"id,{head}\n" + "".join(f"{n},{row}\n" for n, row in enumerate(rows)))
        path.write_text(f'path = "{table}"\nid = "id"\nsplit_seed = 0\n')

    folder, file = begun(tmp_path / "ids", "0.toml", with_ids, TABLE)
    change(file.with_suffix(".csv"))
    assert len(resume(folder).rows) == 3


@pytest.mark.slow
def test_another_secret_is_another_hold_out(tmp_path: Path) -> None:
    def with_secret(path: Path, rng: np.random.Generator) -> None:
        write_table(path.with_suffix(".csv"), rng)
        path.write_text(f'path = "{path.with_suffix(".csv")}"\n')

    folder, file = begun(tmp_path, "0.toml", with_secret, TABLE)
    file.with_suffix(".secret").write_bytes(b"s" * 32)
    with pytest.raises(RunError, match=SAID):
        resume(folder)


@pytest.mark.slow
def test_the_server_is_told_nothing_but_that_they_have_changed(tmp_path: Path) -> None:
    folder, file = begun(tmp_path, "0.csv", write_table, TABLE)
    heard: list[Message] = []

    class Heard:
        def __call__(self, message: Message, context: Context) -> Message:
            heard.append(message)
            return app(message, context)

    resume_through(folder, Heard())
    question = next(m for m in heard if m.metadata.message_type == "query")
    states = folder / wire.CLIENT_STATES
    node = {"data": str(file), "partition-id": 0, "num-partitions": 2, "state": str(states)}

    def answer() -> Message:
        return app(question, Context(1, 1, node, RecordDict(), {}))

    first = config_records(answer().content)[wire.ROLL_CALL]
    kept = next(states.glob("*/data-0")).read_text().strip()
    assert kept not in str(dict(first))
    lines(lambda rows: rows[1:])(file)
    refused = answer()
    assert refused.has_error() and refused.error.reason == str(Fault(ErrorKind.CHANGED_DATA))


def resume_through(folder: Path, client: object) -> None:
    from desk import _run

    from server_app.config.compose import compose

    _run(client, compose([f"resume='{folder}'"]), [], 0)  # type: ignore[arg-type]


# ---------------------------------------------------------------- data that the server has too

PART = '''
import numpy as np
from fedstride import part
from fedstride.tasks.data import Data
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.spec import Spec

@part(task={name!r})
def mine():
    """Numbers of a file."""
    x = np.load({path!r})
    y = (x[:, 0] > 0).astype(np.int64)
    return Data(Spec(Inputs(Kind.TABLE, (3,)), 2), x[:80], y[:80], x[80:], y[80:])
'''


@pytest.mark.slow
@pytest.mark.parametrize("row", [3, 99])  # one for training, one for testing
def test_a_dataset_function_that_reads_other_data(tmp_path: Path, row: int) -> None:
    x = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    name = f"reads_{row}"
    (tmp_path / f"{name}.py").write_text(PART.format(path=str(tmp_path / "x.npy"), name=name))
    given = [f"parts='{tmp_path / name}.py'", f"task={name}", "model=mlp", "partition=iid", "clients=2"]
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, *given, "rounds=2", "name=run", observers=[StopAfter(1)], small=False)
    forget()
    assert len(resume(tmp_path / "run").rows) == 3
    x[row] += 0.001
    np.save(tmp_path / "x.npy", x)
    forget()
    with pytest.raises(ChangedDataError, match=f"the examples of task = '{name}' are not those"):
        resume(tmp_path / "run", "rounds=3")
    before = weights(tmp_path / "run")
    assert len(resume(tmp_path / "run", "rounds=3", "allow=[changed_data]").rows) == 4
    assert weights(tmp_path / "run") != before


def forget() -> None:
    """What a new process would not know."""
    from client_app import message_settings

    message_settings.forget()
    data._load.cache_clear()
    data._digest.cache_clear()
